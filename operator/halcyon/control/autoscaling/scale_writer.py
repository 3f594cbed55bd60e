"""Writes /scale: what is ours to write, when the status has told it, and only where the count is still the one that was seen.

Where statuses are late, more replicas don't wait for them: a status is one more write in front of the count, of every model whose
load grows at that moment.

mode        actuator   the count rises               falls              to 0
Active      HPA        /scale at once (fast path)    by the HPA alone   /scale
Active      Direct     /scale                        /scale             /scale
Recommend   any        -                             -                  -
Paused      any        -                             -                  -
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from halcyon.api.spec import Spec
from halcyon.control.autoscaling.model_state import ModelState
from halcyon.control.objects.actuator import Actuator
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube import errors, kinds
from halcyon.kube.client import Kube
from halcyon.kube.kinds import Key
from halcyon.kube.tracing import OFF, Tracer

log = logging.getLogger(__name__)

PUBLISHED_WITHIN_S = 0.3
"""A status is written within a tenth of that. Where the API server is slower, a standby sees the count itself a moment after it was
written (`ClusterState.count_ahead`)."""
LOWER_WITHIN_S = 1.0
"""The same for a lower count, which nobody waits for: the next decision may take it back."""
LATE_FOR_S = 30.0
"""After a status that a higher count has waited for in vain, those go before theirs for this long."""
_LOOK_S = 0.02


@dataclass
class ScaleWriter:
    """Writes one model's count at a time."""

    client: Kube
    caches: ClusterState
    spec_of: Callable[[Key], Spec | None]
    leads: Callable[[], bool]
    clock: Callable[[], float]
    """Monotonic, in seconds."""
    wrote: Callable[[ModelState, int], None]
    """Told of a count that was written."""
    failed: Callable[[ModelState], None]
    """Told that a count could not be written."""
    again: Callable[[ModelState], None]
    """Told that only part of what is wanted was written."""
    ended: Callable[[ModelState], None]
    """Told last, whatever became of it."""
    tracer: Tracer = OFF

    _late_until: float = field(default=-math.inf, init=False)

    @property
    def statuses_are_late(self) -> bool:
        """Whether one was, a moment ago: the API server has more to do than it can."""
        return self.clock() < self._late_until

    def goes_first(self, model: ModelState) -> bool:
        """Whether this model's count is to be written before its status tells it."""
        wanted = self.wanted(model)
        return wanted is not None and wanted > self.caches.replicas(model.key) and self.statuses_are_late

    def wanted(self, model: ModelState) -> int | None:
        """The count that is ours to write now; None where there is none."""
        spec, made = self.spec_of(model.key), model.verdict
        if spec is None or spec.scaling is None or spec.scaling.mode != "Active" or model.rival:
            return None
        if made is None or made.desired is None or made.unknown or model.actuator is Actuator.NONE or not self.leads():
            return None
        wanted, current = made.desired, self.caches.replicas(model.key)
        by_us = model.actuator is Actuator.DIRECT or wanted > current or wanted == 0
        return wanted if by_us and wanted != current else None

    def begin(self, model: ModelState) -> None:
        """Write what is wanted, unless that is under way."""
        model.writing = asyncio.create_task(self._write(model), name=f"scale {model.key}")
        model.writing.add_done_callback(lambda _: self._end(model))

    def _end(self, model: ModelState) -> None:
        model.writing = None
        self.ended(model)

    async def _write(self, model: ModelState) -> None:
        """Write, once the standby can know of it: an HPA that asks it must not hear the count before."""
        await self._published(model)
        key = model.key
        resource, wanted = self.caches.resources.get(key), self.wanted(model)
        if resource is None or wanted is None or model.verdict is None:
            return
        current, told, why = self.caches.replicas(key), self.caches.desired_told(key), model.verdict.why
        is_part = told is not None and current < told < wanted
        if told is not None and is_part:
            wanted = told  # what is decided since has its own turn, once it is told too
        try:
            with self.tracer.span(
                "scale",
                k8s__namespace__name=key.namespace,
                halcyon__model=key.name,
                halcyon__before=current,
                halcyon__replicas=wanted,
                halcyon__why=why,
            ):
                after = await self.client.scale(kinds.MODEL_DEPLOYMENT, resource, before=current, after=wanted)
        except (errors.ApiError, errors.Unreachable) as error:
            # Changed meanwhile, or out of reach: decided anew in a moment, from what is then.
            log.warning("cannot scale", extra={"key": str(key), "error": str(error)})
            self.failed(model)
            return
        self.caches.wrote(key, kinds.MODEL_DEPLOYMENT, after)
        self.wrote(model, wanted)
        if is_part:
            self.again(model)
        log.info("scaled", extra={"key": str(key), "replicas": wanted, "before": current, "why": why})

    async def _published(self, model: ModelState) -> None:
        """Until our own cache has the count to be written in the status; not longer than a moment."""
        began = self.clock()
        while True:
            wanted = self.wanted(model)
            if wanted is None or self.caches.desired_told(model.key) == wanted:
                return
            rises, now = wanted > self.caches.replicas(model.key), self.clock()
            if rises and self.statuses_are_late:
                return  # whichever it was that was late
            if now - began >= (PUBLISHED_WITHIN_S if rises else LOWER_WITHIN_S):
                if rises:
                    self._late_until = now + LATE_FOR_S
                return
            await asyncio.sleep(_LOOK_S)
