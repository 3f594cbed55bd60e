"""Section `comparison` of a document, built from the results of both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from halcyon_measure.compare import difference, likeness
from halcyon_measure.compare.bound import Condition
from halcyon_measure.compare.difference import NO_DIFFERENCE
from halcyon_measure.errors import SettingError
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.results.number_text import number
from halcyon_measure.results.sections.comparison import ComparedSide, Comparison, Difference, LeaderboardRow

_SENTENCE_FIGURES = ("capacity", "p50", "p99", "throughput")
_NONE = "it isn't in this result"


def build(
    baseline: tuple[str, Sequence[BenchDocument]],
    candidate: tuple[str, Sequence[BenchDocument]],
    *,
    in_turns: bool,
    conditions: Sequence[Condition] = (),
    anyway: bool = False,
) -> Comparison:
    """Return the comparison of two named sides, each with one document for each round.

    Args:
        baseline: name and results of the first side.
        candidate: name and results of the second side, with the same number of results.
        in_turns: whether the rounds of both sides alternated; if not, the last run of each side is compared.
        conditions: conditions of the option --fail-if.
        anyway: whether to compare results that differ in more than the server.

    Raises:
        SettingError: the results differ in more than the server, and `anyway` is False.
    """
    first, second = baseline[1], candidate[1]
    unlike = differing((baseline[0], first[-1]), (candidate[0], second[-1]), anyway=anyway)
    differences = difference.of_rounds(first, second) if in_turns else difference.of_results(first[-1], second[-1])
    return Comparison(
        sentence=_sentence(baseline[0], candidate[0], differences),
        baseline=_side(baseline[0], first[-1], earlier=not in_turns),
        candidate=_side(candidate[0], second[-1], earlier=False),
        rounds=len(first),
        order=difference.order(len(first)) if in_turns else "",
        differences=differences,
        unlike=unlike,
        bounds=tuple(condition.judge(differences) for condition in conditions),
        leaderboard=(),
    )


def differing(
    baseline: tuple[str, BenchDocument], candidate: tuple[str, BenchDocument], *, anyway: bool
) -> tuple[str, ...]:
    """Return phrases about the differences between two named results, other than the server; empty if there are none.

    Raises:
        SettingError: the results differ, and `anyway` is False.
    """
    unlike = likeness.unlike(baseline[1], candidate[1])
    if unlike and not anyway:
        raise SettingError(
            f"{baseline[0]} and {candidate[0]} can't be compared, because they differ in {'; '.join(unlike)}. Make them "
            "alike, or add --anyway"
        )
    return unlike


def leaderboard(
    results: Sequence[tuple[str, BenchDocument]], *, anyway: bool = False, in_turns: bool = False
) -> Comparison:
    """Return the leaderboard of named results that have a capacity at the same objective, highest rate first.

    `in_turns` is True if the runs of the searches alternated.

    Raises:
        SettingError: the objectives of the results differ, and `anyway` is False.
    """
    objectives = {name: f"{likeness.objective(document)} at P{_percentile(document)}" for name, document in results}
    if len(set(objectives.values())) > 1 and not anyway:
        objectives_text = ", ".join(f"{name} has {objective}" for name, objective in objectives.items())
        raise SettingError(
            f"a leaderboard is at one objective, and {objectives_text}. Give all the same --objective, or add --anyway"
        )
    rows = sorted((_row(name, document) for name, document in results), key=lambda row: -(row.rate.value or 0.0))
    best = rows[0]
    head = f"{best.name} takes most: {number(best.rate.value)} requests/s" if best.rate.value else "no rate is known"
    lead = _lead(rows, dict(results))
    return Comparison(
        sentence=f"{head}, of {len(rows)}, with {next(iter(objectives.values()))}{lead}.",
        baseline=None,
        candidate=None,
        rounds=1,
        order="a run of each in turn" if in_turns else "",
        differences=(),
        unlike=()
        if len(set(objectives.values())) == 1
        else tuple(f"{name}: {objective}" for name, objective in objectives.items()),
        bounds=(),
        leaderboard=tuple(rows),
    )


def _lead(rows: Sequence[LeaderboardRow], results: Mapping[str, BenchDocument]) -> str:
    """Return a text on how far the first row of the leaderboard is ahead of the second, with an interval.

    The text is empty if this is unknown.
    """
    if len(rows) < 2 or not rows[0].rate.value or not rows[1].rate.value:
        return ""
    differences = difference.of_results(results[rows[1].name], results[rows[0].name])
    lead = next((entry for entry in differences if entry.figure == "capacity" and entry.change.value is not None), None)
    if lead is None or lead.change.interval is None:
        return ""
    if lead.result == NO_DIFFERENCE:
        return f"; {NO_DIFFERENCE} to {rows[1].name}{_interval(lead.change)}"
    return f"; {lead.change.value or 0:.1%} more than {rows[1].name}{_interval(lead.change)}"


def _percentile(document: BenchDocument) -> str:
    return "99" if document.capacity is None else f"{100 * document.capacity.percentile:g}"


def _side(name: str, document: BenchDocument, *, earlier: bool) -> ComparedSide:
    timestamp = document.made_at if earlier else None
    return ComparedSide(name=name, url=document.target.url, model=document.target.model, made_at=timestamp)


def _row(name: str, document: BenchDocument) -> LeaderboardRow:
    energy = document.energy

    def or_unmeasured(figure: Figure | None) -> Figure:
        return figure if figure is not None else unmeasured("J", _NONE)

    rate = document.capacity.rate if document.capacity is not None else unmeasured("requests/s", _NONE)
    return LeaderboardRow(
        name=name,
        url=document.target.url,
        model=document.target.model,
        rate=rate,
        p99=document.latency.p99,
        cost_per_thousand=or_unmeasured(None if energy is None else energy.cost_per_thousand),
        energy_per_inference=or_unmeasured(None if energy is None else energy.per_inference),
        carbon_per_inference=or_unmeasured(None if energy is None else energy.carbon_per_inference),
        accuracy=document.accuracy
        or unmeasured("ratio", "no expected outputs are given; for example --expect outputs.npz"),
    )


def _sentence(baseline: str, candidate: str, differences: Sequence[Difference]) -> str:
    """Return a sentence with the significant differences, or a sentence that there are none."""
    measured = [
        difference
        for difference in differences
        if difference.figure in _SENTENCE_FIGURES and difference.change.value is not None
    ]
    significant = [difference for difference in measured if difference.result in {"higher", "lower"}]
    if significant:
        parts = [
            f"{difference.figure} is {abs(difference.change.value or 0):.1%} {difference.result}"
            f"{_interval(difference.change)}"
            for difference in significant
        ]
        return f"{candidate} against {baseline}: {', '.join(parts)}."
    if not measured:
        return f"{candidate} against {baseline}: nothing could be compared."
    undecided = [difference for difference in measured if difference.result == NO_DIFFERENCE]
    if not undecided:
        parts = [f"{difference.figure} {difference.change.value or 0:+.1%}" for difference in measured]
        return f"{candidate} against {baseline}: {', '.join(parts)}, without an interval: {measured[0].change.reason}."
    parts = [
        f"{difference.figure} {difference.change.value or 0:+.1%}{_interval(difference.change)}"
        for difference in undecided
    ]
    return f"{candidate} against {baseline}: {NO_DIFFERENCE} ({', '.join(parts)})."


def _interval(figure: Figure) -> str:
    return "" if figure.interval is None else f" [{figure.interval[0]:+.1%}, {figure.interval[1]:+.1%}]"
