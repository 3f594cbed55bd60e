"""Samples of servers, balancers and machines taken during a run, as plain values. Missing values are None, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Generic, TypeVar

Sample = TypeVar("Sample")
RAPL = "RAPL"
"""Name of the series with the energy counters of the machine's CPU."""


@dataclass(frozen=True)
class Counters:
    """Triton's counters for one model. Times are in seconds, summed over all requests."""

    requests: float
    """Number of answered requests."""
    rows: float
    executions: float
    queue_s: float
    input_s: float
    model_s: float
    output_s: float

    def minus(self, other: Counters) -> Counters:
        """Return the difference of each field."""
        return Counters(*(getattr(self, counter.name) - getattr(other, counter.name) for counter in fields(Counters)))

    def plus(self, other: Counters) -> Counters:
        """Return the sum of each field."""
        return Counters(*(getattr(self, counter.name) + getattr(other, counter.name) for counter in fields(Counters)))


@dataclass(frozen=True)
class SizeCounters:
    """Triton's counters for the executions of one batch size. Times are in seconds, summed over the executions."""

    executions: float
    input_s: float
    model_s: float
    output_s: float


@dataclass(frozen=True)
class Statistics:
    """Response of Triton's statistics extension for one model, summed over its versions."""

    counters: Counters
    sizes: Mapping[int, SizeCounters] = field(default_factory=dict)
    """Counters by batch size in rows."""


@dataclass(frozen=True)
class ServerConfig:
    """Settings in the model's configuration that determine its executions."""

    largest_batch: int | None = None
    """Maximum batch size in rows; 1 for a model without batching."""
    instances: int | None = None
    max_queue_delay_s: float = 0.0
    steps: tuple[str, ...] = ()
    """Names of the models in the steps of an ensemble; empty for any other model."""
    keeps_state: bool = False
    """Whether requests must form sequences, because the model keeps state."""
    is_decoupled: bool = False
    """Whether the model may send several answers to one request."""
    optional: frozenset[str] = frozenset()
    """Names of the inputs that a request may omit."""
    most_rows: int | None = None
    """Maximum number of rows of a request; None for a model without batching."""


@dataclass(frozen=True)
class GpuSample:
    """Gauges of one GPU."""

    utilization: float | None = None
    memory: float | None = None
    memory_total: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """Counter of the GPU's energy, in joules."""


@dataclass(frozen=True)
class ServerSample:
    """One sample of a server's metrics."""

    at_s: float
    """Time in seconds since the measured part began."""
    counters: Counters | None = None
    gpus: Mapping[str, GpuSample] = field(default_factory=dict)
    pinned: float | None = None
    pinned_total: float | None = None
    machine_cpu: float | None = None
    """Used share of the machine's CPU, from 0 to 1."""
    machine_memory: float | None = None


@dataclass(frozen=True)
class BalancerSample:
    """One sample of a balancer's metrics. Times in seconds are sums over requests."""

    at_s: float
    requests: float | None = None
    request_s: float | None = None
    """Time from the arrival of requests to their response headers, in seconds."""
    responses: float | None = None
    response_s: float | None = None
    """Time from sending requests to a server until their response headers, in seconds."""
    held: float | None = None
    """Number of requests that are held until the first replica is ready."""
    queued: float | None = None
    """Number of requests in HAProxy's queues."""
    cpu_s: float | None = None


@dataclass(frozen=True)
class ProcessSample:
    """One sample of a server's processes, including child processes, and of their cgroup."""

    at_s: float
    cpu_s: float | None = None
    core_wait_s: float | None = None
    """Time that the main threads have waited for a core, in seconds."""
    memory: float | None = None
    cpu_limit: float | None = None
    """Maximum number of cores that the processes may use."""
    memory_limit: float | None = None
    periods: float | None = None
    """Number of scheduler periods in which a CPU limit applied."""
    throttled: float | None = None
    """Number of periods in which the CPU limit throttled the processes."""
    oom_kills: float | None = None


@dataclass(frozen=True)
class Readings(Generic[Sample]):
    """Samples of one source, oldest first."""

    pod: str
    samples: tuple[Sample, ...] = ()
    reason: str = ""
    """Reason why the last read of the source failed; empty if it succeeded. Samples from earlier reads are kept."""


@dataclass(frozen=True)
class Series:
    """One time series from Prometheus, as points (seconds since the measured part began, value)."""

    name: str
    labels: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Observations:
    """All samples and statistics that were read during a run, apart from the requests."""

    span_s: float = 0.0
    """Time in seconds between the first and the last sample of the measured part."""
    before: Statistics | None = None
    after: Statistics | None = None
    no_statistics: str = ""
    """Reason why there are no statistics of the server; empty if there are some."""
    config: ServerConfig = field(default_factory=ServerConfig)
    servers: tuple[Readings[ServerSample], ...] = ()
    balancers: tuple[Readings[BalancerSample], ...] = ()
    no_balancer: str = (
        "no address of a balancer's metrics is known; for example --balancer-metrics http://host:9100/metrics"
    )
    processes: tuple[Readings[ProcessSample], ...] = ()
    no_process: str = ""
    idle: tuple[Readings[ServerSample], ...] = ()
    """Samples taken before the load, from which the idle power is computed."""
    gpu_energy: tuple[Series, ...] = ()
    """DCGM's energy counters of the GPUs, in mJ."""
    cpu_energy: tuple[Series, ...] = ()
    """Energy counters of the CPUs, in J."""
    no_gpu_energy: str = ""
    no_cpu_energy: str = ""
    cpu_energy_source: str = ""
    sampling_cpu_s: float | None = None
