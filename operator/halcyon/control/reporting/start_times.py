"""How long server pods take from their node to their readiness: measured as they become ready, never from what was there before.

A pod that was ready when it was first seen, or becomes ready again, tells nothing of a start.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from halcyon.control.objects import pods
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.monitoring import instruments, operator_metrics
from halcyon.render import names

_BUCKETS_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


@dataclass(frozen=True, slots=True)
class PodStart:
    """One start."""

    seconds: float
    ready_at: float
    """Seconds since the epoch."""


class StartTimes:
    """The last start of each model, and all of them as a histogram."""

    def __init__(self, caches: ClusterState, registry: CollectorRegistry) -> None:
        """Listens to the caches from now on."""
        self._last: dict[Key, PodStart] = {}
        self._started: set[str] = set()
        """Uids of pods that have been ready, of those that exist."""
        self._seconds = instruments.histogram(operator_metrics.POD_START, registry, buckets=_BUCKETS_S)
        caches.pods.listeners.append(self._changed)
        caches.resources.listeners.append(self._model_changed)

    def last(self, key: Key) -> PodStart | None:
        """Of the server pod that became ready last; None where none has while this process ran."""
        return self._last.get(key)

    def _changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        if after is None:
            if before is not None:
                self._started.discard(before["metadata"]["uid"])
            return
        uid, owner = after["metadata"]["uid"], after["metadata"]["labels"].get(names.OWNER_LABEL)
        if owner is None or uid in self._started or not pods.is_server(after) or not pods.is_ready(after):
            return
        self._started.add(uid)
        ready_at = pods.ready_since(after)
        made = pods.reading(after, ready_at)
        seen_before = before is not None and before["metadata"]["uid"] == uid
        if not seen_before or made is None or ready_at is None:
            return
        start = PodStart(ready_at - made.created_at, ready_at)
        self._seconds.observe(start.seconds)
        self._last[Key(key.namespace, owner)] = start

    def _model_changed(self, key: Key, _before: Object | None, after: Object | None) -> None:
        if after is None:
            self._last.pop(key, None)
