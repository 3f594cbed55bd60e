"""Baselines that no product uses: fixed replicas, the rate alone, and the planner's first sketch of thirty lines.

Source: the project's facts on autoscaling, section 7.5. Unlike the peers, baselines get the capacity of a replica and
the start time as inputs. If a metric is missing, the replicas don't change.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.policy_view import PolicyView, SampleColumn
from halcyon_simulator.policies.peers.metrics import usable
from halcyon_simulator.policies.peers.parameters import Count, NotNegative, Positive


@dataclass(frozen=True)
class StaticKnobs:
    """Setting of the policy with fixed replicas."""

    n: Count | None = None
    """Number of replicas. Default: the number that the case's busiest minute needs at 85 % of full batches, which
    requires foresight."""


class Static:
    """Policy that never changes the replicas."""

    def __init__(self, knobs: StaticKnobs, case: Case) -> None:
        self.knobs = knobs
        self.period_s = 60.0
        self._count = peak_count(case, utilisation=0.85) if knobs.n is None else knobs.n

    def desired(self, view: PolicyView) -> int:  # noqa: ARG002 -- the protocol's
        """Return the fixed replicas."""
        return self._count


@dataclass(frozen=True)
class RateKnobs:
    """Settings of the policy that divides the arrival rate by a replica's capacity."""

    window_s: Positive = 30.0
    """Window of the rate, in seconds."""
    utilisation: Positive = 0.85
    """Share of a replica's capacity to use."""
    capacity_rps: Positive | None = None
    """Capacity of a replica in requests per second. Default: its throughput with full batches."""
    tick_s: Positive = 2.0
    """Interval between two decisions, in seconds."""


class Rate:
    """Policy that uses the arrival rate alone, without the backlog."""

    def __init__(self, knobs: RateKnobs, case: Case) -> None:
        self.knobs = knobs
        self.period_s = knobs.tick_s
        self._per_replica = knobs.utilisation * (knobs.capacity_rps or case.service.peak_rps)

    def desired(self, view: PolicyView) -> int:
        """Return the replicas for the mean rate in the window."""
        rate = usable(view.rate(SampleColumn.ARRIVED, self.knobs.window_s))
        return view.replicas if rate is None else math.ceil(round(rate / self._per_replica, 9))


@dataclass(frozen=True)
class SketchKnobs:
    """Settings of the policy that uses the rate, the backlog and the trend, and delays scaling down."""

    window_s: Positive = 30.0
    """Window of the rate, in seconds."""
    utilisation: Positive = 0.85
    """Share of a replica's capacity to use for the rate."""
    capacity_rps: Positive | None = None
    """Capacity of a replica in requests per second. Default: its throughput with full batches."""
    start_s: NotNegative | None = None
    """Start time of a pod in seconds. The backlog is to be cleared in half of this time, and the trend is extrapolated
    over all of it. Default: the start time of the case."""
    hold_s: NotNegative | None = None
    """Time in seconds over which the largest result is used. Default: max(60, start_s)."""
    tick_s: Positive = 2.0
    """Interval between two decisions, in seconds."""


class Sketch:
    """Policy that uses the arrival rate, the backlog and the trend.

    The number of replicas is ceil(rate / (0.85 mu)) + ceil(backlog / (mu x start / 2)), where mu is the capacity of a
    replica. The rate includes its trend if the trend is significant.
    """

    def __init__(self, knobs: SketchKnobs, case: Case) -> None:
        self.knobs = knobs
        self.period_s = knobs.tick_s
        self._mu = knobs.capacity_rps or case.service.peak_rps
        self._start_s = case.start_s if knobs.start_s is None else knobs.start_s
        self._hold_s = max(60.0, self._start_s) if knobs.hold_s is None else knobs.hold_s
        self._recommendations: deque[tuple[float, int]] = deque()

    def desired(self, view: PolicyView) -> int:
        """Return the desired replicas, which are the largest result within the hold time."""
        window_s = self.knobs.window_s
        rate, longer = (usable(view.rate(SampleColumn.ARRIVED, w)) for w in (window_s, 2 * window_s))
        backlog = usable(view.value(SampleColumn.WAITING))
        if rate is None or longer is None or backlog is None:
            return view.replicas
        before = max(0.0, 2 * longer - rate)
        rise = rate - before
        # Two standard deviations of the difference of two Poisson counts.
        if rise > 2 * math.sqrt((rate + before) / window_s):
            rate += rise * self._start_s / window_s
        count = math.ceil(round(rate / (self.knobs.utilisation * self._mu), 9))
        count += math.ceil(round(backlog / (self._mu * max(1.0, self._start_s / 2)), 9))
        self._recommendations.append((view.now, count))
        while self._recommendations[0][0] < view.now - self._hold_s:
            self._recommendations.popleft()
        return max(replicas for _, replicas in self._recommendations)


def peak_count(case: Case, *, utilisation: float) -> int:
    """Return the replicas that the case's busiest minute needs, at a share of the throughput with full batches."""
    minutes = max(1, math.ceil(case.duration_s / 60))
    counts, _ = np.histogram(case.arrivals, bins=minutes, range=(0, 60 * minutes))
    return max(case.low, 1, math.ceil(round(float(counts.max()) / 60 / (utilisation * case.service.peak_rps), 9)))
