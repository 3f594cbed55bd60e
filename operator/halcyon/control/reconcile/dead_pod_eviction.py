"""Eviction of pods with a dead Triton backend: Triton keeps reporting "ready" and never restarts the backend."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from halcyon.control.objects import pods
from halcyon.control.state.scope import Scope
from halcyon.kube import errors
from halcyon.kube.client import Kube
from halcyon.kube.clock import Clock
from halcyon.kube.event_recorder import EventRecorder, NewEvent
from halcyon.kube.kinds import Key

log = logging.getLogger(__name__)

EVICTION_INTERVAL_S = 30.0
"""Minimum time between two evictions of one model."""


@dataclass
class DeadPodEviction:
    """Evictions for all models: for each model one pod per interval, and only while another pod is ready."""

    client: Kube
    events: EventRecorder
    clock: Clock

    _evicted_at: dict[Key, float] = field(default_factory=dict)

    async def evict(self, scope: Scope) -> None:
        """Evict one of the pods that the agents have taken out of service, if the interval has passed and another pod is ready.

        Raises:
            ApiError, Unreachable: the request failed, and not because of a PodDisruptionBudget or a missing pod.
        """
        dead = [p for p in scope.pods if scope.signals and p["metadata"]["name"] in scope.signals.maintenance]
        dead = [p for p in dead if pods.is_live(p)]
        serving = [p for p in scope.pods if pods.is_ready(p) and p not in dead]
        since_s = self.clock.monotonic() - self._evicted_at.get(scope.key, -EVICTION_INTERVAL_S)
        if not dead or not serving or since_s < EVICTION_INTERVAL_S:
            return
        name = dead[0]["metadata"]["name"]
        try:
            await self.client.evict(scope.key.namespace, name)
        except (errors.Busy, errors.NotFound) as error:
            log.info("cannot evict yet", extra={"key": str(scope.key), "pod": name, "error": str(error)})
            return
        self._evicted_at[scope.key] = self.clock.monotonic()
        message = f"pod {name} returned only backend errors; it was taken out of service and is being replaced"
        self.events.record(scope.resource, NewEvent("Warning", "BackendDied", message))

    def forget(self, key: Key) -> None:
        """Drop the state of a model that was deleted."""
        self._evicted_at.pop(key, None)
