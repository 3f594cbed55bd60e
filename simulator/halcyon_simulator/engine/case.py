"""Definition of a simulation case: service law of a replica, pods, faults and load. All are plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
"""Times in seconds since the start of a simulation case, in ascending order."""


@dataclass(frozen=True)
class ServiceLaw:
    """Compute time of a replica. A batch of b requests takes t0_s + a_s x b seconds on one instance.

    If `times_s` is given, it contains the durations of batches instead, for models whose times aren't linear.

    If `shared` is true, a replica executes up to `instances` requests at once, without batches. While b requests are
    executed, each advances as if it took t0_s + a_s x b seconds. If t0_s is 0, this is processor sharing. If both are
    above 0, it is like token generation, in which a step takes longer if there are more streams.
    """

    t0_s: float
    a_s: float
    max_batch: int
    instances: int = 1
    delay_s: float = 0.0
    """Maximum time that Triton's batcher waits for a fuller batch, in seconds (`max_queue_delay_microseconds`)."""
    shared: bool = False
    """Whether a replica executes several requests at once, which share it. A batch then has one request."""
    reported_s: float | None = None
    """Time of each batch in Triton's statistics, in seconds; None if it is the true time.

    A number is for models that respond after their function `execute` has returned. Triton then counts a request as
    executed immediately, so that no request waits in its statistics. With 0, the statistics contain no batches either.
    """
    lock: float | None = None
    """Number of batches that all replicas together can execute at full speed, for replicas that share a lock, a database
    or a GPU. If more are executed at once, each takes proportionally longer. None if there is no such limit."""
    lock_reported: bool = True
    """Whether Triton's statistics include the time that a batch waits for the shared lock."""
    times_s: tuple[float, ...] = ()
    """Durations of batches with 1, 2, ... and `max_batch` requests, in seconds; empty if `t0_s` and `a_s` apply."""

    def seconds(self, batch: int) -> float:
        """Return the duration of a batch with this number of requests, in seconds."""
        return self.times_s[batch - 1] if self.times_s and batch > 0 else self.t0_s + self.a_s * batch

    @property
    def peak_rps(self) -> float:
        """Requests per second of one replica with full batches, the upper limit of its throughput."""
        return self.instances * self.max_batch / self.seconds(self.instances if self.shared else self.max_batch)


@dataclass(frozen=True)
class Drift:
    """Slow change of the service time. Its factor changes linearly from 1 at `begin_s` to `factor` at `end_s`."""

    begin_s: float
    end_s: float
    factor: float


@dataclass(frozen=True)
class StartFaults:
    """Faults that happen while pods start."""

    slow_share: float = 0.0
    """Share of the pod starts that take `slow_factor` times as long."""
    slow_factor: float = 3.0
    crash_share: float = 0.0
    """Share of the pod starts that crash once, at the end of the start, and restart from the beginning."""
    no_capacity: tuple[tuple[float, float], ...] = ()
    """Time spans as (from, until) in seconds in which new pods are unschedulable and hold no GPU."""


@dataclass(frozen=True)
class SignalFaults:
    """Faults in the signals that a policy receives. They are the same for all policies."""

    noise: float = 0.0
    """Standard deviation of a random factor with mean 1, by which gauges and the increases of counters are
    multiplied."""
    missing_share: float = 0.0
    """Share of the samples that are missing at random, from 0 to 1."""
    frozen: tuple[tuple[float, float], ...] = ()
    """Time spans as (from, until) in seconds in which every sample repeats the last one before the span, with a current
    timestamp."""
    absent: tuple[tuple[float, float], ...] = ()
    """Time spans as (from, until) in seconds in which there are no samples."""


@dataclass(frozen=True)
class Case:
    """Simulation case: everything that a run needs except the policy."""

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
    """Number of replicas that are ready at time 0; None for the number that the load of the first minute needs at 70 %
    of `peak_rps`."""
    queue_limit: int | None = None
    """Maximum number of requests that wait at the balancer, which rejects further ones; None for no limit."""
    refuse_late: bool = False
    """Whether the balancer rejects requests on arrival if it expects them to miss `slo_s`."""
    slots: int | None = None
    """Maximum number of requests in flight to one replica. Default: 2 x max_batch x instances, the minimum that the
    HAProxy agent uses with one balancer."""
    observation_lag_s: float = 0.0
    actuation_delay_s: float = 0.0
    score_from_s: float = 0.0
    """Time in seconds from which requests are scored. Before it, policies can learn and fill their windows."""
    drift: Drift | None = None
    start_faults: StartFaults = field(default_factory=StartFaults)
    signal_faults: SignalFaults = field(default_factory=SignalFaults)
    seed: int = 0
    """Seed for the random parts of the run: faults and noise. The arrivals are generated beforehand, with another
    seed."""


@dataclass(frozen=True)
class RunOutcome:
    """Result of one run. The fields have the same names and units as in the JSON output."""

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
    """Maximum number of replicas, divided by the maximum of the clairvoyant schedule."""
    settling_s: float | None
    """Time from the last step of the load until the replicas stay within 10 % of their final value; None if they don't
    settle."""
    pods_in_vain: int
    """Number of pods that were released after they had been ready for less time than their start took."""
    reactive_floor_pct: float
    """Percentage of requests above the capacity that a policy without foresight could have had ready. Such a policy
    reacts with a delay of one start time."""
