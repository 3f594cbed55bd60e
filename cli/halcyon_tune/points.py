"""A configuration, a load on it, and what was measured: what the search and the side that measures exchange.

Out of scope: which point comes next (`search`), and the pod in which a point is measured (`halcyon_cli.bench`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

FailureKind = Literal["Memory", "Load", "Ended"]
"""Memory: the model or a batch needs more memory than there is. Load: the model doesn't load with this configuration.
Ended: the server has ended, or its pod is gone."""


@dataclass(frozen=True, order=True, kw_only=True)
class Configuration:
    """Values of all fields that may be tuned."""

    instances: int = 1
    """Model instances per GPU, or per pod on CPU (`runtime.instancesPerGPU`)."""
    max_batch: int = 1
    """Rows of the largest batch (`batching.maxBatchSize`); 1 without batching."""
    delay_s: float = 0.0
    """Longest wait for a fuller batch, in seconds (`batching.maxQueueDelay`)."""
    preferred: tuple[int, ...] = ()
    """Batch sizes that are formed at once (`batching.preferredBatchSizes`); empty for none."""
    threads: int | None = None
    """Threads of one instance (`model.parameters`); None if the backend decides."""

    @property
    def family(self) -> tuple[int, int | None]:
        """Instances and threads. Configurations of one family have the same time for a batch of one size."""
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
    """A load of callers, each of which sends its next request when it has its answer."""

    callers: int

    def text(self) -> str:
        """Return the load in words."""
        return f"{self.callers} caller" + ("s" if self.callers > 1 else "")


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A load of random (Poisson) arrivals."""

    rate_rps: float
    """Requests per second."""
    min_requests: int = 0
    """Requests that the point needs at least; 0 leaves its length to the side that measures."""

    def text(self) -> str:
        """Return the load in words."""
        return f"{self.rate_rps:.4g} requests/s"


Load = Callers | Rate


@dataclass(frozen=True, kw_only=True)
class Point:
    """What one load on one configuration showed. A failed point has only its failure and its time."""

    configuration: Configuration
    load: Load
    seconds: float
    """Time that the point took, with the change of the configuration and the warm-up."""
    throughput_rps: float = 0.0
    """Answered requests per second."""
    mean_s: float = 0.0
    """Mean latency, from the time when a request was due."""
    p99_s: float = 0.0
    """99th percentile of the latency; failed requests count as infinitely late."""
    requests: int = 0
    batches: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    """Executed batches by their rows: (executions, seconds of all of them), from Triton's statistics; empty if unknown."""
    rows_per_request: float = 1.0
    memory_bytes: int | None = None
    """Memory of the model's pod, or of its GPU, at its peak; None if unknown."""
    power_w: float | None = None
    """Mean electrical power; None if unknown."""
    failure: FailureKind | None = None
    why: str = ""
    """Reason of the failure, in words."""

    def rules_out(self, configuration: Configuration) -> bool:
        """Return whether a configuration would fail as this point has: itself, and without memory all that need as much."""
        if self.failure is None:
            return False
        own = self.configuration
        is_as_large = configuration.max_batch >= own.max_batch and configuration.instances >= own.instances
        return configuration == own or (self.failure == "Memory" and is_as_large)


class Measuring(Protocol):
    """The side that measures points, one after the other."""

    def measure(self, configuration: Configuration, load: Load) -> Point:
        """Change to the configuration, put the load on it, and return what it showed.

        A configuration that doesn't load, has too little memory or ends the server gives a point with `failure`; the next
        point can be measured after it.

        Raises:
            TuneError: no point can be measured any more.
            KeyboardInterrupt: the user ends the tuning. The point is lost, and the search ends with the best so far.
        """
        ...
