"""What was read of servers, balancers and machines during a run, as plain values. Missing values are None, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Generic, TypeVar

Sample = TypeVar("Sample")


@dataclass(frozen=True)
class Counters:
    """Triton's counters of one model. Times are in seconds, summed over requests."""

    requests: float
    """Requests that were answered."""
    rows: float
    executions: float
    queue_s: float
    input_s: float
    model_s: float
    output_s: float

    def minus(self, other: Counters) -> Counters:
        """Return the difference, field by field."""
        return Counters(*(getattr(self, one.name) - getattr(other, one.name) for one in fields(Counters)))

    def plus(self, other: Counters) -> Counters:
        """Return the sum, field by field."""
        return Counters(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(Counters)))


@dataclass(frozen=True)
class SizeCounters:
    """Triton's counters of the executions with one number of rows."""

    executions: float
    input_s: float
    model_s: float
    output_s: float


@dataclass(frozen=True)
class Statistics:
    """The answer of the statistics extension for one model, over its versions."""

    counters: Counters
    sizes: Mapping[int, SizeCounters] = field(default_factory=dict)
    """Counters by rows of the batch."""


@dataclass(frozen=True)
class ServerConfig:
    """What the model's configuration says about its executions."""

    largest_batch: int | None = None
    """Rows of the largest batch; 1 for a model without batching."""
    instances: int | None = None
    max_queue_delay_s: float = 0.0
    steps: tuple[str, ...] = ()
    """Models of an ensemble's steps; empty for a model that executes itself."""
    keeps_state: bool = False
    """Whether its requests must form sequences."""


@dataclass(frozen=True)
class GpuSample:
    """Gauges of one GPU."""

    utilization: float | None = None
    memory: float | None = None
    memory_total: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """Counter of its energy."""


@dataclass(frozen=True)
class ServerSample:
    """One reading of a server's metrics."""

    at_s: float
    """Time in seconds since the measured part began."""
    counters: Counters | None = None
    gpus: Mapping[str, GpuSample] = field(default_factory=dict)
    pinned: float | None = None
    pinned_total: float | None = None
    machine_cpu: float | None = None
    """Used share of the machine's CPU, 0 to 1."""
    machine_memory: float | None = None


@dataclass(frozen=True)
class BalancerSample:
    """One reading of a balancer's metrics. Times are sums in seconds."""

    at_s: float
    requests: float | None = None
    request_s: float | None = None
    """Time from the arrival of the requests to the servers' headers."""
    responses: float | None = None
    response_s: float | None = None
    """The same without the wait in the balancer."""
    held: float | None = None
    """Requests that are held for a first replica."""
    queued: float | None = None
    """Requests in HAProxy's queues."""
    cpu_s: float | None = None


@dataclass(frozen=True)
class ProcessSample:
    """One reading of the processes of a server, with its children, and of its cgroup."""

    at_s: float
    cpu_s: float | None = None
    core_wait_s: float | None = None
    """Time in which their main threads waited for a core."""
    memory: float | None = None
    cpu_limit: float | None = None
    """Cores that it may use."""
    memory_limit: float | None = None
    periods: float | None = None
    """Periods of the scheduler with a limit of CPU."""
    throttled: float | None = None
    """Periods in which the limit held it back."""
    oom_kills: float | None = None


@dataclass(frozen=True)
class Readings(Generic[Sample]):
    """The samples of one source, oldest first."""

    pod: str
    samples: tuple[Sample, ...] = ()
    reason: str = ""
    """Why there are none."""


@dataclass(frozen=True)
class Series:
    """Values of a series of Prometheus as (seconds since the measured part began, value)."""

    name: str
    labels: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Observations:
    """Everything that was read besides the requests."""

    span_s: float = 0.0
    """Time in seconds between the first and the last reading of the measured part."""
    before: Statistics | None = None
    after: Statistics | None = None
    no_statistics: str = ""
    """Why there are no statistics."""
    config: ServerConfig = field(default_factory=ServerConfig)
    servers: tuple[Readings[ServerSample], ...] = ()
    balancers: tuple[Readings[BalancerSample], ...] = ()
    no_balancer: str = (
        "no address of a balancer's metrics is known; for example --balancer-metrics http://host:9100/metrics"
    )
    processes: tuple[Readings[ProcessSample], ...] = ()
    no_process: str = ""
    idle: tuple[Readings[ServerSample], ...] = ()
    """Samples before the load."""
    gpu_energy: tuple[Series, ...] = ()
    """DCGM's counters of energy, in mJ."""
    cpu_energy: tuple[Series, ...] = ()
    """Counters of the energy of the CPU, in J."""
    no_gpu_energy: str = ""
    no_cpu_energy: str = ""
    cpu_energy_source: str = ""
    sampling_cpu_s: float | None = None
