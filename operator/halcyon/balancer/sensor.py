"""What the agent saw -> records. Reads the pods; judges nothing but what a state is called."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from halcyon.api.record import BalancerSample, PodSample, PodState, Record
from halcyon.balancer.triton import Index, Metrics, TritonError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from halcyon.balancer.runtime_socket import Reading
    from halcyon.balancer.slots import Endpoint
    from halcyon.balancer.triton import TritonClient

MOST_AT_ONCE = 16
"""Pods that are read at the same time."""


@dataclass(frozen=True)
class Sighting:
    """One look at one pod."""

    at: float
    """Seconds since the epoch."""
    metrics: Metrics | None = None
    """None where the pod did not answer."""
    index: Index | None = None


class Sensor:
    """Looks at all pods; remembers which versions a ready pod has, so that its index is read once."""

    def __init__(self, client: TritonClient, clock: Callable[[], float]) -> None:
        """Nothing is read yet.

        Args:
            client: reads one pod.
            clock: seconds since the epoch.
        """
        self._client = client
        self._clock = clock
        self._known: dict[str, Index] = {}
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    async def look(self, endpoints: Iterable[Endpoint]) -> dict[str, Sighting]:
        """One look at each pod, by name. A pod that does not answer has a sighting without metrics."""
        pods = list(endpoints)
        seen = await asyncio.gather(*(self._look(endpoint) for endpoint in pods))
        self._known = {
            pod.pod: sighting.index
            for pod, sighting in zip(pods, seen, strict=True)
            if pod.serving and sighting.index is not None and sighting.index.versions
        }
        return {pod.pod: sighting for pod, sighting in zip(pods, seen, strict=True)}

    async def _look(self, endpoint: Endpoint) -> Sighting:
        async with self._places:
            at = self._clock()
            index = self._known.get(endpoint.pod) if endpoint.serving else None
            try:
                metrics = await self._client.metrics(endpoint.address, last=endpoint.terminating)
            except TritonError:
                metrics = None
            if index is None and not endpoint.terminating:
                try:
                    index = await self._client.index(endpoint.address, pod=endpoint.pod)
                except TritonError:
                    index = None
            return Sighting(at, metrics, index)


def record(
    *,
    namespace: str,
    name: str,
    agent: str,
    at: float,
    reading: Reading | None,
    endpoints: Iterable[Endpoint],
    sightings: Mapping[str, Sighting],
    maintenance: AbstractSet[str],
) -> Record:
    """The record of one moment. A pod that was never looked at is in it too, with nothing known."""
    balancer = None
    if reading is not None:
        balancer = BalancerSample(
            queued=reading.queued,
            inflight=reading.inflight,
            requests=reading.requests,
            refused=reading.refused,
            errors=reading.errors,
        )
    pods = tuple(_pod(endpoint, sightings.get(endpoint.pod), at, maintenance) for endpoint in endpoints)
    return Record(namespace=namespace, name=name, agent=agent, at=at, balancer=balancer, pods=pods)


def _pod(endpoint: Endpoint, seen: Sighting | None, at: float, maintenance: AbstractSet[str]) -> PodSample:
    state = _state(endpoint, seen, maintenance)
    if seen is None:
        return PodSample(endpoint.pod, state, at)
    index = seen.index or Index()
    read = seen.metrics or Metrics()
    return PodSample(
        name=endpoint.pod,
        state=state,
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
    )


def _state(endpoint: Endpoint, seen: Sighting | None, maintenance: AbstractSet[str]) -> PodState:
    if endpoint.terminating:
        return "draining"
    if endpoint.pod in maintenance:
        return "maintenance"
    if not endpoint.serving:
        return "starting"
    # Not looked at yet is not the same as no answer.
    return "unreachable" if seen is not None and seen.metrics is None else "ready"


def without_times(record: Record) -> Record:
    """The record, with every time at 0: what changed is compared without them."""
    return replace(record, at=0.0, pods=tuple(replace(pod, at=0.0) for pod in record.pods))
