"""Report sections about the main results: the search for the capacity, comparisons, and the leaderboard. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from halcyon_measure.report.chart import Axis, Line, chart
from halcyon_measure.report.labels import LabelledRun, best
from halcyon_measure.report.markup import Content, Html, element, facts, section, table
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.number_text import NONE, count_text, interval, number, quantity
from halcyon_measure.results.sections.capacity import Capacity
from halcyon_measure.results.sections.comparison import Bound, Comparison, Difference, LeaderboardRow

_DECIDED = {True: "yes", False: "no", None: "not decided"}


def capacity(runs: Sequence[LabelledRun]) -> Html:
    """Return the section on the search for the capacity: its figures, its runs, and a chart."""
    contents: list[Content] = []
    searches = [(run.label, run.document.capacity) for run in runs if run.document.capacity is not None]
    for label, search in searches:
        contents += [element("h3", label) if len(searches) > 1 else None, *_search(search)]
    return section("Capacity", contents, anchor="capacity")


def _search(search: Capacity) -> list[Content]:
    objective = None
    if search.objective_ms is not None:
        objective = f"{100 * search.percentile:g} % within {number(search.objective_ms)} ms"
    pairs: list[tuple[str, Content]] = [
        ("Capacity", _with_interval(search.rate)),
        ("Objective", objective),
        ("Saturation", _with_interval(search.saturation)),
        ("Knee", _with_interval(search.knee)),
        ("One caller", _with_interval(search.single)),
        ("Confirmed by a last run", {True: "yes", False: "no", None: None}[search.confirmed]),
        ("Service times", search.law),
        ("Time of the search", f"{number(search.seconds)} s"),
    ]
    rows: list[list[Content]] = []
    for run in search.runs:
        load = f"{number(run.rate_rps)}/s" if run.rate_rps is not None else count_text(run.callers, "caller")
        rows.append([
            run.purpose,
            load,
            f"{number(run.seconds)} s" + (" (decided early)" if run.ended_early else ""),
            _cell(run.throughput),
            _cell(run.latency),
            _share_cell(run.late),
            _DECIDED[run.kept] if run.purpose in {"search", "confirmation"} else "",
        ])  # fmt: skip
    head = [
        "run",
        "load",
        "time",
        "answered, requests/s",
        f"P{100 * search.percentile:g}, ms",
        "late or failed, %",
        "kept",
    ]
    return [facts(pairs), _picture(search), table(head, rows, label=f"Runs of the search: {search.sentence[:60]}")]


def _picture(search: Capacity) -> Html:
    points = sorted((run.rate_rps, run.latency.value) for run in search.runs if run.rate_rps is not None)
    if len({rate for rate, _ in points}) < 2:
        return Html("")
    rates = sorted({rate for rate, _ in points})
    highest: list[float | None] = [
        max((value for rate, value in points if rate == rate_rps and value is not None), default=None)
        for rate_rps in rates
    ]
    lines = [Line(f"P{100 * search.percentile:g}", highest)]
    if search.objective_ms is not None:
        lines.append(Line("objective", [search.objective_ms] * len(rates)))
    return chart("Latency by rate", Axis("rate, requests/s", rates), lines, unit="ms", log=True, spans_gaps=True)


def comparison(runs: Sequence[LabelledRun]) -> Html:
    """Return the section with the differences, their intervals, and the results of the conditions."""
    contents: list[Content] = []
    for run in runs:
        compared = run.document.comparison
        if compared is not None and compared.differences:
            contents += _differences(compared)
    return section("Comparison", contents, anchor="comparison")


def _differences(comparison: Comparison) -> list[Content]:
    first = comparison.baseline.name if comparison.baseline is not None else "first"
    second = comparison.candidate.name if comparison.candidate is not None else "second"
    ends = [
        abs(end)
        for difference in comparison.differences
        for end in (difference.change.interval or (difference.change.value or 0.0,) * 2)
    ]
    span = max([*ends, 0.01]) * 1.05
    rows: list[list[Content]] = [
        [
            difference.figure,
            _cell(difference.baseline),
            _cell(difference.candidate),
            _share_cell(difference.change),
            _whisker(difference, span),
            difference.result,
        ]
        for difference in comparison.differences
    ]
    head = ["figure", first, second, "change, %", f"-{100 * span:.0f} % to {100 * span:.0f} %", "result"]
    contents: list[Content] = [
        element("p", comparison.sentence),
        table(head, rows, label=f"Differences of {second} from {first}"),
        element("p", _of_intervals(comparison), class_="quiet"),
    ]
    if comparison.unlike:
        contents.append(
            element("p", f"Beside the server, these differ: {'; '.join(comparison.unlike)}.", class_="invalid")
        )
    bounds = [
        element("li", bound.text, ": ", element("strong", _result(bound, comparison)), f". {bound.evidence}")
        for bound in comparison.bounds
    ]
    contents.append(element("ul", bounds) if bounds else None)
    return contents


def _of_intervals(comparison: Comparison) -> str:
    """Return a sentence that names the runs from which the intervals are computed."""
    if not comparison.order:
        return (
            "One run of each, at different times; intervals are from within the runs, without changes from day to day."
        )
    rounds = count_text(comparison.rounds, "round")
    return f"{rounds} of each in turns ({comparison.order}); intervals are over rounds."


def _result(bound: Bound, comparison: Comparison) -> str:
    return "failed" if bound.failed else "not decided" if bound in comparison.undecided else "kept"


def _whisker(difference: Difference, span: float) -> Content:
    """Return a picture of a change and its interval, with zero in the middle.

    It covers changes from -`span` to `span`.
    """
    if difference.change.value is None:
        return ""
    low, high = difference.change.interval or (difference.change.value, difference.change.value)
    left, right = (50 + 50 * end / span for end in (low, high))
    return element(
        "span",
        element("span", style=f"left:{left:.1f}%;width:{max(right - left, 1):.1f}%", class_="range"),
        element("span", style=f"left:{50 + 50 * difference.change.value / span:.1f}%", class_="dot"),
        class_="whisker" + (" shown" if low > 0 or high < 0 else ""),
        aria_hidden="true",
    )


def leaderboard(runs: Sequence[LabelledRun]) -> Html:
    """Return the leaderboard of models and servers by their rate at the objective.

    If results don't have this figure, they are ranked by throughput.
    """
    measured = [run for run in runs if run.document.comparison is not None and run.document.comparison.leaderboard]
    if measured:
        boards: list[Content] = []
        for run in measured:
            board = run.document.comparison
            # Boards of several results may have different objectives, so their rows aren't ranked together.
            boards += [element("h3", run.label) if len(measured) > 1 else None]
            boards += [_board(board.leaderboard) if board is not None else None]
        return section("Leaderboard", boards, anchor="leaderboard")
    if len(runs) < 2:
        return Html("")
    has_goodput = all(run.document.goodput.value is not None for run in runs)
    rows: list[list[Content]] = []
    for rank, run in enumerate(best(runs), start=1):
        document = run.document
        rate = document.goodput if has_goodput else document.throughput
        costs = [number(None if figure is None else figure.value) for figure in _costs(document)]
        rows.append([f"{rank}. {run.label}", number(rate.value), number(document.latency.p99.value), *costs])
    kind = "within the objective" if has_goodput else "answered"
    head = ["run", f"requests/s {kind}", "P99, ms", "cost of 1,000", "J", "mg CO₂"]
    note = element("p", "Runs that aren't valid are in it too; the key figures mark them.", class_="quiet")
    some_invalid = any(not run.document.run.valid for run in runs)
    return section("Leaderboard", _leaderboard_table(head, rows), note if some_invalid else None, anchor="leaderboard")


def _board(ranking: Sequence[LeaderboardRow]) -> Html:
    rows: list[list[Content]] = [
        [
            f"{rank}. {row.name}",
            *(_cell(figure) for figure in (row.rate, row.p99, row.cost_per_thousand, row.energy_per_inference)),
            _cell(row.carbon_per_inference),
            _cell(row.accuracy),
        ]
        for rank, row in enumerate(ranking, start=1)
    ]
    head = ["server or model", "requests/s at the objective", "P99, ms", "cost of 1,000", "J", "mg CO₂", "accuracy"]
    return _leaderboard_table(head, rows)


def _leaderboard_table(head: Sequence[str], rows: Sequence[Sequence[Content]]) -> Html:
    """Return a table without the columns that have no value in any row."""
    columns = [n for n in range(len(head)) if not all(row[n] in (NONE, [NONE, None]) for row in rows)]
    return table([head[n] for n in columns], [[row[n] for n in columns] for row in rows], label="Leaderboard")


def _costs(document: BenchDocument) -> list[Figure | None]:
    energy = document.energy
    if energy is None:
        return [None, None, None]
    return [energy.cost_per_thousand, energy.per_inference, energy.carbon_per_inference]


def _with_interval(figure: Figure) -> Content:
    return [quantity(figure), element("small", f" {interval(figure)}") if figure.interval else None]


def _cell(figure: Figure) -> Content:
    interval_text = interval(figure)
    return [number(figure.value), element("small", f" {interval_text}") if interval_text else None]


def _share_cell(figure: Figure) -> Content:
    """Return a table cell with a ratio in percent and its interval."""
    if figure.value is None:
        return NONE
    ends = [number(round(100 * end, 2)) for end in figure.interval] if figure.interval else []
    interval_text = element("small", f" [{', '.join(ends)}]") if ends else None
    return [number(round(100 * figure.value, 2)), interval_text]
