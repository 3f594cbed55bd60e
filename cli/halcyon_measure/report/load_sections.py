"""Report sections about the load: result, validity, figures, latency and failures. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from halcyon_measure.report.chart import MAX_LINES, Axis, Line, chart
from halcyon_measure.report.labels import LabelledRun, best
from halcyon_measure.report.markup import Content, Html, element, facts, joined, section, table
from halcyon_measure.results import text
from halcyon_measure.results.document import BenchDocument, Second
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.number_text import NONE, interval, number, quantity

MAX_POINTS = 240
"""Maximum number of points in a chart over time. In longer runs, a point covers several seconds."""
_NUMBER_AND_UNIT = re.compile(r"(\d) (ms|requests/s|%)")
_NAMES = {"p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99", "p99_9": "P99.9"}
_DURATIONS = (
    ("latency", "from due"),
    ("from_send", "from send"),
    ("first_byte", "first byte"),
    ("prepare", "prepare"),
)


def answer(runs: Sequence[LabelledRun]) -> Html:
    """Return the main result as a sentence; if there are a few runs, one sentence for each."""
    if len(runs) == 1:
        return joined(_sentences(runs[0].document))
    answered = [
        result for run in runs for result in _results(run) if result.throughput.value and result.p99.value is not None
    ]
    if not answered:
        return element("p", f"{len(runs)} runs; no request was answered in any of them.", class_="answer")
    valid = [result for result in answered if result.valid]
    highest_rate = max(valid or answered, key=lambda result: result.throughput.value or 0)
    lowest_p99 = min(valid or answered, key=lambda result: result.p99.value or 0)
    scope = f"{len(runs)} runs" if len(valid) in {0, len(answered)} else "the valid runs"
    sentence = element(
        "p",
        f"The most that {scope} answered is {quantity(highest_rate.throughput)} ({highest_rate.label}); "
        f"the shortest P99 is {quantity(lowest_p99.p99)} ({lowest_p99.label}).",
        class_="answer",
    )
    if not any(run.document.sweep is not None for run in runs):
        return sentence
    return joined(
        sentence, element("p", "Outside of the section Sweep, the figures of a sweep are those of its last point.")
    )


@dataclass(frozen=True)
class _Result:
    """Rate and tail latency of a run, or of a point of a sweep."""

    label: str
    throughput: Figure
    p99: Figure
    valid: bool


def _results(run: LabelledRun) -> list[_Result]:
    document = run.document
    if document.sweep is None:
        return [_Result(run.label, document.throughput, document.latency.p99, document.run.valid)]
    return [
        _Result(f"{run.label}: {point.load_text}", point.throughput, point.p99, point.valid)
        for point in document.sweep.points
    ]


def _sentences(document: BenchDocument) -> list[Html]:
    sentence = _NUMBER_AND_UNIT.sub("\\1\u00a0\\2", text.answer(document))
    answers = [part.sentence for part in (document.capacity, document.comparison) if part is not None]
    paragraphs = [element("p", _NUMBER_AND_UNIT.sub("\\1\u00a0\\2", line), class_="answer") for line in answers]
    # The sentence on a search or a comparison is shown before the one on its last run.
    paragraphs.append(element("p", sentence, class_="verdict" if answers else "answer"))
    if document.sweep is not None and document.sweep.points:
        last = document.sweep.points[-1].load_text
        paragraphs.append(element("p", f"Outside of the section Sweep, figures are those of its last point: {last}."))
    if document.verdict is not None:
        verdict = document.verdict
        unsure = f" Not sure: {', '.join(verdict.others)} would explain it too." if verdict.unsure else ""
        paragraphs.append(element("p", verdict.sentence + unsure, class_="verdict"))
        evidence = [element("li", f"{entry.what}: ", quantity(entry.figure)) for entry in verdict.evidence]
        paragraphs.append(element("ul", evidence, class_="evidence") if evidence else Html(""))
        if verdict.change:
            field = [" (", element("code", verdict.field), ")"] if verdict.field else ""
            paragraphs.append(element("p", f"What would change it: {verdict.change}", field, "."))
    return paragraphs


def validity(runs: Sequence[LabelledRun]) -> Html:
    """Return the section that lists valid and invalid runs, with the reasons."""
    invalid = [run for run in runs if not run.document.run.valid]
    if not invalid:
        statement = "The run is valid" if len(runs) == 1 else f"All {len(runs)} runs are valid"
        settled = {run.document.run.settled for run in runs}
        warm_up = "The load settled" if settled == {True} else "The warm-up had a fixed length"
        if len(settled) > 1:
            warm_up = "The load settled, or the warm-up had a fixed length"
        return element(
            "p", element("strong", f"{statement}."), f" {warm_up}, and the client didn't limit.", class_="valid"
        )
    items = [
        element(
            "li",
            f"{run.label}: " if len(runs) > 1 else "",
            "; ".join(run.document.run.invalid_because) or "no reason is given",
        )
        for run in invalid
    ]
    head = "The run isn't valid" if len(runs) == 1 else f"{len(invalid)} of {len(runs)} runs aren't valid"
    remedies = {run.document.client.remedy for run in invalid if run.document.client.remedy}
    help_ = element("p", f"What would help: {'; '.join(sorted(remedies))}.") if remedies else None
    return element("div", element("p", element("strong", f"{head}.")), element("ul", items), help_, class_="invalid")


def figures(runs: Sequence[LabelledRun]) -> Html:
    """Return the key figures with their intervals: as cards for one run, as a table for several."""
    if len(runs) > 1:
        return section("Key figures", _runs_table(runs), _legend(), anchor="figures")
    document = runs[0].document
    latency, requests = document.latency, document.requests
    failed = requests.due - requests.answered
    cards = [
        _card("Answered", document.throughput),
        _card("P50", latency.p50),
        _card("P99", latency.p99),
        _card("P99.9", latency.p99_9),
        element(
            "div",
            element("dt", "Failed"),
            element("dd", element("b", number(failed)), f" of {requests.due}"),
            element("dd", _share(failed, requests.due), class_="quiet"),
            class_="bad" if failed else None,
        ),
    ]
    if document.goodput.value is not None:
        cards.append(_card("Goodput", document.goodput))
    head = ["ms", "mean", *_NAMES.values(), "max", "requests"]
    rows = []
    for name, label in _DURATIONS:
        latencies = getattr(document, name)
        if latencies.p50.value is None:
            continue
        cells = [_cell(getattr(latencies, statistic)) for statistic in ("mean", *_NAMES, "max")]
        rows.append([label, *cells, number(latencies.p50.n)])
    client = document.client
    limits = "doesn't limit the run" if client.limit == "none" else f"limits the run ({client.limit})"
    processes = "1 process" if client.processes == 1 else f"{client.processes} processes"
    return section(
        "Key figures",
        element("dl", cards, class_="cards"),
        table(head, rows, label="Percentiles of latency"),
        _legend(),
        facts([
            ("Due", quantity(document.offered)),
            ("Rows", quantity(document.rows) if document.target.rows != "1" else None),
            ("Delay of sending, P99", quantity(client.late_p99)),
            ("Longest pause of the garbage collector", quantity(client.gc_longest)),
            ("Answers by replica", ", ".join(f"{pod.pod} {pod.answered}" for pod in document.pods)),
            ("Client", f"{processes}, {quantity(client.cpu_per_request)} of CPU for each request; it {limits}. {_capital(client.evidence)}."),
        ]),
        anchor="figures",
    )  # fmt: skip


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _legend() -> Html:
    return element(
        "p", "Brackets are 95 % intervals. A percentile with ? has fewer than ten requests above it.", class_="quiet"
    )


def _card(name: str, figure: Figure) -> Html:
    if figure.value is None:
        value: Content = [element("b", NONE), element("span", f" not measured: {figure.reason}", class_="quiet")]
        below = ""
    else:
        value = [element("b", number(figure.value)), f" {figure.unit}"]
        below = interval(figure) or (figure.reason and f"? {figure.reason}") or f"of {figure.n}"
    return element(
        "div", element("dt", name), element("dd", value), element("dd", below, class_="quiet") if below else None
    )


def _cell(figure: Figure) -> Content:
    mark = "?" if figure.value is not None and figure.reason else ""
    interval_text = interval(figure)
    return [f"{number(figure.value)}{mark}", element("small", f" {interval_text}") if interval_text else None]


def _share(part: int, total: int) -> str:
    return f"{number(100 * part / total)} %" if total else ""


def _runs_table(runs: Sequence[LabelledRun]) -> Html:
    has_goodput = any(run.document.goodput.value is not None for run in runs)
    head = ["run", "answered, requests/s", *([] if not has_goodput else ["goodput, requests/s"])]
    head += ["P50, ms", "P99, ms", "P99.9, ms", "failed", "valid"]
    rows = []
    for run in runs:
        document = run.document
        failed = document.requests.due - document.requests.answered
        row: list[Content] = [run.label, _cell(document.throughput)]
        row += [_cell(document.goodput)] if has_goodput else []
        row += [_cell(figure) for figure in (document.latency.p50, document.latency.p99, document.latency.p99_9)]
        row += [f"{failed} of {document.requests.due}", "yes" if document.run.valid else "no"]
        rows.append(row)
    return table(head, rows, label="Key figures of all runs")


def latency(runs: Sequence[LabelledRun]) -> Html:
    """Return the section on latency: by percentile, and over time."""
    shown = best(runs)[:MAX_LINES] if len(runs) > MAX_LINES else runs
    note = f"The {len(shown)} runs that answered most, of {len(runs)}." if len(shown) < len(runs) else ""
    charts = [_percentiles(shown), *_over_time(shown)]
    if not any(charts):
        return Html("")
    paragraph = element("p", note, class_="quiet") if note else None
    return section("Latency", paragraph, element("div", charts, class_="charts"), anchor="latency")


def _percentiles(runs: Sequence[LabelledRun]) -> Html:
    distributions = [(run, run.document.distribution) for run in runs if run.document.distribution is not None]
    if not distributions:
        return _named_percentiles(runs)
    shares = distributions[0][1].shares
    lines = [
        Line("from due" if len(runs) == 1 else run.label, distribution.latency_ms)
        for run, distribution in distributions
        if distribution.shares == shares
    ]
    if len(runs) == 1:
        lines.append(Line("from send", distributions[0][1].from_send_ms))
        capacity = runs[0].document.capacity
        if capacity is not None and capacity.objective_ms is not None:
            lines.append(Line("objective", [capacity.objective_ms] * len(shares)))
    return chart(
        "Latency by percentile",
        Axis("share of requests", shares, "nines", [f"{100 * share:.4g} %" for share in shares]),
        lines,
        unit="ms",
        log=True,
        note="How many percent of the answers were at least this fast.",
    )


def _named_percentiles(runs: Sequence[LabelledRun]) -> Html:
    """Return the percentile chart of documents that have only named percentiles, such as P99, and no distribution."""
    shares = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
    lines = []
    for run in runs:
        values = [getattr(run.document.latency, name).value for name in shares]
        lines.append(Line("from due" if len(runs) == 1 else run.label, values))
    axis = Axis("share of requests", list(shares.values()), "nines", list(_NAMES.values()))
    return chart("Latency by percentile", axis, lines, unit="ms", log=True)


def _over_time(runs: Sequence[LabelledRun]) -> list[Html]:
    longest = max((len(run.document.timeline) for run in runs), default=0)
    if longest < 2:
        return []
    span = -(-longest // MAX_POINTS)
    spans = {run.label: _spans(run.document, span) for run in runs}
    count = max(map(len, spans.values()))
    axis = Axis("s since the beginning", [float(span * index) for index in range(count)], "time")
    note = f"Each point is the largest of {span} seconds." if span > 1 else "By the second in which a request was due."

    def column(label: str, field: str) -> list[float | None]:
        values = [point[field] for point in spans[label]]
        return values + [None] * (count - len(values))

    if len(runs) > 1:
        lines = [Line(run.label, column(run.label, "p99")) for run in runs]
        return [chart("P99 over time", axis, lines, unit="ms", note=note)]
    label = runs[0].label
    return [
        chart("Latency over time", axis, [Line("P50", column(label, "p50")), Line("P99", column(label, "p99"))], unit="ms", note=note),
        chart(
            "Requests over time",
            axis,
            [Line(name, column(label, name)) for name in ("answered", "due", "failed")],
            unit="/s",
            stepped=True,
            note="Due, answered and failed requests a second.",
        ),
    ]  # fmt: skip


def _spans(document: BenchDocument, span: int) -> list[dict[str, float | None]]:
    """Return the chart points of a run. A remainder of less than half a span is part of the point before it.

    A result from the history of a model has no timeline, and so no points.
    """
    seconds, end_s = document.timeline, document.run.measured_s
    if not seconds:
        return []
    starts = list(range(0, len(seconds), span))
    if len(starts) > 1 and end_s - starts[-1] < span / 2:
        starts.pop()
    ends = [*starts[1:], len(seconds)]
    return [
        _point(seconds[start:end], min(end, end_s) - start if end_s > start else end - start)
        for start, end in zip(starts, ends, strict=True)
    ]


def _point(seconds: Sequence[Second], length_s: float) -> dict[str, float | None]:
    """Return one chart point for several seconds: mean rates and maximum latencies. The last second may be partial."""
    p50 = [second.p50_ms for second in seconds if second.p50_ms is not None]
    p99 = [second.p99_ms for second in seconds if second.p99_ms is not None]
    return {
        "due": sum(second.due for second in seconds) / length_s,
        "answered": sum(second.answered for second in seconds) / length_s,
        "failed": sum(second.failed for second in seconds) / length_s,
        "p50": max(p50, default=None),
        "p99": max(p99, default=None),
    }


def failures(runs: Sequence[LabelledRun]) -> Html:
    """Return the section on failures: by message, and over time."""
    rows = [
        [
            run.label,
            kind.outcome.replace("_", " "),
            kind.message,
            number(kind.count),
            f"{kind.first_s:g} s to {kind.last_s:g} s",
        ]
        for run in runs
        for kind in run.document.failures
    ]
    rows += [
        [run.label, "", "other messages, which are too many to list", number(count), ""]
        for run in runs
        if run.document.failures and (count := run.document.unlisted_failures) > 0
    ]
    if not rows:
        total = sum(run.document.requests.due for run in runs)
        return section("Failures", element("p", f"None of {total} requests failed."), anchor="failures")
    head = ["run", "kind", "message", "count", "when"]
    if len(runs) == 1:
        head, rows = head[1:], [row[1:] for row in rows]
    return section(
        "Failures", table(head, rows, label="Failures by message"), _failures_by_second(runs), anchor="failures"
    )


def _failures_by_second(runs: Sequence[LabelledRun]) -> Html:
    """Return a chart of failures over time.

    The chart of requests shows the failures of a single run too, but next to much larger numbers.
    """
    longest = max(len(run.document.timeline) for run in runs)
    if longest < 2:
        return Html("")
    span = -(-longest // MAX_POINTS)
    axis = Axis("s since the beginning", [float(span * index) for index in range(-(-longest // span))], "time")
    lines = []
    for run in runs:
        counts = [point["failed"] for point in _spans(run.document, span)]
        if any(counts):
            lines.append(
                Line("failed" if len(runs) == 1 else run.label, counts + [None] * (len(axis.values) - len(counts)))
            )
    return chart("Failures over time", axis, lines, unit="/s", stepped=True)
