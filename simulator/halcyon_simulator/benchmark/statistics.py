"""Statistics of outcomes: means over seeds, Pareto fronts, comparisons. Pure. Out of scope: running anything.

A point is a policy with its knobs in one cell (scenario, law, start delay), with one outcome per seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from halcyon_simulator.engine.case import RunOutcome

_T = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
    2.120,
    2.110,
    2.101,
    2.093,
    2.086,
)
"""Two-sided 95 % points of Student's t for 1 to 20 degrees of freedom."""
_MIN_PCT = 0.1
"""Violations below this share are treated as this share if shares are compared as ratios."""
MEANS = (
    "violations_pct",
    "refused_pct",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "gpu_seconds",
    "gpu_ratio_work",
    "gpu_ratio_clairvoyant",
    "direction_changes_per_h",
    "overshoot",
    "settling_s",
    "pods_in_vain",
    "reactive_floor_pct",
)
"""Fields of an outcome that are averaged over seeds."""


@dataclass(frozen=True)
class Cell:
    """The parameters that all compared points share."""

    scenario: str
    law: str
    start_s: float

    @property
    def family(self) -> str:
        """Scenario without its member: `S6` for `S6-azure`."""
        return self.scenario.partition("-")[0]

    def __str__(self) -> str:
        """Return the cell as text, for keys and progress messages."""
        return f"{self.scenario} {self.law} {self.start_s:g}"


@dataclass(frozen=True)
class PolicyPoint:
    """One policy with its knobs, over some seeds."""

    policy: str
    """Policy with its knobs, as the command line writes it."""
    outcomes: tuple[RunOutcome, ...]
    """Outcomes in the order of their seeds."""

    def mean(self, field: str) -> float | None:
        """Return the mean of a field over the seeds; None if a seed has none."""
        values = [getattr(outcome, field) for outcome in self.outcomes]
        return None if None in values else sum(values) / len(values)

    @property
    def violations_pct(self) -> float:
        """Mean over the seeds."""
        return sum(outcome.violations_pct for outcome in self.outcomes) / len(self.outcomes)

    @property
    def gpu_ratio(self) -> float:
        """GPU time over that of the clairvoyant schedule, mean over the seeds."""
        return sum(outcome.gpu_ratio_clairvoyant for outcome in self.outcomes) / len(self.outcomes)

    def means(self) -> dict[str, float | None]:
        """Return the means of all averaged fields."""
        return {field: self.mean(field) for field in MEANS}


@dataclass(frozen=True)
class Overall:
    """One policy with one setting of its knobs, over several cells."""

    policy: str
    violations_pct: float
    """Mean over the cells."""
    gpu_ratio: float
    """Geometric mean over the cells, because a cell with almost no work would otherwise dominate."""


Figures = TypeVar("Figures", PolicyPoint, Overall)


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of paired differences, by Student's t; a single difference has no bounds."""
    number = len(differences)
    if number < 2:
        return -math.inf, math.inf
    mean = sum(differences) / number
    deviation = math.sqrt(sum((value - mean) ** 2 for value in differences) / (number - 1))
    half = _T[min(number - 1, len(_T)) - 1] * deviation / math.sqrt(number)
    return mean - half, mean + half


def beats(one: PolicyPoint, other: PolicyPoint) -> bool:
    """Return whether `one` has no more violations and less GPU time than `other`, or the other way round.

    The comparison is paired over their common seeds. "Less" must hold with 95 % confidence, "no more" by the mean.
    """
    pairs = _paired(one, other)
    violations = [first.violations_pct - second.violations_pct for first, second in pairs]
    gpu = [first.gpu_ratio_clairvoyant - second.gpu_ratio_clairvoyant for first, second in pairs]
    return bool(pairs) and (
        (sum(violations) <= 0 and interval(gpu)[1] < 0) or (sum(gpu) <= 0 and interval(violations)[1] < 0)
    )


def front(points: Iterable[Figures]) -> tuple[Figures, ...]:
    """Return the points for which no other has both fewer violations and less GPU time (by their means), cheapest first."""
    best = math.inf
    kept: list[Figures] = []
    for point in sorted(points, key=lambda p: (p.gpu_ratio, p.violations_pct, p.policy)):
        if point.violations_pct < best:
            kept.append(point)
            best = point.violations_pct
    return tuple(kept)


def overall(points: Mapping[Cell, Sequence[PolicyPoint]]) -> list[Overall]:
    """Return each policy and setting that ran in all of these cells, on the first seed (most points of a grid have only that one)."""
    found: dict[str, list[RunOutcome]] = {}
    for listed in points.values():
        for point in listed:
            if point.outcomes:
                found.setdefault(point.policy, []).append(point.outcomes[0])
    return [
        Overall(
            policy,
            sum(outcome.violations_pct for outcome in outcomes) / len(outcomes),
            math.exp(sum(math.log(outcome.gpu_ratio_clairvoyant) for outcome in outcomes) / len(outcomes)),
        )
        for policy, outcomes in found.items()
        if len(outcomes) == len(points) and all(outcome.gpu_ratio_clairvoyant > 0 for outcome in outcomes)
    ]


def contenders(points: Sequence[PolicyPoint], slack: float) -> list[PolicyPoint]:
    """Return the points that no other beats in both figures by more than `slack` (a share), by their means: more seeds may change their order."""

    def hopeless(point: PolicyPoint) -> bool:
        most, gpu = point.violations_pct / (1 + slack), point.gpu_ratio / (1 + slack)
        return any(other.violations_pct < most and other.gpu_ratio < gpu for other in points)

    return [point for point in points if not hopeless(point)]


def excess(other: PolicyPoint, point: PolicyPoint) -> float:
    """Return how far `other` is from being as good as `point` in both figures: the larger of its two ratios. Up to 1, it is as good."""
    violations = max(other.violations_pct, _MIN_PCT) / max(point.violations_pct, _MIN_PCT)
    return max(violations, other.gpu_ratio / point.gpu_ratio)


def nearest(point: PolicyPoint, others: Iterable[PolicyPoint]) -> PolicyPoint:
    """Return the one of `others` that comes nearest to being better than `point`."""
    return min(others, key=lambda other: excess(other, point))


def rivals(point: PolicyPoint, others: Iterable[PolicyPoint], slack: float) -> list[PolicyPoint]:
    """Return those of `others` that more seeds may make the nearest, or better than `point`; only these can affect its verdict.

    `slack` is the share by which seeds may change an excess.
    """
    excesses = [(excess(other, point), other) for other in others]
    most = max(1.0, min((far for far, _ in excesses), default=1.0)) * (1 + slack)
    return [other for far, other in excesses if far <= most]


def deciding(point: PolicyPoint, peers: Sequence[PolicyPoint]) -> list[PolicyPoint]:
    """Return those of `peers` that the verdict depends on: the nearest, and all that are better or as good, by their means or paired."""
    near = rivals(point, peers, 0.0)
    return [peer for peer in peers if peer in near or beats(peer, point)]


def standing(point: PolicyPoint, peers: Sequence[PolicyPoint]) -> str:
    """Return `behind` if a peer beats the point, `win` if the point beats the nearest peer, else `front` or `level`.

    `front`: no peer's point has both figures as good or better. `level`: one has by its mean, but not with 95 % confidence.
    """
    if any(beats(peer, point) for peer in peers):
        return "behind"
    if beats(point, nearest(point, peers)):
        return "win"
    ahead = all(peer.violations_pct > point.violations_pct or peer.gpu_ratio > point.gpu_ratio for peer in peers)
    return "front" if ahead else "level"


def plain(outcome: RunOutcome) -> dict[str, Any]:
    """Return an outcome for JSON; values that are not finite (a percentile without responses) become null."""
    return finite(asdict(outcome))


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping with null for values that JSON can't represent."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in values.items()
    }


def _paired(one: PolicyPoint, other: PolicyPoint) -> list[tuple[RunOutcome, RunOutcome]]:
    second = {outcome.seed: outcome for outcome in other.outcomes}
    return [(outcome, second[outcome.seed]) for outcome in one.outcomes if outcome.seed in second]


def together(outcomes: Sequence[RunOutcome], *, scenario: str) -> RunOutcome:
    """Return the runs of several models with one seed as one outcome.

    Requests and GPU time are summed, and so are the values that they are compared with. Latencies, overshoot and settling are those of the
    worst model; changes of direction are the mean of the models.
    """
    requests = sum(outcome.requests for outcome in outcomes)

    def share(field: str) -> float:
        return float(sum(getattr(outcome, field) * outcome.requests for outcome in outcomes)) / max(requests, 1)

    def ratio(field: str) -> float:
        bounds = [outcome.gpu_seconds / getattr(outcome, field) for outcome in outcomes if getattr(outcome, field) > 0]
        return sum(outcome.gpu_seconds for outcome in outcomes) / sum(bounds) if bounds else math.nan

    settled = [outcome.settling_s for outcome in outcomes]
    known = [value for value in settled if value is not None]
    return replace(
        outcomes[0],
        scenario=scenario,
        requests=requests,
        violations_pct=share("violations_pct"),
        refused_pct=share("refused_pct"),
        p50_ms=max(outcome.p50_ms for outcome in outcomes),
        p95_ms=max(outcome.p95_ms for outcome in outcomes),
        p99_ms=max(outcome.p99_ms for outcome in outcomes),
        gpu_seconds=sum(outcome.gpu_seconds for outcome in outcomes),
        gpu_ratio_work=ratio("gpu_ratio_work"),
        gpu_ratio_clairvoyant=ratio("gpu_ratio_clairvoyant"),
        direction_changes_per_h=sum(outcome.direction_changes_per_h for outcome in outcomes) / len(outcomes),
        overshoot=max(outcome.overshoot for outcome in outcomes),
        settling_s=max(known) if len(known) == len(settled) else None,
        pods_in_vain=sum(outcome.pods_in_vain for outcome in outcomes),
        reactive_floor_pct=share("reactive_floor_pct"),
    )
