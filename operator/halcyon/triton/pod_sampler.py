"""Sampling of the server pods' metrics, and the reports that contain the samples. Out of scope: decisions based on them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from halcyon.api.documents.observation_report import (
    AgentReport,
    BalancerSample,
    BatchStats,
    PodSample,
    PodState,
)
from halcyon.triton.client import Metrics
from halcyon.triton.errors import TritonError
from halcyon.triton.repository_index import RepositoryIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from halcyon.triton.client import Endpoint, TritonClient

MAX_CONCURRENT_READS = 16
"""Maximum number of pods that are sampled at the same time."""
BATCHES_INTERVAL_S = 5.0
"""Minimum time between two reads of a pod's batch statistics, in seconds. Batch times change within minutes, not seconds."""
MAX_WITH_BATCHES = 32
"""Maximum number of pods whose batch statistics are in one report: those that were read last. At 64 batch sizes of 20
bytes per pod, they take 40 KiB of the report. The statistics of all pods of a model are similar, so if there are more
pods, reports include them in turn."""


@dataclass(frozen=True)
class ScrapedPod:
    """Sample of one pod, with its metrics and batch statistics."""

    at: float
    """Time of the sample, in seconds since the epoch."""
    metrics: Metrics | None = None
    """Metrics of the pod; None if the pod did not respond."""
    index: RepositoryIndex | None = None
    batches: BatchStats | None = None
    """Newest batch statistics of the pod, which may be older than the metrics."""


class PodSampler:
    """Sampler of all server pods of a model.

    It keeps the batch statistics and the model versions of ready pods, so that it reads the repository index of a ready
    pod only once.
    """

    def __init__(self, client: TritonClient, clock: Callable[[], float]) -> None:
        """Create a sampler without samples.

        Args:
            client: client that reads a pod.
            clock: returns the time in seconds since the epoch.
        """
        self._client = client
        self._clock = clock
        self._indexes: dict[str, RepositoryIndex] = {}
        self._requested_at: dict[str, float] = {}
        """Time of the last request for each pod's batch statistics, by pod name, in seconds since the epoch."""
        self._batches: dict[str, BatchStats] = {}
        self._ensembles: dict[str, bool] = {}
        """Whether the served model is an ensemble, by pod name; only for pods with other models as well."""
        self._concurrency = asyncio.Semaphore(MAX_CONCURRENT_READS)

    async def sample(self, endpoints: Iterable[Endpoint]) -> dict[str, ScrapedPod]:
        """Sample each pod, and return the samples by pod name.

        A pod that does not respond has a sample without metrics.
        """
        pods = list(endpoints)
        due = self._due(pods)
        samples = await asyncio.gather(*(self._sample(endpoint, with_batches=endpoint.pod in due) for endpoint in pods))
        self._indexes = {
            pod.pod: sample.index
            for pod, sample in zip(pods, samples, strict=True)
            if pod.serving and sample.index is not None and sample.index.versions
        }
        self._ensembles = {pod.pod: self._ensembles[pod.pod] for pod in pods if pod.pod in self._ensembles}
        batches = self._reported_batches(pods)
        return {
            pod.pod: replace(sample, batches=batches.get(pod.pod)) for pod, sample in zip(pods, samples, strict=True)
        }

    def _due(self, pods: Iterable[Endpoint]) -> set[str]:
        """Return the names of the ready pods whose batch statistics are due to be read.

        If there are too many, those that were read longest ago are returned.
        """
        now = self._clock()
        serving = [pod.pod for pod in pods if pod.serving and not pod.terminating]
        self._requested_at = {pod: at for pod, at in self._requested_at.items() if pod in set(serving)}
        # If the clock was set back, the age is negative; read the pod then, too.
        due = [pod for pod in serving if not 0 <= now - self._requested_at.get(pod, float("-inf")) < BATCHES_INTERVAL_S]
        due = sorted(due, key=lambda pod: self._requested_at.get(pod, float("-inf")))[:MAX_WITH_BATCHES]
        self._requested_at.update(dict.fromkeys(due, now))
        return set(due)

    def _reported_batches(self, pods: Iterable[Endpoint]) -> dict[str, BatchStats]:
        """Return the batch statistics to include in the report, by pod name."""
        self._batches = {pod.pod: self._batches[pod.pod] for pod in pods if pod.pod in self._batches}
        newest = sorted(self._batches, key=lambda pod: self._batches[pod].at, reverse=True)[:MAX_WITH_BATCHES]
        return {pod: self._batches[pod] for pod in newest}

    async def _sample(self, endpoint: Endpoint, *, with_batches: bool) -> ScrapedPod:
        async with self._concurrency:
            at = self._clock()
            index = self._indexes.get(endpoint.pod) if endpoint.serving else None
            if with_batches:
                # Read both in parallel, so that a pod that hangs costs only one timeout.
                metrics, _ = await asyncio.gather(self._read_metrics(endpoint), self._read_batches(endpoint))
            else:
                metrics = await self._read_metrics(endpoint)
            if index is None and not endpoint.terminating:
                try:
                    index = await self._client.index(endpoint.address, pod=endpoint.pod)
                except TritonError:
                    index = None
            if endpoint.pod in self._batches and index is not None and await self._is_ensemble(endpoint, index):
                del self._batches[endpoint.pod]
            return ScrapedPod(at, metrics, index)

    async def _is_ensemble(self, endpoint: Endpoint, index: RepositoryIndex) -> bool:
        """Return whether the served model is an ensemble, or may be one because its configuration can't be read.

        The batch statistics of an ensemble don't describe batches: Triton adds up the times of its steps for each
        request, and executes several requests at once in different steps.
        """
        if index.companions and endpoint.pod not in self._ensembles:
            try:
                config = await self._client.config(endpoint.address)
            except TritonError:
                return True
            self._ensembles[endpoint.pod] = "ensemble_scheduling" in config
        return bool(index.companions) and self._ensembles[endpoint.pod]

    async def _read_metrics(self, endpoint: Endpoint) -> Metrics | None:
        try:
            return await self._client.metrics(endpoint.address, last=endpoint.terminating)
        except TritonError:
            return None

    async def _read_batches(self, endpoint: Endpoint) -> None:
        at = self._clock()
        try:
            sizes, spent_us = await self._client.batches(endpoint.address, pod=endpoint.pod)
        except TritonError:
            return  # Keep the previous statistics; their time shows how old they are.
        self._batches[endpoint.pod] = BatchStats(at, sizes, spent_us)


def report(
    *,
    namespace: str,
    name: str,
    agent: str,
    at: float,
    endpoints: Iterable[Endpoint],
    samples: Mapping[str, ScrapedPod],
    maintenance: AbstractSet[str],
    balancer: BalancerSample | None = None,
    backend_failures: Mapping[str, str] = MappingProxyType({}),
) -> AgentReport:
    """Build a report from the samples of the pods.

    Pods without a sample are included with unknown values. `balancer` is the sample of the balancer; None if there is
    none. `backend_failures` contains the values of `PodSample.backend_failure`, by pod.
    """
    pods = tuple(
        replace(
            _pod(endpoint, samples.get(endpoint.pod), at, maintenance),
            backend_failure=backend_failures.get(endpoint.pod),
        )
        for endpoint in endpoints
    )
    return AgentReport(namespace=namespace, name=name, agent=agent, at=at, balancer=balancer, pods=pods)


def _pod(endpoint: Endpoint, seen: ScrapedPod | None, at: float, maintenance: AbstractSet[str]) -> PodSample:
    now = state(endpoint, seen, maintenance)
    if seen is None:
        return PodSample(endpoint.pod, now, at)
    index = seen.index or RepositoryIndex()
    read = seen.metrics or Metrics()
    return PodSample(
        name=endpoint.pod,
        state=now,
        at=seen.at,
        pending=read.pending,
        succeeded=read.succeeded,
        failed=read.failed,
        backend_failed=read.backend_failed,
        rows=read.rows,
        executions=read.executions,
        queue_us=read.queue_us,
        compute_us=read.compute_us,
        gpu=read.gpu,
        engine_used=read.engine_used,
        canceled=read.canceled,
        load_error=None if endpoint.serving else index.load_error,
        versions=index.versions,
        batches=seen.batches,
    )


def state(endpoint: Endpoint, seen: ScrapedPod | None, maintenance: AbstractSet[str]) -> PodState:
    """Return the state of a pod for the report.

    `seen` is the last sample of the pod; None if there is none yet.
    """
    if endpoint.terminating:
        return "draining"
    if endpoint.pod in maintenance:
        return "maintenance"
    if not endpoint.serving:
        return "starting"
    # A pod that has not been sampled yet is not unreachable.
    return "unreachable" if seen is not None and seen.metrics is None else "ready"
