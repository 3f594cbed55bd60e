"""Adoption of orphans: the ModelDeployment becomes the owner of objects that Halcyon wrote and that have lost their owner.

This happens after a restore from a backup, which drops owner references, and after a deletion with --cascade=orphan. The pods of an
adopted Deployment keep running. A write names the uid and the resourceVersion of the object that was checked. It also makes Halcyon
the owner of all fields, so that the apply of the next reconcile removes what Halcyon would not write.

Out of scope: which objects are orphans (`control/objects/orphans.py`), and whether they are adopted (`control/desired/plan.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from halcyon.control.acceptance import site_policy
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.objects.orphans import is_orphan
from halcyon.control.reconcile.children_writer import FreshnessCheck
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.scope import Scope
from halcyon.kube import errors, field_ownership, kinds
from halcyon.kube.client import FIELD_MANAGER, Kube
from halcyon.kube.clock import Clock
from halcyon.kube.event_recorder import EventRecorder, NewEvent
from halcyon.kube.kinds import Key, Kind
from halcyon.render import names

log = logging.getLogger(__name__)

ADOPTION_INTERVAL_S = 10.0
"""Minimum time between two adoptions of one object, in seconds. If its owner is removed again and again, the status
reports a conflict, and the model's other objects are still written."""
REJECTED_INTERVAL_S = 60.0
"""Minimum time between two attempts to adopt an object after the API server has rejected a write, in seconds."""
_TRIES = 3
"""Maximum number of reads and writes of an object that changes in between."""
_FIRST = frozenset({kinds.CONTROLLER_REVISION, kinds.CONFIG_MAP})
"""Kinds to which the pod template of an adopted Deployment refers. Without them, a new template would replace its pods."""
_KEPT = (
    ("status",),
    ("metadata", "finalizers"),
    ("metadata", "ownerReferences"),
    ("spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt"),
)
"""Fields that stay with other field managers. Finalizers guard resources outside the cluster, such as load balancers.
Without the annotation of `kubectl rollout restart`, the pods would be replaced."""


@dataclass
class Adoption:
    """Adoption of the orphans of all models, with the times of the last adoptions."""

    client: Kube
    caches: ClusterState
    events: EventRecorder
    clock: Clock

    _due_at: dict[Key, dict[tuple[Kind, str], float]] = field(default_factory=dict)
    """Monotonic time of the next attempt to adopt each object, by model."""
    _rejected: dict[Key, str] = field(default_factory=dict)
    """Message with which the API server rejected a write in the last attempt, by model."""

    async def adopt(self, scope: Scope, plan: ReconcilePlan) -> tuple[bool, str]:
        """Adopt the orphans in a plan. Return whether any was adopted, and the API server's message if it rejected a write.

        Raises:
            StaleModel: the cached ModelDeployment is out of date, or was deleted.
            Conflicted: an object, or the replicas, changed again and again while they were read and written.
        """
        if not plan.orphans:
            self._rejected.pop(scope.key, None)
            return False, ""
        now, due_at = self.clock.monotonic(), self._due_at.setdefault(scope.key, {})
        due = [child for child in plan.orphans if now >= due_at.get(child, 0.0)]
        if not due:
            return False, self._rejected.get(scope.key, "")
        adopted: list[tuple[Kind, str]] = []
        try:
            # An object with the uid of a deleted ModelDeployment as its owner would be garbage-collected.
            await FreshnessCheck(self.client, self.caches, scope).require_fresh(must_read=True)
            await self._keep_replicas(scope, plan, due)
            for wave in ([c for c in due if c[0] in _FIRST], [c for c in due if c[0] not in _FIRST]):
                await self._adopt_all(scope, wave, adopted)
            rejected = ""
        except (errors.Refused, errors.NotFound, errors.Busy, errors.Unreachable) as error:
            # The model's other objects are still written, and the status shows the conflict. `NotFound`: an object was just deleted.
            log.warning("cannot adopt objects", extra={"key": str(scope.key), "error": str(error)})
            is_rejected = isinstance(error, errors.Refused)
            rejected = f"objects without an owner can't be adopted: {error}" if is_rejected else ""
        finally:
            self._report(scope, adopted)
        due_at |= dict.fromkeys(due, now + (REJECTED_INTERVAL_S if rejected else ADOPTION_INTERVAL_S))
        # An object that the model doesn't need may stay without an owner.
        self._rejected[scope.key] = rejected if plan.conflicts else ""
        return bool(adopted), self._rejected[scope.key]

    def forget(self, key: Key) -> None:
        """Drop the state of a model that was deleted."""
        for state in (self._due_at, self._rejected):
            state.pop(key, None)

    async def _keep_replicas(self, scope: Scope, plan: ReconcilePlan, due: Sequence[tuple[Kind, str]]) -> None:
        """Raise spec.replicas to the replicas of the server Deployments that are adopted, if Halcyon writes spec.replicas."""
        if plan.spec is None or plan.external_hpa is not None:
            return
        servers = {(kinds.DEPLOYMENT, names.server(scope.key.name, slot)) for slot in names.SLOTS}
        running = sum(int(scope.children[child]["spec"].get("replicas") or 0) for child in servers.intersection(due))
        current, limit = plan.replicas, site_policy.max_replicas(scope, plan.spec)
        kept = plan.kept_replicas(running if limit is None else min(running, limit))
        if kept > current:
            before = (scope.resource.get("spec") or {}).get("replicas", 1)
            written = await self.client.scale(kinds.MODEL_DEPLOYMENT, scope.resource, before=before, after=kept)
            self.caches.own_writes.wrote(scope.key, kinds.MODEL_DEPLOYMENT, written)

    async def _adopt_all(
        self, scope: Scope, children: Sequence[tuple[Kind, str]], adopted: list[tuple[Kind, str]]
    ) -> None:
        """Adopt objects at the same time, and add those that were adopted to `adopted`. Raise the first error at the end."""
        results = await asyncio.gather(*(self._adopt(scope, *child) for child in children), return_exceptions=True)
        adopted += [child for child, result in zip(children, results, strict=True) if result is True]
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _adopt(self, scope: Scope, kind: Kind, name: str) -> bool:
        """Adopt an object if it is still an orphan. Return whether it was adopted.

        Controllers write the status of a Deployment with each pod, so the object may change between read and write.
        """
        for _ in range(_TRIES - 1):
            with contextlib.suppress(errors.Conflicted):
                return await self._try_to_adopt(scope, kind, name)
        return await self._try_to_adopt(scope, kind, name)

    async def _try_to_adopt(self, scope: Scope, kind: Kind, name: str) -> bool:
        key = scope.key
        orphan = await self.client.get(kind, key.namespace, name)
        if orphan is None or not is_orphan(orphan, kind, key.name):
            return False
        meta = orphan["metadata"]
        entries = field_ownership.with_all_fields(
            meta.get("managedFields") or (), FIELD_MANAGER, kind.api_version, kept=_KEPT
        )
        if not entries:
            message = f"{kind.kind} {name} has no managedFields, so fields of other writers can't be removed; delete the object"
            raise errors.Refused(422, message)
        owner = names.owner(key.name, scope.subject.uid)
        condition = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        body = {"metadata": condition | {"ownerReferences": [owner], "managedFields": entries}}
        written = await self.client.patch(kind, key.namespace, name, body)
        self.caches.own_writes.wrote(key, kind, written)
        return True

    def _report(self, scope: Scope, adopted: Iterable[tuple[Kind, str]]) -> None:
        if objects := ", ".join(f"{kind.kind} {name}" for kind, name in adopted):
            message = f"adopted objects that had lost their owner, for example after a restore: {objects}"
            self.events.record(scope.resource, NewEvent("Normal", "Adopted", message))
            log.info("adopted objects that had lost their owner", extra={"key": str(scope.key), "objects": objects})
