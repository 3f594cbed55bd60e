"""The section `comparison` of a document, from the results of both sides."""

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

_SHOWN = ("capacity", "p50", "p99", "throughput")
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
        candidate: name and results of the second side, as many as of the first.
        in_turns: True if the rounds of both sides alternated; otherwise the last run of each side is compared.
        conditions: conditions of the option --fail-if.
        anyway: True to compare results that differ in more than the server.

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
        bounds=tuple(one.judge(differences) for one in conditions),
        leaderboard=(),
    )


def differing(
    baseline: tuple[str, BenchDocument], candidate: tuple[str, BenchDocument], *, anyway: bool
) -> tuple[str, ...]:
    """Return, as phrases, in what two named results differ apart from the server; nothing if they are alike.

    Raises:
        SettingError: they differ, and `anyway` is False.
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
    """Return the leaderboard of named results with a capacity at one objective, the largest rate first.

    `in_turns` is True if the runs of the searches alternated.

    Raises:
        SettingError: the objectives of the results differ, and `anyway` is False.
    """
    goals = {name: f"{likeness.objective(one)} at P{_percentile(one)}" for name, one in results}
    if len(set(goals.values())) > 1 and not anyway:
        said = ", ".join(f"{name} has {goal}" for name, goal in goals.items())
        raise SettingError(
            f"a leaderboard is at one objective, and {said}. Give all the same --objective, or add --anyway"
        )
    rows = sorted((_row(name, one) for name, one in results), key=lambda row: -(row.rate.value or 0.0))
    best = rows[0]
    said = f"{best.name} takes most: {number(best.rate.value)} requests/s" if best.rate.value else "no rate is known"
    lead = _lead(rows, dict(results))
    return Comparison(
        sentence=f"{said}, of {len(rows)}, with {next(iter(goals.values()))}{lead}.",
        baseline=None,
        candidate=None,
        rounds=1,
        order="a run of each in turn" if in_turns else "",
        differences=(),
        unlike=() if len(set(goals.values())) == 1 else tuple(f"{name}: {goal}" for name, goal in goals.items()),
        bounds=(),
        leaderboard=tuple(rows),
    )


def _lead(rows: Sequence[LeaderboardRow], results: Mapping[str, BenchDocument]) -> str:
    """Return how far the first row of the leaderboard is ahead of the second, with an interval.

    The text is empty if that is unknown.
    """
    if len(rows) < 2 or not rows[0].rate.value or not rows[1].rate.value:
        return ""
    found = difference.of_results(results[rows[1].name], results[rows[0].name])
    one = next((one for one in found if one.figure == "capacity" and one.change.value is not None), None)
    if one is None or one.change.interval is None:
        return ""
    if one.result == NO_DIFFERENCE:
        return f"; {NO_DIFFERENCE} to {rows[1].name}{_interval(one.change)}"
    return f"; {one.change.value or 0:.1%} more than {rows[1].name}{_interval(one.change)}"


def _percentile(document: BenchDocument) -> str:
    return "99" if document.capacity is None else f"{100 * document.capacity.percentile:g}"


def _side(name: str, document: BenchDocument, *, earlier: bool) -> ComparedSide:
    made_at = document.made_at if earlier else None
    return ComparedSide(name=name, url=document.target.url, model=document.target.model, made_at=made_at)


def _row(name: str, document: BenchDocument) -> LeaderboardRow:
    energy = document.energy

    def of_energy(figure: Figure | None) -> Figure:
        return figure if figure is not None else unmeasured("J", _NONE)

    rate = document.capacity.rate if document.capacity is not None else unmeasured("requests/s", _NONE)
    return LeaderboardRow(
        name=name,
        url=document.target.url,
        model=document.target.model,
        rate=rate,
        p99=document.latency.p99,
        cost_per_thousand=of_energy(None if energy is None else energy.cost_per_thousand),
        energy_per_inference=of_energy(None if energy is None else energy.per_inference),
        carbon_per_inference=of_energy(None if energy is None else energy.carbon_per_inference),
        accuracy=document.accuracy
        or unmeasured("ratio", "no expected outputs are given; for example --expect outputs.npz"),
    )


def _sentence(baseline: str, candidate: str, differences: Sequence[Difference]) -> str:
    """Return a sentence with the significant differences, or one that there are none."""
    known = [one for one in differences if one.figure in _SHOWN and one.change.value is not None]
    shown = [one for one in known if one.result in {"higher", "lower"}]
    if shown:
        parts = [
            f"{one.figure} is {abs(one.change.value or 0):.1%} {one.result}{_interval(one.change)}" for one in shown
        ]
        return f"{candidate} against {baseline}: {', '.join(parts)}."
    if not known:
        return f"{candidate} against {baseline}: nothing could be compared."
    doubt = [one for one in known if one.result == NO_DIFFERENCE]
    if not doubt:
        parts = [f"{one.figure} {one.change.value or 0:+.1%}" for one in known]
        return f"{candidate} against {baseline}: {', '.join(parts)}, without an interval: {known[0].change.reason}."
    parts = [f"{one.figure} {one.change.value or 0:+.1%}{_interval(one.change)}" for one in doubt]
    return f"{candidate} against {baseline}: {NO_DIFFERENCE} ({', '.join(parts)})."


def _interval(figure: Figure) -> str:
    return "" if figure.interval is None else f" [{figure.interval[0]:+.1%}, {figure.interval[1]:+.1%}]"
