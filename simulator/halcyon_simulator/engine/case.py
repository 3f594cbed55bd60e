"""Definition of a simulation: the service law of a replica, the pods, the faults, the load. Plain values without behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
"""Ascending times in seconds from the start of a case."""


@dataclass(frozen=True)
class ServiceLaw:
    """Computing time of a replica: a batch of b requests takes t0_s + a_s x b on one instance."""

    t0_s: float
    a_s: float
    max_batch: int
    instances: int = 1
    delay_s: float = 0.0
    """Maximum time that Triton's batcher waits for a fuller batch (`max_queue_delay_microseconds`)."""

    def seconds(self, batch: int) -> float:
        """Return the duration of one batch."""
        return self.t0_s + self.a_s * batch

    @property
    def peak_rps(self) -> float:
        """Requests per second of one replica with full batches; no replica can exceed it."""
        return self.instances * self.max_batch / self.seconds(self.max_batch)


@dataclass(frozen=True)
class Drift:
    """A slow change of the service time: the factor changes linearly from 1 at `begin_s` to `factor` at `end_s`."""

    begin_s: float
    end_s: float
    factor: float


@dataclass(frozen=True)
class StartFaults:
    """Faults during the start of pods."""

    slow_share: float = 0.0
    """Share of the starts that take `slow_factor` times as long."""
    slow_factor: float = 3.0
    crash_share: float = 0.0
    """Share of the starts that crash once at their end and restart from the beginning."""
    no_capacity: tuple[tuple[float, float], ...] = ()
    """(from, until) spans in s in which a new pod stays unschedulable (holds no GPU)."""


@dataclass(frozen=True)
class SignalFaults:
    """Faults in the signals that policies see; the same for all policies."""

    noise: float = 0.0
    """Standard deviation of a factor around 1 on gauges and on the increase of counters."""
    missing_share: float = 0.0
    """Share of the samples that are absent."""
    frozen: tuple[tuple[float, float], ...] = ()
    """(from, until) spans in which every sample repeats the one before the span, with a new time."""
    absent: tuple[tuple[float, float], ...] = ()
    """(from, until) spans without samples."""


@dataclass(frozen=True)
class Case:
    """One simulation, without the policy."""

    name: str
    arrivals: Times
    duration_s: float
    service: ServiceLaw
    slo_s: float
    """Latency objective: a request that takes longer from arrival to response, or is rejected, is a violation."""
    start_s: float
    """Time from the creation of a pod until it is ready."""
    low: int = 1
    high: int = 100
    first: int | None = None
    """Replicas ready at time 0; None: those that the load of the first minute needs at 70 % of `peak_rps`."""
    queue_limit: int | None = None
    """Number of waiting requests above which the balancer rejects; None: no limit."""
    refuse_late: bool = False
    """Whether the balancer rejects a request on arrival that it expects to miss `slo_s`."""
    slots: int | None = None
    """Maximum requests in flight to one replica; None: 2 x max_batch x instances, the HAProxy agent's own rule for one balancer's minimum."""
    observation_lag_s: float = 0.0
    actuation_delay_s: float = 0.0
    score_from_s: float = 0.0
    """Time before which nothing is scored (learning, history)."""
    drift: Drift | None = None
    start_faults: StartFaults = field(default_factory=StartFaults)
    signal_faults: SignalFaults = field(default_factory=SignalFaults)
    seed: int = 0
    """Seed for all randomness in the run itself (faults, noise); the arrivals are drawn before."""


@dataclass(frozen=True)
class RunOutcome:
    """Result of one run; names and units are those of the JSON."""

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
    """GPU-seconds divided by the busy time that full batches would have needed."""
    gpu_ratio_clairvoyant: float
    """GPU-seconds divided by those of the clairvoyant schedule (`clairvoyant`)."""
    direction_changes_per_h: float
    overshoot: float
    """Largest number of replicas divided by that of the clairvoyant schedule."""
    settling_s: float | None
    """Time from the last step of the load until the replicas stay within 10 % of their final value; None if they never do."""
    pods_in_vain: int
    """Pods that were released before they had served as long as they took to start."""
    reactive_floor_pct: float
    """Requests above the capacity of the present pods during one start time; no policy without foresight can avoid them."""
