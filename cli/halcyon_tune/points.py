"""Configurations of a model, loads, and points. A point is the measurement of one configuration under one load.

The module also has the interface of the component that measures. Out of scope: choosing the next point (`search`), and
the pod in which a point is measured (`halcyon_cli.bench`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from halcyon_measure.results.number_text import significant

FailureKind = Literal["Memory", "Load", "Ended"]
"""Kind of failure of a measurement. Memory: the model or a batch needs more memory than is available. Load: the model
doesn't load with this configuration. Ended: the server process has ended, or its pod no longer exists."""


@dataclass(frozen=True, order=True, kw_only=True)
class Configuration:
    """Values of all settings of a model that can be tuned."""

    instances: int = 1
    """Number of model instances on each GPU, or in each pod on CPU (`runtime.instancesPerGPU`)."""
    max_batch: int = 1
    """Maximum number of rows in a batch (`batching.maxBatchSize`); 1 without batching."""
    delay_s: float = 0.0
    """Maximum time that a request waits for a fuller batch, in seconds (`batching.maxQueueDelay`)."""
    preferred: tuple[int, ...] = ()
    """Batch sizes that are executed without waiting for more rows (`batching.preferredBatchSizes`); empty if there are
    none."""
    threads: int | None = None
    """Number of threads of each instance (`model.parameters`); None if the backend chooses the number."""

    @property
    def family(self) -> tuple[int, int | None]:
        """Number of instances, and number of threads of each instance.

        All configurations with the same numbers have the same execution times for batches of the same size.
        """
        return self.instances, self.threads

    def text(self) -> str:
        """Return the configuration in words, for example `2 instances, batch 16, delay 2 ms`."""
        parts = [f"{self.instances} instance" + ("s" if self.instances > 1 else ""), f"batch {self.max_batch}"]
        parts += [f"delay {significant(1000 * self.delay_s, 3)} ms"] if self.delay_s else []
        parts += [f"preferred {', '.join(map(str, self.preferred))}"] if self.preferred else []
        parts += [f"{self.threads} thread" + ("s" if self.threads > 1 else "")] if self.threads else []
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Callers:
    """Load from several callers, each of which sends its next request as soon as its last request is answered."""

    callers: int

    def text(self) -> str:
        """Return the load in words, with its number of callers."""
        return f"{self.callers} caller" + ("s" if self.callers > 1 else "")


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Load of requests that arrive at random (Poisson) times with a mean rate."""

    rate_rps: float
    """Mean rate of the arrivals in requests per second."""
    min_requests: int = 0
    """Minimum number of requests of the measurement; 0 if the measuring component chooses the duration."""
    min_s: float = 0.0
    """Minimum duration of the measurement, in seconds."""

    def text(self) -> str:
        """Return the load in words, with its rate."""
        return f"{significant(self.rate_rps, 4)} requests/s"


Load = Callers | Rate


@dataclass(frozen=True, kw_only=True)
class Point:
    """Measurement of one configuration under one load.

    If the measurement failed, it has only its failure and its duration.
    """

    configuration: Configuration
    load: Load
    seconds: float
    """Duration of the measurement in seconds, including the change of the configuration and the warm-up."""
    throughput_rps: float = 0.0
    """Number of answered requests per second."""
    mean_s: float = 0.0
    """Mean latency in seconds, counted from the time at which each request was due."""
    p99_s: float = 0.0
    """99th percentile of the latency in seconds. A failed request counts as infinitely late."""
    requests: int = 0
    offered_rps: float = 0.0
    """Number of requests per second that were due; 0 if unknown. It differs from the mean rate of the load by
    chance."""
    late_p99_s: float = 0.0
    """99th percentile of the delay between the due time of a request and its sending, in seconds. It is negligible
    unless the client limited the load."""
    batches: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    """Number of executed batches and their total time in seconds, by number of rows, from Triton's statistics; empty if
    unknown.
    """
    rows_per_request: float = 1.0
    memory_bytes: int | None = None
    """Peak memory of the model's pod or of its GPU, in bytes; None if unknown."""
    power_w: float | None = None
    """Mean electrical power in watts; None if unknown."""
    failure: FailureKind | None = None
    why: str = ""
    """Reason for the failure of the measurement, in words."""

    def rules_out(self, configuration: Configuration) -> bool:
        """Return whether the failure of this measurement means that another configuration would fail, too.

        The result is true for the same configuration. If memory was insufficient, it is also true for a configuration
        with at least as many instances and rows per batch.
        """
        if self.failure is None:
            return False
        own = self.configuration
        is_as_large = configuration.max_batch >= own.max_batch and configuration.instances >= own.instances
        return configuration == own or (self.failure == "Memory" and is_as_large)


class Measuring(Protocol):
    """Interface of the component that measures configurations, one at a time."""

    def measure(self, configuration: Configuration, load: Load) -> Point:
        """Change the model to the configuration, put the load on it, and return the measurement.

        If the configuration doesn't load, needs too much memory or ends the server, the result has a `failure`. Other
        configurations can still be measured afterwards.

        Raises:
            TuneError: no further measurements are possible.
            KeyboardInterrupt: the user ends the tuning. This measurement is lost; the search ends with the best result
                so far.
        """
        ...
