"""What a policy sees of a run: sampled once a second, late by the observation lag, with the case's signal faults applied.

Policies of every kind, Halcyon's too, look through this and through nothing else. Counters only rise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class SampleColumn(IntEnum):
    """One column of the samples; totals over all replicas and balancers of the model."""

    ARRIVED = 0
    """Counter: requests that reached the balancer, refused ones included."""
    REFUSED = 1
    """Counter: requests refused."""
    ANSWERED = 2
    """Counter: requests answered."""
    WAITING = 3
    """Gauge: requests that wait, in the balancer and in Triton."""
    INFLIGHT = 4
    """Gauge: requests in the system: those that wait and those that are computed."""
    BUSY_S = 5
    """Counter: seconds of computing of all instances together (instances of one replica computing at once count each)."""
    QUEUE_S = 6
    """Counter: seconds that requests waited in Triton's own queue (not the balancer's), summed over requests, at their start."""
    READY = 7
    """Gauge: ready replicas."""


@dataclass(frozen=True)
class PolicyPod:
    """One pod, as its API object tells; never late."""

    name: int
    phase: str
    """`unschedulable`, `starting`, `ready` or `draining`."""
    created_s: float
    ready_s: float | None = None
    """When it became ready; None before."""


class PolicyView(Protocol):
    """The present state for a policy; times in s since the start of the case.

    `now` is the time of the tick; `replicas` the count that was last written (spec.replicas). Samples lie at whole seconds
    up to `now` less the observation lag; before time 0 the run is as if the first second's load had always been there.
    """

    @property
    def now(self) -> float:
        """Time of this tick."""

    @property
    def replicas(self) -> int:
        """The count that was last written."""

    @property
    def pods(self) -> tuple[PolicyPod, ...]:
        """Every pod that exists, oldest first."""

    def value(self, signal: SampleColumn) -> float | None:
        """The newest sample; None where it is missing."""

    def mean(self, signal: SampleColumn, window_s: float) -> float | None:
        """Mean of a gauge's samples in the last `window_s`; None where all are missing."""

    def rate(self, signal: SampleColumn, window_s: float) -> float | None:
        """Increase of a counter per second over the last `window_s`; None where fewer than two samples are known."""

    def sampled_at(self) -> float | None:
        """Time of the newest sample that is not missing, as its timestamp says (a frozen one lies)."""

    def batches(self) -> Mapping[int, tuple[int, float]]:
        """Cumulative (executions, seconds of computing) by batch size, as Triton's `batch_stats`, all pods that ever were."""


class Policy(Protocol):
    """A scaler. One object per run; it may keep state between its ticks, but knows nothing that `PolicyView` doesn't tell."""

    period_s: float
    """It is asked at multiples of this from time 0."""

    def desired(self, view: PolicyView) -> int:
        """The count to write now; the run clamps it to the case's limits and writes it where it differs."""
