"""Metrics of the time that server pods take from scheduling to readiness.

Only pods that become ready while this process runs are counted, each only once. A pod isn't counted if it was ready
when it first appeared in the cache, or if it becomes ready again.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from halcyon.control.objects import pods
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube import pod_times
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.monitoring import instruments, operator_metrics
from halcyon.render import names

_BUCKETS_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


@dataclass(frozen=True, slots=True)
class PodStart:
    """Start of a server pod, with its duration."""

    seconds: float
    ready_at: float
    """Time at which the pod became ready, in seconds since the epoch."""


class StartTimes:
    """Last start of a pod of each model, and a histogram of all start times."""

    def __init__(self, caches: ClusterState, registry: CollectorRegistry) -> None:
        """Subscribe to changes of pods and models in the caches."""
        self._last: dict[Key, PodStart] = {}
        self._started: set[str] = set()
        """Uids of existing pods that have been ready at least once."""
        self._seconds = instruments.histogram(operator_metrics.POD_START, registry, buckets=_BUCKETS_S)
        caches.pods.listeners.append(self._changed)
        caches.resources.listeners.append(self._model_changed)

    def last(self, key: Key) -> PodStart | None:
        """Return the last start of a server pod of the model; None if none has started since this process started."""
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
        began_at, ready_at = pod_times.start_began_at(after), pod_times.ready_at(after)
        was_cached = before is not None and before["metadata"]["uid"] == uid
        if not was_cached or began_at is None or ready_at is None:
            return
        # The clock of the node may be slightly behind that of the scheduler.
        start = PodStart(max(ready_at - began_at, 0.0), ready_at)
        self._seconds.observe(start.seconds)
        self._last[Key(key.namespace, owner)] = start

    def _model_changed(self, key: Key, _before: Object | None, after: Object | None) -> None:
        if after is None:
            self._last.pop(key, None)
