"""Types that the search and a measuring side exchange: a configuration, a load on it, and the measured point.

Out of scope: which point comes next (`search`), and the pod in which a point is measured (`halcyon_cli.bench`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

FailureKind = Literal["Memory", "Load", "Ended"]
"""Kind of a point's failure.

Memory: the model or a batch needs more memory than is available. Load: the model doesn't load with this configuration.
Ended: the server process ended, or its pod is gone.
"""


@dataclass(frozen=True, order=True, kw_only=True)
class Configuration:
    """Values of all fields that can be tuned."""

    instances: int = 1
    """Model instances per GPU, or per pod on CPU (`runtime.instancesPerGPU`)."""
    max_batch: int = 1
    """Maximum number of rows of a batch (`batching.maxBatchSize`); 1 without batching."""
    delay_s: float = 0.0
    """Longest wait for a fuller batch, in seconds (`batching.maxQueueDelay`)."""
    preferred: tuple[int, ...] = ()
    """Batch sizes that run without waiting for more rows (`batching.preferredBatchSizes`); empty if there are none."""
    threads: int | None = None
    """Threads of one instance (`model.parameters`); None if the backend chooses."""

    @property
    def family(self) -> tuple[int, int | None]:
        """Instances and threads.

        All configurations of a family have the same execution time for a batch of a given size.
        """
        return self.instances, self.threads

    def text(self) -> str:
        """Return the configuration in words, such as `2 instances, batch 16, delay 2 ms`."""
        parts = [f"{self.instances} instance" + ("s" if self.instances > 1 else ""), f"batch {self.max_batch}"]
        parts += [f"delay {1000 * self.delay_s:.3g} ms"] if self.delay_s else []
        parts += [f"preferred {', '.join(map(str, self.preferred))}"] if self.preferred else []
        parts += [f"{self.threads} thread" + ("s" if self.threads > 1 else "")] if self.threads else []
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Callers:
    """A load from callers, each of which sends its next request as soon as its last one is answered."""

    callers: int

    def text(self) -> str:
        """Return the load in words."""
        return f"{self.callers} caller" + ("s" if self.callers > 1 else "")


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A load of random (Poisson) arrivals at a mean rate."""

    rate_rps: float
    """Requests per second."""
    min_requests: int = 0
    """Minimum number of requests of the point; 0 if the measuring side chooses the duration."""

    def text(self) -> str:
        """Return the load in words."""
        return f"{self.rate_rps:.4g} requests/s"


Load = Callers | Rate


@dataclass(frozen=True, kw_only=True)
class Point:
    """Measurement of one load on one configuration. A failed point has only its failure and its duration."""

    configuration: Configuration
    load: Load
    seconds: float
    """Duration of the point, including the change of the configuration and the warm-up."""
    throughput_rps: float = 0.0
    """Answered requests per second."""
    mean_s: float = 0.0
    """Mean latency, counted from the time when each request was due."""
    p99_s: float = 0.0
    """99th percentile of the latency, in which a failed request counts as infinitely late."""
    requests: int = 0
    batches: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    """Executed batches by number of rows: (executions, total seconds), from Triton's statistics; empty if unknown."""
    rows_per_request: float = 1.0
    memory_bytes: int | None = None
    """Peak memory of the model's pod, or of its GPU; None if unknown."""
    power_w: float | None = None
    """Mean electrical power; None if unknown."""
    failure: FailureKind | None = None
    why: str = ""
    """Reason of the failure, in words."""

    def rules_out(self, configuration: Configuration) -> bool:
        """Return whether this point's failure means that a configuration would fail too.

        It would if it is the same configuration, or if memory was lacking and it has at least as many instances and
        rows per batch.
        """
        if self.failure is None:
            return False
        own = self.configuration
        is_as_large = configuration.max_batch >= own.max_batch and configuration.instances >= own.instances
        return configuration == own or (self.failure == "Memory" and is_as_large)


class Measuring(Protocol):
    """Interface of the component that measures points, one at a time."""

    def measure(self, configuration: Configuration, load: Load) -> Point:
        """Change to the configuration, put the load on it, and return the measured point.

        A configuration that doesn't load, needs too much memory or ends the server gives a point with `failure`.
        Further points can be measured after it.

        Raises:
            TuneError: no point can be measured any more.
            KeyboardInterrupt: the user ends the tuning. The point is lost, and the search ends with the best so far.
        """
        ...
