"""Definition of a simulation case: service law of a replica, pods, faults and load. All are plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
"""Ascending times in seconds since the start of a case."""


@dataclass(frozen=True)
class ServiceLaw:
    """Compute time of a replica: a batch of b requests takes t0_s + a_s x b seconds on one instance.

    With `shared`, a replica executes up to `instances` requests at once, without batches. While b requests are executed, each
    advances as if it took t0_s + a_s x b seconds. With t0_s = 0 this is processor sharing. With both it is a stream of tokens:
    prefill and decode steps that take longer the more streams there are.
    """

    t0_s: float
    a_s: float
    max_batch: int
    instances: int = 1
    delay_s: float = 0.0
    """Maximum time that Triton's batcher waits for a fuller batch, in seconds (`max_queue_delay_microseconds`)."""
    shared: bool = False
    """True if requests are executed at once and share the replica. Batches then have one request."""
    reported_s: float | None = None
    """Time of each batch in Triton's statistics, in seconds; None if it is the true time. Models that answer after
    `execute` has returned report less. With 0, no batch is reported, and Triton counts a request as executed at once.
    So no request waits in Triton, and its configuration has one instance."""
    lock: float | None = None
    """Number of batches that all replicas together can execute at full speed, because they share a lock, a database or
    a GPU. If more are executed, each takes longer in proportion. None if there is no such limit."""
    lock_reported: bool = True
    """True if Triton's statistics include the time that a batch waits for the lock."""

    def seconds(self, batch: int) -> float:
        """Return the duration of a batch of this size, in seconds."""
        return self.t0_s + self.a_s * batch

    @property
    def peak_rps(self) -> float:
        """Requests per second of one replica with full batches, the upper limit of its throughput."""
        return self.instances * self.max_batch / self.seconds(self.instances if self.shared else self.max_batch)


@dataclass(frozen=True)
class Drift:
    """A slow change of the service time. Its factor changes linearly from 1 at `begin_s` to `factor` at `end_s`."""

    begin_s: float
    end_s: float
    factor: float


@dataclass(frozen=True)
class StartFaults:
    """Faults while pods start."""

    slow_share: float = 0.0
    """Share of the starts that take `slow_factor` times as long."""
    slow_factor: float = 3.0
    crash_share: float = 0.0
    """Share of the starts that crash once, at their end, and restart from the beginning."""
    no_capacity: tuple[tuple[float, float], ...] = ()
    """Time spans as (from, until) in seconds, in which new pods are unschedulable and hold no GPU."""


@dataclass(frozen=True)
class SignalFaults:
    """Faults in the signals that a policy receives. They are the same for all policies."""

    noise: float = 0.0
    """Standard deviation of a random factor with mean 1, applied to gauges and to the increases of counters."""
    missing_share: float = 0.0
    """Share of the samples that are missing."""
    frozen: tuple[tuple[float, float], ...] = ()
    """Time spans as (from, until) in which every sample repeats the last one before the span, with a current
    timestamp."""
    absent: tuple[tuple[float, float], ...] = ()
    """Time spans as (from, until) without samples."""


@dataclass(frozen=True)
class Case:
    """One simulation case: everything except the policy."""

    name: str
    arrivals: Times
    duration_s: float
    service: ServiceLaw
    slo_s: float
    """Latency objective in seconds, from arrival to response. Requests that take longer, or are rejected, are
    violations."""
    start_s: float
    """Time from the creation of a pod until it is ready, in seconds."""
    low: int = 1
    high: int = 100
    first: int | None = None
    """Number of replicas ready at time 0. Default: as many as the load of the first minute needs at 70 % of
    `peak_rps`."""
    queue_limit: int | None = None
    """Maximum number of requests waiting at the balancer, which rejects further ones; None means no limit."""
    refuse_late: bool = False
    """True if the balancer rejects requests on arrival that it expects to miss `slo_s`."""
    slots: int | None = None
    """Maximum number of requests in flight to one replica. Default: 2 x max_batch x instances, the minimum that the
    HAProxy agent uses with one balancer."""
    observation_lag_s: float = 0.0
    actuation_delay_s: float = 0.0
    score_from_s: float = 0.0
    """Time in seconds before which nothing is scored, because policies learn or fill their windows."""
    drift: Drift | None = None
    start_faults: StartFaults = field(default_factory=StartFaults)
    signal_faults: SignalFaults = field(default_factory=SignalFaults)
    seed: int = 0
    """Seed for the randomness of the run: faults and noise. The arrivals are drawn beforehand, with another seed."""


@dataclass(frozen=True)
class RunOutcome:
    """Result of one run. Names and units are those of the JSON output."""

    scenario: str
    policy: str
    params: Mapping[str, float | str]
    seed: int
    requests: int
    violations_pct: float
    refused_pct: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    gpu_seconds: float
    gpu_ratio_work: float
    """GPU-seconds divided by the GPU-seconds that the requests need in full batches."""
    gpu_ratio_clairvoyant: float
    """GPU-seconds divided by those of the clairvoyant schedule (`bounds.clairvoyant`)."""
    direction_changes_per_h: float
    overshoot: float
    """Maximum number of replicas divided by that of the clairvoyant schedule."""
    settling_s: float | None
    """Time from the last step of the load until the replicas stay within 10 % of their final value; None if they don't
    settle."""
    pods_in_vain: int
    """Number of pods that were released before they had been ready for as long as they took to start."""
    reactive_floor_pct: float
    """Percentage of requests above the capacity of the pods that a policy without foresight could have had. The delay
    is one start time."""
