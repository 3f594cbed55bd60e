"""The sampler of pods, and the reports made of its samples. It interprets nothing beyond naming a pod's state."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from halcyon.api.documents.observation_report import (
    AgentReport,
    BalancerSample,
    BatchStats,
    PodSample,
    PodState,
    ReportedHistogram,
    SlotLatency,
)
from halcyon.balancer.telemetry.triton_client import Index, Metrics, TritonError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from halcyon.balancer.runtime.runtime_api import HaproxyStats
    from halcyon.balancer.runtime.server_assignment import Endpoint
    from halcyon.balancer.telemetry.triton_client import TritonClient

MAX_CONCURRENT_READS = 16
"""Maximum number of pods that are read at the same time."""
BATCHES_INTERVAL_S = 5.0
"""Minimum time between two reads of a pod's batch statistics: the time a batch takes changes over minutes, not seconds."""
MAX_WITH_BATCHES = 32
"""Maximum number of pods whose batch statistics are in one report, the most recently read first. At 64 sizes of 20 bytes they
take 40 KiB of it. All pods of a model report the same about a batch, so beyond this number they take turns."""


@dataclass(frozen=True)
class ScrapedPod:
    """Sample of one pod."""

    at: float
    """Seconds since the epoch."""
    metrics: Metrics | None = None
    """None if the pod did not respond."""
    index: Index | None = None
    batches: BatchStats | None = None
    """The newest known, which may be older than the rest."""


class PodSampler:
    """Sampler of all pods. It keeps the versions of ready pods, so that their index is read once, and their batch statistics."""

    def __init__(self, client: TritonClient, clock: Callable[[], float]) -> None:
        """Prepare the sampler; nothing is read yet.

        Args:
            client: reads one pod.
            clock: seconds since the epoch.
        """
        self._client = client
        self._clock = clock
        self._known: dict[str, Index] = {}
        self._requested_at: dict[str, float] = {}
        """Last request of each pod's batch statistics."""
        self._batches: dict[str, BatchStats] = {}
        self._concurrency = asyncio.Semaphore(MAX_CONCURRENT_READS)

    async def sample(self, endpoints: Iterable[Endpoint]) -> dict[str, ScrapedPod]:
        """Sample each pod; return the samples by pod name. A pod that does not respond has a sample without metrics."""
        pods = list(endpoints)
        due = self._due(pods)
        samples = await asyncio.gather(*(self._sample(endpoint, with_batches=endpoint.pod in due) for endpoint in pods))
        self._known = {
            pod.pod: sample.index
            for pod, sample in zip(pods, samples, strict=True)
            if pod.serving and sample.index is not None and sample.index.versions
        }
        batches = self._reported_batches(pods)
        return {
            pod.pod: replace(sample, batches=batches.get(pod.pod)) for pod, sample in zip(pods, samples, strict=True)
        }

    def _due(self, pods: Iterable[Endpoint]) -> set[str]:
        """Return the ready pods whose batch statistics are read in this sample, those read longest ago."""
        now = self._clock()
        serving = [pod.pod for pod in pods if pod.serving and not pod.terminating]
        self._requested_at = {pod: at for pod, at in self._requested_at.items() if pod in set(serving)}
        # If the clock was set back, a pod is read now, not never.
        due = [pod for pod in serving if not 0 <= now - self._requested_at.get(pod, float("-inf")) < BATCHES_INTERVAL_S]
        due = sorted(due, key=lambda pod: self._requested_at.get(pod, float("-inf")))[:MAX_WITH_BATCHES]
        self._requested_at.update(dict.fromkeys(due, now))
        return set(due)

    def _reported_batches(self, pods: Iterable[Endpoint]) -> dict[str, BatchStats]:
        """Return the batch statistics of the report, by pod."""
        self._batches = {pod.pod: self._batches[pod.pod] for pod in pods if pod.pod in self._batches}
        newest = sorted(self._batches, key=lambda pod: self._batches[pod].at, reverse=True)[:MAX_WITH_BATCHES]
        return {pod: self._batches[pod] for pod in newest}

    async def _sample(self, endpoint: Endpoint, *, with_batches: bool) -> ScrapedPod:
        async with self._concurrency:
            at = self._clock()
            index = self._known.get(endpoint.pod) if endpoint.serving else None
            if with_batches:
                # In parallel, so that detecting a pod that hangs takes no longer.
                metrics, _ = await asyncio.gather(self._read_metrics(endpoint), self._read_batches(endpoint))
            else:
                metrics = await self._read_metrics(endpoint)
            if index is None and not endpoint.terminating:
                try:
                    index = await self._client.index(endpoint.address, pod=endpoint.pod)
                except TritonError:
                    index = None
            return ScrapedPod(at, metrics, index)

    async def _read_metrics(self, endpoint: Endpoint) -> Metrics | None:
        try:
            return await self._client.metrics(endpoint.address, last=endpoint.terminating)
        except TritonError:
            return None

    async def _read_batches(self, endpoint: Endpoint) -> None:
        at = self._clock()
        try:
            sizes = await self._client.batches(endpoint.address, pod=endpoint.pod)
        except TritonError:
            return  # The previous statistics stay; their age shows it.
        self._batches[endpoint.pod] = BatchStats(at, sizes)


def report(
    *,
    namespace: str,
    name: str,
    agent: str,
    at: float,
    reading: HaproxyStats | None,
    endpoints: Iterable[Endpoint],
    samples: Mapping[str, ScrapedPod],
    maintenance: AbstractSet[str],
    problem: str = "",
) -> AgentReport:
    """Build the report of one moment. Pods without a sample are included with unknown values."""
    balancer = None
    if reading is not None:
        balancer = BalancerSample(
            queued=reading.queued + reading.held,
            inflight=reading.inflight,
            requests=reading.requests,
            rejected=reading.rejected,
            errors=reading.errors,
            held=reading.held,
            problem=problem,
            latency=_latency(reading),
            clients=None
            if reading.clients is None
            else ReportedHistogram(reading.clients.bounds_ms, reading.clients.counts),
        )
    pods = tuple(_pod(endpoint, samples.get(endpoint.pod), at, maintenance) for endpoint in endpoints)
    return AgentReport(namespace=namespace, name=name, agent=agent, at=at, balancer=balancer, pods=pods)


def _latency(reading: HaproxyStats) -> tuple[SlotLatency, ...]:
    """Return the latency of both slots; empty if there is only one, as most of the time: there is nothing to compare then."""
    slots = {key.slot for key in reading.servers}
    if len(slots) < 2:
        return ()
    return tuple(
        SlotLatency(slot, latency.bounds_ms, latency.counts)
        for slot, latency in sorted(reading.latency.items())
        if slot in slots
    )


def _pod(endpoint: Endpoint, seen: ScrapedPod | None, at: float, maintenance: AbstractSet[str]) -> PodSample:
    now = state(endpoint, seen, maintenance)
    if seen is None:
        return PodSample(endpoint.pod, now, at)
    index = seen.index or Index()
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
        load_error=None if endpoint.serving else index.load_error,
        versions=index.versions,
        batches=seen.batches,
    )


def state(endpoint: Endpoint, seen: ScrapedPod | None, maintenance: AbstractSet[str]) -> PodState:
    """Return the name of a pod's state; `seen` is its last sample, None before the first."""
    if endpoint.terminating:
        return "draining"
    if endpoint.pod in maintenance:
        return "maintenance"
    if not endpoint.serving:
        return "starting"
    # Not sampled yet is not the same as no response.
    return "unreachable" if seen is not None and seen.metrics is None else "ready"


def without_times(report: AgentReport) -> AgentReport:
    """Return the report with every time set to 0 and without batches, to detect changes.

    No batch runs without changing the other counters, and which pods' batches a report includes is not a change.
    """
    return replace(report, at=0.0, pods=tuple(replace(pod, at=0.0, batches=None) for pod in report.pods))
