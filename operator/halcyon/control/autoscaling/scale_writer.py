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
from dataclasses import dataclass, field
from enum import Enum

from halcyon.control.acceptance.accepted_specs import SpecsInForce
from halcyon.control.autoscaling.model_state import ModelState
from halcyon.control.objects.actuator import Actuator
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube import errors, kinds
from halcyon.kube.client import Kube
from halcyon.kube.clock import Clock
from halcyon.kube.leader_election import Leadership
from halcyon.kube.tracing import OFF, Tracer

log = logging.getLogger(__name__)

PUBLISHED_WITHIN_S = 0.3
"""Maximum wait for the status before scaling up. A status write normally takes a tenth of that. If the API server is slower, a
standby sees the replicas themselves a moment after they were written (`ClusterState.unpublished_replicas`)."""
LOWER_WITHIN_S = 1.0
"""The same before scaling down, which isn't urgent: the next decision may take it back."""
LATE_FOR_S = 30.0
"""How long scale-ups go before their statuses, once one has waited for its status in vain."""
_LOOK_S = 0.02


class WriteOutcome(Enum):
    """What became of a write."""

    WRITTEN = "written"
    PARTLY_WRITTEN = "partly written"
    """A newer decision wants more; it is written in its own turn, once the status shows it too."""
    FAILED = "failed"
    NOT_NEEDED = "not needed"
    """There was nothing left to write by the time that the status showed it."""


@dataclass(frozen=True)
class WriteResult:
    """The result of a write."""

    outcome: WriteOutcome
    replicas: int | None = None
    """Replicas that were written; None if none were."""


@dataclass
class ScaleWriter:
    """Writer of models' replicas. The caller sees to it that there is one write at a time for each model."""

    client: Kube
    caches: ClusterState
    specs: SpecsInForce
    leadership: Leadership
    clock: Clock
    tracer: Tracer = OFF

    _late_until: float = field(default=-math.inf, init=False)

    @property
    def statuses_are_late(self) -> bool:
        """Return whether a status was late within the last `LATE_FOR_S`, a sign that the API server is overloaded."""
        return self.clock.monotonic() < self._late_until

    def goes_first(self, model: ModelState) -> bool:
        """Return whether this model's replicas are to be written before its status shows them."""
        wanted = self.wanted(model)
        return wanted is not None and wanted > self.caches.replicas(model.key) and self.statuses_are_late

    def wanted(self, model: ModelState) -> int | None:
        """Return the replicas that are ours to write now; None if there is nothing to write."""
        spec, made = self.specs.get(model.key), model.verdict
        if spec is None or spec.scaling is None or spec.scaling.mode != "Active" or model.rival:
            return None
        if (
            made is None
            or made.desired is None
            or made.unknown
            or model.actuator is Actuator.NONE
            or not self.leadership.is_leader
        ):
            return None
        wanted, current = made.desired, self.caches.replicas(model.key)
        by_us = model.actuator is Actuator.DIRECT or wanted > current or wanted == 0
        return wanted if by_us and wanted != current else None

    async def write(self, model: ModelState) -> WriteResult:
        """Write once the standby can know the new value: an HPA that polls the standby must not receive the previous one."""
        await self._published(model)
        key = model.key
        resource, desired = self.caches.resources.get(key), self.wanted(model)
        if resource is None or desired is None or model.verdict is None:
            return WriteResult(WriteOutcome.NOT_NEEDED)
        current, published, why = self.caches.replicas(key), self.caches.published_desired(key), model.verdict.why
        is_part = published is not None and current < published < desired
        replicas = published if published is not None and is_part else desired
        try:
            with self.tracer.span(
                "scale",
                k8s__namespace__name=key.namespace,
                halcyon__model=key.name,
                halcyon__before=current,
                halcyon__replicas=replicas,
                halcyon__why=why,
            ):
                after = await self.client.scale(kinds.MODEL_DEPLOYMENT, resource, before=current, after=replicas)
        except (errors.ApiError, errors.Unreachable) as error:
            # Changed meanwhile, or unreachable: the model is decided again in a moment, from the state then.
            log.warning("cannot scale", extra={"key": str(key), "error": str(error)})
            return WriteResult(WriteOutcome.FAILED)
        self.caches.wrote(key, kinds.MODEL_DEPLOYMENT, after)
        log.info("scaled", extra={"key": str(key), "replicas": replicas, "before": current, "why": why})
        return WriteResult(WriteOutcome.PARTLY_WRITTEN if is_part else WriteOutcome.WRITTEN, replicas)

    async def _published(self, model: ModelState) -> None:
        """Wait, for a bounded time, until our own cache shows the replicas to be written in the status."""
        began = self.clock.monotonic()
        while True:
            wanted = self.wanted(model)
            if wanted is None or self.caches.published_desired(model.key) == wanted:
                return
            rises, now = wanted > self.caches.replicas(model.key), self.clock.monotonic()
            if rises and self.statuses_are_late:
                return  # whichever model's status was late
            if now - began >= (PUBLISHED_WITHIN_S if rises else LOWER_WITHIN_S):
                if rises:
                    self._late_until = now + LATE_FOR_S
                return
            await asyncio.sleep(_LOOK_S)
