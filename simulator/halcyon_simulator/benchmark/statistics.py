"""Statistics of results: means over seeds, Pareto fronts and comparisons. Pure. Out of scope: running simulations.

A point is a policy with given knobs in one cell (scenario, law, start delay), with one outcome per seed.
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
"""Two-sided 95 % quantiles of Student's t distribution for 1 to 20 degrees of freedom."""
_MIN_PCT = 0.1
"""Minimum percentage of violations in ratios. Smaller values are replaced by it."""
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
"""Fields of an outcome that are averaged over the seeds."""


@dataclass(frozen=True)
class Cell:
    """Parameters that all compared points have in common: scenario, service law and start delay."""

    scenario: str
    law: str
    start_s: float

    @property
    def family(self) -> str:
        """Family of the scenario, for example `S6` for the scenario `S6-azure`."""
        return self.scenario.partition("-")[0]

    def __str__(self) -> str:
        """Return the cell as text for keys and progress messages."""
        return f"{self.scenario} {self.law} {self.start_s:g}"


@dataclass(frozen=True)
class PolicyPoint:
    """Policy with given knobs, and its outcomes for a number of seeds."""

    policy: str
    """Policy with its knobs, in the format of the command line."""
    outcomes: tuple[RunOutcome, ...]
    """One outcome per seed, in the order of the seeds."""

    def mean(self, field: str) -> float | None:
        """Return the mean of a field over the seeds, or None if the field is None for one of them."""
        values = [getattr(outcome, field) for outcome in self.outcomes]
        return None if None in values else sum(values) / len(values)

    @property
    def violations_pct(self) -> float:
        """Violations in percent, as a mean over the seeds."""
        return sum(outcome.violations_pct for outcome in self.outcomes) / len(self.outcomes)

    @property
    def gpu_ratio(self) -> float:
        """GPU time divided by the GPU time of the clairvoyant schedule, as a mean over the seeds."""
        return sum(outcome.gpu_ratio_clairvoyant for outcome in self.outcomes) / len(self.outcomes)

    def means(self) -> dict[str, float | None]:
        """Return the mean of each field in `MEANS`."""
        return {field: self.mean(field) for field in MEANS}


@dataclass(frozen=True)
class Overall:
    """Result of one policy with one setting of its knobs, over several cells."""

    policy: str
    violations_pct: float
    """Violations in percent, as a mean over the cells."""
    gpu_ratio: float
    """GPU time divided by that of the clairvoyant schedule, as a geometric mean over the cells. An arithmetic mean
    would be dominated by cells with almost no work."""


Figures = TypeVar("Figures", PolicyPoint, Overall)


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean of paired differences, from Student's t distribution.

    The interval of a single difference is unbounded.
    """
    number = len(differences)
    if number < 2:
        return -math.inf, math.inf
    mean = sum(differences) / number
    deviation = math.sqrt(sum((value - mean) ** 2 for value in differences) / (number - 1))
    half = _T[min(number - 1, len(_T)) - 1] * deviation / math.sqrt(number)
    return mean - half, mean + half


def beats(point: PolicyPoint, other: PolicyPoint) -> bool:
    """Return True if `point` is better than `other` in violations or GPU time, and not worse in the other figure.

    The comparison is paired over the seeds with which both have run. Better requires 95 % confidence; for not worse,
    the means are compared.
    """
    pairs = _paired(point, other)
    violations = [first.violations_pct - second.violations_pct for first, second in pairs]
    gpu = [first.gpu_ratio_clairvoyant - second.gpu_ratio_clairvoyant for first, second in pairs]
    return bool(pairs) and (
        (sum(violations) <= 0 and interval(gpu)[1] < 0) or (sum(gpu) <= 0 and interval(violations)[1] < 0)
    )


def front(points: Iterable[Figures]) -> tuple[Figures, ...]:
    """Return the Pareto front of the points' means, lowest GPU time first.

    A point is on the front if no other point has both fewer violations and less GPU time.
    """
    best = math.inf
    pareto: list[Figures] = []
    for point in sorted(points, key=lambda p: (p.gpu_ratio, p.violations_pct, p.policy)):
        if point.violations_pct < best:
            pareto.append(point)
            best = point.violations_pct
    return tuple(pareto)


def overall(points: Mapping[Cell, Sequence[PolicyPoint]]) -> list[Overall]:
    """Return the overall result of each policy and setting that ran in all of the given cells.

    Only the first seed is used, because most points of a grid ran with only this seed.
    """
    by_policy: dict[str, list[RunOutcome]] = {}
    for cell_points in points.values():
        for point in cell_points:
            if point.outcomes:
                by_policy.setdefault(point.policy, []).append(point.outcomes[0])
    return [
        Overall(
            policy,
            sum(outcome.violations_pct for outcome in outcomes) / len(outcomes),
            math.exp(sum(math.log(outcome.gpu_ratio_clairvoyant) for outcome in outcomes) / len(outcomes)),
        )
        for policy, outcomes in by_policy.items()
        if len(outcomes) == len(points) and all(outcome.gpu_ratio_clairvoyant > 0 for outcome in outcomes)
    ]


def contenders(points: Sequence[PolicyPoint], slack: float) -> list[PolicyPoint]:
    """Return the points that might be on the Pareto front after more seeds.

    A point is omitted if another point's means are better in both figures by more than the share `slack`.
    """

    def hopeless(point: PolicyPoint) -> bool:
        most, gpu = point.violations_pct / (1 + slack), point.gpu_ratio / (1 + slack)
        return any(other.violations_pct < most and other.gpu_ratio < gpu for other in points)

    return [point for point in points if not hopeless(point)]


def excess(other: PolicyPoint, point: PolicyPoint) -> float:
    """Return the larger of two ratios: the violations of `other` to those of `point`, and the same for GPU time.

    If the result is at most 1, `other` is at least as good as `point` in both figures.
    """
    violations = max(other.violations_pct, _MIN_PCT) / max(point.violations_pct, _MIN_PCT)
    return max(violations, other.gpu_ratio / point.gpu_ratio)


def nearest(point: PolicyPoint, others: Iterable[PolicyPoint]) -> PolicyPoint:
    """Return the point in `others` with the smallest `excess` over `point`."""
    return min(others, key=lambda other: excess(other, point))


def rivals(point: PolicyPoint, others: Iterable[PolicyPoint], slack: float) -> list[PolicyPoint]:
    """Return the points in `others` that might be nearest to `point`, or better, after more seeds.

    Only these can affect the verdict on `point`. `slack` is the share by which more seeds may change an excess.
    """
    excesses = [(excess(other, point), other) for other in others]
    most = max(1.0, min((ratio for ratio, _ in excesses), default=1.0)) * (1 + slack)
    return [other for ratio, other in excesses if ratio <= most]


def deciding(point: PolicyPoint, peers: Sequence[PolicyPoint]) -> list[PolicyPoint]:
    """Return the points in `peers` that determine the verdict on `point`.

    These are the nearest point, and all points that are at least as good, by their means or in the paired comparison.
    """
    nearest_points = rivals(point, peers, 0.0)
    return [peer for peer in peers if peer in nearest_points or beats(peer, point)]


def standing(point: PolicyPoint, peers: Sequence[PolicyPoint]) -> str:
    """Return the verdict on a point: `behind`, `win`, `front` or `level`.

    - `behind`: a peer beats the point.
    - `win`: the point beats the nearest peer.
    - `front`: no peer is as good or better in both figures.
    - `level`: a peer is as good or better in both figures by its means, but not with 95 % confidence.
    """
    if any(beats(peer, point) for peer in peers):
        return "behind"
    if beats(point, nearest(point, peers)):
        return "win"
    ahead = all(peer.violations_pct > point.violations_pct or peer.gpu_ratio > point.gpu_ratio for peer in peers)
    return "front" if ahead else "level"


def plain(outcome: RunOutcome) -> dict[str, Any]:
    """Return an outcome as values for JSON. Infinities and NaN, as for a percentile without responses, become null."""
    return finite(asdict(outcome))


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping with None in place of floats that JSON can't represent."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in values.items()
    }


def _paired(point: PolicyPoint, other: PolicyPoint) -> list[tuple[RunOutcome, RunOutcome]]:
    second = {outcome.seed: outcome for outcome in other.outcomes}
    return [(outcome, second[outcome.seed]) for outcome in point.outcomes if outcome.seed in second]


def together(outcomes: Sequence[RunOutcome], *, scenario: str) -> RunOutcome:
    """Combine the outcomes of several models, simulated with the same seed, into one outcome.

    Requests, GPU time and the bounds with which it is compared are summed. Latencies, overshoot and settling time are
    those of the worst model. The number of changes of direction is the mean over the models.
    """
    requests = sum(outcome.requests for outcome in outcomes)

    def share(field: str) -> float:
        return float(sum(getattr(outcome, field) * outcome.requests for outcome in outcomes)) / max(requests, 1)

    def ratio(field: str) -> float:
        bounds = [outcome.gpu_seconds / getattr(outcome, field) for outcome in outcomes if getattr(outcome, field) > 0]
        return sum(outcome.gpu_seconds for outcome in outcomes) / sum(bounds) if bounds else math.nan

    settled = [outcome.settling_s for outcome in outcomes]
    values = [value for value in settled if value is not None]
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
        settling_s=max(values) if len(values) == len(settled) else None,
        pods_in_vain=sum(outcome.pods_in_vain for outcome in outcomes),
        reactive_floor_pct=share("reactive_floor_pct"),
    )
