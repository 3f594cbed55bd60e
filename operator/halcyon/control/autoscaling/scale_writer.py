"""Writes to /scale: only what is ours to write, after the status shows it, and only if replicas are still those that were read.

If status writes are late, scale-ups don't wait for them. Otherwise every model whose load grows at that moment would need one
more write, of its status, before its replicas.

mode        actuator   scale up                      scale down         to 0
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
"""Maximum wait for the status before scaling up. A status write normally takes a tenth of that. If the API server is slower, a
standby sees the replicas themselves a moment after they were written (`ClusterState.count_ahead`)."""
LOWER_WITHIN_S = 1.0
"""The same before scaling down, which isn't urgent: the next decision may take it back."""
LATE_FOR_S = 30.0
"""How long scale-ups go before their statuses, once one has waited for its status in vain."""
_LOOK_S = 0.02


@dataclass
class ScaleWriter:
    """Writer of models' replicas: one write at a time for each model."""

    client: Kube
    caches: ClusterState
    spec_of: Callable[[Key], Spec | None]
    leads: Callable[[], bool]
    clock: Callable[[], float]
    """Monotonic, in seconds."""
    wrote: Callable[[ModelState, int], None]
    """Called with the replicas after a write."""
    failed: Callable[[ModelState], None]
    """Called after a write that failed."""
    again: Callable[[ModelState], None]
    """Called if only part of a scale-up was written."""
    ended: Callable[[ModelState], None]
    """Called last, whatever the outcome."""
    tracer: Tracer = OFF

    _late_until: float = field(default=-math.inf, init=False)

    @property
    def statuses_are_late(self) -> bool:
        """Return whether a status was late within the last `LATE_FOR_S`, a sign that the API server is overloaded."""
        return self.clock() < self._late_until

    def goes_first(self, model: ModelState) -> bool:
        """Return whether this model's replicas are to be written before its status shows them."""
        wanted = self.wanted(model)
        return wanted is not None and wanted > self.caches.replicas(model.key) and self.statuses_are_late

    def wanted(self, model: ModelState) -> int | None:
        """Return the replicas that are ours to write now; None if there is nothing to write."""
        spec, made = self.spec_of(model.key), model.verdict
        if spec is None or spec.scaling is None or spec.scaling.mode != "Active" or model.rival:
            return None
        if made is None or made.desired is None or made.unknown or model.actuator is Actuator.NONE or not self.leads():
            return None
        wanted, current = made.desired, self.caches.replicas(model.key)
        by_us = model.actuator is Actuator.DIRECT or wanted > current or wanted == 0
        return wanted if by_us and wanted != current else None

    def begin(self, model: ModelState) -> None:
        """Start to write the model's desired replicas."""
        model.writing = asyncio.create_task(self._write(model), name=f"scale {model.key}")
        model.writing.add_done_callback(lambda _: self._end(model))

    def _end(self, model: ModelState) -> None:
        model.writing = None
        self.ended(model)

    async def _write(self, model: ModelState) -> None:
        """Write once the standby can know the new value: an HPA that polls the standby must not receive the previous one."""
        await self._published(model)
        key = model.key
        resource, wanted = self.caches.resources.get(key), self.wanted(model)
        if resource is None or wanted is None or model.verdict is None:
            return
        current, told, why = self.caches.replicas(key), self.caches.desired_told(key), model.verdict.why
        is_part = told is not None and current < told < wanted
        if told is not None and is_part:
            wanted = told  # a newer decision is written in its own turn, once the status shows it too
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
            # Changed meanwhile, or unreachable: the model is decided again in a moment, from the state then.
            log.warning("cannot scale", extra={"key": str(key), "error": str(error)})
            self.failed(model)
            return
        self.caches.wrote(key, kinds.MODEL_DEPLOYMENT, after)
        self.wrote(model, wanted)
        if is_part:
            self.again(model)
        log.info("scaled", extra={"key": str(key), "replicas": wanted, "before": current, "why": why})

    async def _published(self, model: ModelState) -> None:
        """Wait, for a bounded time, until our own cache shows the replicas to be written in the status."""
        began = self.clock()
        while True:
            wanted = self.wanted(model)
            if wanted is None or self.caches.desired_told(model.key) == wanted:
                return
            rises, now = wanted > self.caches.replicas(model.key), self.clock()
            if rises and self.statuses_are_late:
                return  # whichever model's status was late
            if now - began >= (PUBLISHED_WITHIN_S if rises else LOWER_WITHIN_S):
                if rises:
                    self._late_until = now + LATE_FOR_S
                return
            await asyncio.sleep(_LOOK_S)
