"""Observation of one model while the demo runs: its replicas, and the signals that its HPA receives."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from demo.kube import Kube, is_ready

SAMPLE_INTERVAL_S = 0.5


@dataclass(frozen=True, kw_only=True)
class ModelSample:
    """Sample of the model. `queue` and `gpu_percent` are sums over the pods; None if the metrics API has no value."""

    at_s: float
    replicas: int
    ready: int
    pods: int
    queue: float | None
    gpu_percent: float | None

    @property
    def gpu_mean_percent(self) -> float | None:
        """Return the mean GPU utilization over the pods, as the HPA computes it.

        Starting pods are included with the values that the metrics API reports for them.
        """
        return None if self.gpu_percent is None or not self.pods else self.gpu_percent / self.pods


@dataclass(frozen=True, kw_only=True)
class Change:
    """Change of the replicas in the scale subresource; `sample` is the first observation that shows it."""

    sample: ModelSample
    before: int
    after: int


class Watch:
    """Thread that observes the model every half second while this context is open. Times are monotonic."""

    def __init__(self, kube: Kube, name: str, *, on_sample: Callable[[ModelSample], None] | None = None) -> None:
        self.name = name
        self.latest: ModelSample | None = None
        self.changes: list[Change] = []
        self.most = 0
        """Largest number of Ready pods observed."""
        self._kube, self._on_sample = kube, on_sample
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def first_change(self, *, since_s: float, up: bool) -> Change | None:
        """Return the first increase (or decrease, if `up` is False) observed after a time."""
        return next((c for c in self.changes if c.sample.at_s >= since_s and (c.after > c.before) is up), None)

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stop.is_set():
            sample = self._sample()
            if sample is not None:
                if self.latest is not None and sample.replicas != self.latest.replicas:
                    self.changes.append(Change(sample=sample, before=self.latest.replicas, after=sample.replicas))
                self.latest = sample
                self.most = max(self.most, sample.ready)
                if self._on_sample is not None:
                    self._on_sample(sample)
            due_s = max(due_s + SAMPLE_INTERVAL_S, time.monotonic())
            self._stop.wait(due_s - time.monotonic())

    def _sample(self) -> ModelSample | None:
        model = self._kube.model(self.name)
        if model is None:
            return None
        at_s = time.monotonic()
        pods = [pod for pod in self._kube.pods(self.name, "server") if not pod["metadata"].get("deletionTimestamp")]
        return ModelSample(
            at_s=at_s,
            replicas=int(model["spec"].get("replicas", 1)),
            ready=sum(map(is_ready, pods)),
            pods=len(pods),
            queue=self._kube.external_metric(self.name, "queueDepth"),
            gpu_percent=self._kube.external_metric(self.name, "gpuUtilization"),
        )
