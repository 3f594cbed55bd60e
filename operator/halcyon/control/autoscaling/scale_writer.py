"""Writer of replicas to /scale, which writes only if the spec hasn't changed since the decision.

The API server rejects the write if the ModelDeployment has another version than the decision was made for. If only its
status has changed since, the write is repeated. A write therefore never overwrites a pause or a manual change.

The replicas are written once the status contains them. While status writes are late, scale-ups don't wait for them:
the API server is then overloaded, and the wait would be long.
"""

# mode        actuator   scale up             scale down      scale to 0
# Active      HPA        /scale (fast path)   by the HPA      /scale
# Active      Direct     /scale               /scale          /scale
# Recommend   any        -                    -               -
# Paused      any        -                    -               -

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass, field
from enum import Enum

from halcyon.control.acceptance import scaling_mode
from halcyon.control.acceptance.accepted_specs import SpecsInForce
from halcyon.control.autoscaling.model_state import ModelState
from halcyon.control.objects.actuator import Actuator
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube import errors, kinds
from halcyon.kube.client import Kube, Object
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.kube.leader_election import Leadership
from halcyon.kube.tracing import OFF, Tracer

log = logging.getLogger(__name__)

PUBLISHED_WITHIN_S = 0.3
"""Maximum time to wait for the status before a scale-up, in seconds; a status write usually takes a tenth of it. If the
status is later, the standby serves spec.replicas instead (`ClusterState.unpublished_replicas`)."""
LOWER_WITHIN_S = 1.0
"""Maximum time to wait for the status before a scale-down, in seconds. It is longer because a scale-down isn't urgent."""
LATE_FOR_S = 30.0
"""Time for which scale-ups don't wait for the status after a late status write, in seconds."""
MAX_ATTEMPTS = 3
"""Number of attempts to write the replicas while only the status of the ModelDeployment changes."""
_POLL_INTERVAL_S = 0.02


class WriteOutcome(Enum):
    """Outcome of an attempt to write the replicas."""

    WRITTEN = "written"
    PARTLY_WRITTEN = "partly written"
    """The replicas in the status were written. A newer decision needs more, which are written once the status has
    them."""
    FAILED = "failed"
    NOT_NEEDED = "not needed"
    """After the wait for the status, there was nothing left to write."""


@dataclass(frozen=True)
class WriteResult:
    """Result of an attempt to write the replicas."""

    outcome: WriteOutcome
    replicas: int | None = None
    """Number of replicas that were written; None if none were written."""


@dataclass
class ScaleWriter:
    """Writer of models' replicas to /scale. Callers must not start a second write for a model at the same time."""

    client: Kube
    caches: ClusterState
    specs: SpecsInForce
    leadership: Leadership
    clock: Clock
    tracer: Tracer = OFF

    unanswered: set[Key] = field(default_factory=set, init=False)
    """Models for which a request to /scale has no response yet. The caches may show the requested replicas before the
    response arrives."""
    _late_until: float = field(default=-math.inf, init=False)
    """Monotonic time until which status writes count as late, in seconds."""

    @property
    def statuses_are_late(self) -> bool:
        """Whether a status write was late within the last `LATE_FOR_S`. This indicates an overloaded API server."""
        return self.clock.monotonic() < self._late_until

    def writes_before_status(self, model: ModelState) -> bool:
        """Return whether the replicas are written before the status: for a scale-up while status writes are late."""
        desired = self.replicas_to_write(model)
        return desired is not None and desired > self.caches.replicas(model.key) and self.statuses_are_late

    def replicas_to_write(self, model: ModelState) -> int | None:
        """Return the replicas that Halcyon should write now; None if it should write nothing."""
        resource, decision = self.caches.resources.get(model.key), model.decision
        if resource is None or model.external_writer or not scaling_mode.is_active(resource, self.specs.get(model.key)):
            return None
        if (
            decision is None
            or decision.desired is None
            or decision.unknown
            or model.actuator is Actuator.NONE
            or not self.leadership.is_leader
        ):
            return None
        desired, current = decision.desired, self.caches.replicas(model.key)
        is_ours = model.actuator is Actuator.DIRECT or desired > current or desired == 0
        return desired if is_ours and desired != current else None

    async def write(self, model: ModelState) -> WriteResult:
        """Wait until the status has the desired replicas, then write them to /scale.

        Without the wait, an HPA could receive the previous number from the standby, which reads it from the status.
        """
        await self._wait_published(model)
        key = model.key
        resource, desired = self.caches.resources.get(key), self.replicas_to_write(model)
        if resource is None or desired is None or model.decision is None:
            return WriteResult(WriteOutcome.NOT_NEEDED)
        current, published, why = self.caches.replicas(key), self.caches.published_desired(key), model.decision.why
        is_partial = published is not None and current < published < desired
        replicas = published if published is not None and is_partial else desired
        self.unanswered.add(key)
        try:
            with self.tracer.span(
                "scale",
                k8s__namespace__name=key.namespace,
                halcyon__model=key.name,
                halcyon__before=current,
                halcyon__replicas=replicas,
                halcyon__why=why,
            ):
                scaled = await self._scale(resource, current, replicas)
        except (errors.ApiError, errors.Unreachable) as error:
            # The replicas have changed, or the API server is unreachable. A new decision follows soon, from the state at that time.
            log.warning("cannot scale", extra={"key": str(key), "error": str(error)})
            return WriteResult(WriteOutcome.FAILED)
        finally:
            self.unanswered.discard(key)
        self.caches.own_writes.wrote(key, kinds.MODEL_DEPLOYMENT, scaled)
        log.info("scaled", extra={"key": str(key), "replicas": replicas, "before": current, "why": why})
        return WriteResult(WriteOutcome.PARTLY_WRITTEN if is_partial else WriteOutcome.WRITTEN, replicas)

    async def _scale(self, resource: Object, before: int, after: int) -> Object:
        """Write the replicas if the spec is still that of `resource`, and return the resulting Scale.

        Raises:
            Conflicted: the spec has changed, or the status has changed before each attempt.
            ApiError, Unreachable: the write failed.
        """
        meta, version, attempts = resource["metadata"], resource["metadata"]["resourceVersion"], 0
        while True:
            try:
                return await self.client.scale(
                    kinds.MODEL_DEPLOYMENT, resource, before=before, after=after, version=version
                )
            except errors.Conflicted:
                attempts += 1
                newest = await self.client.get(kinds.MODEL_DEPLOYMENT, meta["namespace"], meta["name"])
                if attempts == MAX_ATTEMPTS or newest is None or _spec_version(newest) != _spec_version(resource):
                    raise
                version = newest["metadata"]["resourceVersion"]

    async def _wait_published(self, model: ModelState) -> None:
        """Wait until the status in the cache has the replicas to write, or until the maximum wait has passed."""
        began = self.clock.monotonic()
        while True:
            desired = self.replicas_to_write(model)
            if desired is None or self.caches.published_desired(model.key) == desired:
                return
            is_increase, now = desired > self.caches.replicas(model.key), self.clock.monotonic()
            if is_increase and self.statuses_are_late:
                return  # the status of this or of another model was late
            if now - began >= (PUBLISHED_WITHIN_S if is_increase else LOWER_WITHIN_S):
                if is_increase:
                    self._late_until = now + LATE_FOR_S
                return
            await asyncio.sleep(_POLL_INTERVAL_S)


def _spec_version(resource: Object) -> tuple[str, int]:
    """Return the uid and the generation of an object. They are the same as long as its spec is."""
    meta = resource["metadata"]
    return str(meta["uid"]), int(meta["generation"])
