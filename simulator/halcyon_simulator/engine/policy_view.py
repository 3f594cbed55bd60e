"""A policy's view of a run: sampled once a second, delayed by the observation lag, with the case's signal faults applied.

Policies of every kind, including Halcyon's, see only this. Counters never decrease.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class SampleColumn(IntEnum):
    """One column of the samples; totals over all replicas and balancers of the model."""

    ARRIVED = 0
    """Counter: requests that reached the balancer, including rejected ones."""
    REFUSED = 1
    """Counter: requests rejected."""
    ANSWERED = 2
    """Counter: requests answered."""
    WAITING = 3
    """Gauge: requests that wait, in the balancer and in Triton."""
    INFLIGHT = 4
    """Gauge: requests in the system, waiting or being computed."""
    BUSY_S = 5
    """Counter: seconds of computing of all instances together (instances of one replica computing at once count each)."""
    QUEUE_S = 6
    """Counter: seconds that requests waited in Triton's own queue (not the balancer's), summed over requests, added when they start."""
    READY = 7
    """Gauge: ready replicas."""


@dataclass(frozen=True)
class PolicyPod:
    """One pod, as in its API object; never delayed."""

    name: int
    phase: str
    """`unschedulable`, `starting`, `ready` or `draining`."""
    created_s: float
    ready_s: float | None = None
    """Time at which it became ready; None before."""


class PolicyView(Protocol):
    """The present state for a policy; times in s since the start of the case.

    `now` is the time of the tick; `replicas` are those last written (spec.replicas). Samples lie at whole seconds up to `now` less the
    observation lag. Before time 0 the run is as if the first second's load had always been present.
    """

    @property
    def now(self) -> float:
        """Time of this tick."""

    @property
    def replicas(self) -> int:
        """Replicas that were last written."""

    @property
    def pods(self) -> tuple[PolicyPod, ...]:
        """All existing pods, oldest first."""

    def value(self, signal: SampleColumn) -> float | None:
        """Return the newest sample; None if it is missing."""

    def mean(self, signal: SampleColumn, window_s: float) -> float | None:
        """Return the mean of a gauge's samples in the last `window_s`; None if all are missing."""

    def rate(self, signal: SampleColumn, window_s: float) -> float | None:
        """Return the increase of a counter per second over the last `window_s`; None if fewer than two samples are known."""

    def sampled_at(self) -> float | None:
        """Return the time of the newest sample that is not missing, by its timestamp (which is wrong for a frozen one)."""

    def batches(self) -> Mapping[int, tuple[int, float]]:
        """Return the cumulative (executions, seconds of computing) by batch size, as in Triton's `batch_stats`, for all pods so far."""


class Policy(Protocol):
    """A scaler. There is one object per run. It may keep state between its ticks, but knows only what `PolicyView` provides."""

    period_s: float
    """Interval of the ticks, which start at time 0."""

    def desired(self, view: PolicyView) -> int:
        """Return the replicas to write now; the run clamps them to the case's limits and writes them if they differ."""
