"""Interface between a run and a policy: signals sampled once a second, with the observation lag and the signal faults.

Policies, including Halcyon's, receive no other input. Counters never decrease.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class SampleColumn(IntEnum):
    """Index of a signal in the samples. Values are totals over all replicas and balancers of the model."""

    ARRIVED = 0
    """Counter of requests that reached the balancer, including rejected ones."""
    REFUSED = 1
    """Counter of rejected requests."""
    ANSWERED = 2
    """Counter of responses."""
    WAITING = 3
    """Gauge of requests that wait in the balancer or in Triton."""
    INFLIGHT = 4
    """Gauge of requests in the system, waiting or being computed."""
    BUSY_S = 5
    """Counter of compute time in seconds, summed over all instances, including instances of the same replica."""
    QUEUE_S = 6
    """Counter of the time that requests waited in Triton's queue, in seconds. It doesn't include waiting in the
    balancer. It increases when the execution of a request starts."""
    READY = 7
    """Gauge of ready replicas."""
    QUEUED = 8
    """Gauge of requests that wait in the balancer."""


@dataclass(frozen=True)
class PolicyPod:
    """One pod, with the fields that its API object would have, without observation lag."""

    name: int
    phase: str
    """Phase of the pod: `unschedulable`, `starting`, `ready` or `draining`."""
    created_s: float
    ready_s: float | None = None
    """Time at which the pod became ready; None if it has not been ready yet."""


class PolicyView(Protocol):
    """Current state of a run for a policy. Times are in seconds since the start of the simulation case.

    Samples are taken at whole seconds, up to `now` minus the observation lag. Before time 0, signals have values as if
    the load of the first 30 seconds had always been present.
    """

    @property
    def now(self) -> float:
        """Time of the current tick, in seconds."""

    @property
    def replicas(self) -> int:
        """Replicas that were last written to spec.replicas."""

    @property
    def pods(self) -> tuple[PolicyPod, ...]:
        """All existing pods, oldest first."""

    def value(self, signal: SampleColumn) -> float | None:
        """Return the newest value of a signal, or None if the sample is missing."""

    def mean(self, signal: SampleColumn, window_s: float) -> float | None:
        """Return the mean of a gauge over the last `window_s` seconds, or None if all its samples are missing."""

    def rate(self, signal: SampleColumn, window_s: float) -> float | None:
        """Return the increase per second of a counter over the last `window_s` seconds.

        The result is None if fewer than two samples are known.
        """

    def sampled_at(self) -> float | None:
        """Return the timestamp of the newest sample that isn't missing.

        In a frozen span, the timestamp is current although the values are old.
        """

    def batches(self) -> Mapping[int, tuple[int, float]]:
        """Return the cumulative (executions, seconds of computing) by batch size, as in Triton's `batch_stats`.

        The counts include all pods of the run so far.
        """


class Policy(Protocol):
    """Scaling policy, with one instance per run. It may keep state, and its only input is a `PolicyView`."""

    period_s: float
    """Interval between ticks in seconds. The first tick is at time 0."""

    def desired(self, view: PolicyView) -> int:
        """Return the desired replicas. The run limits them to the case's range, and writes them if changed."""
