"""Writer of child objects: applies those that differ from the plan, in two waves, and then deletes those that are surplus."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from halcyon.control.desired.plan import ReconcilePlan, is_servers
from halcyon.control.reconcile.gpu_reservations import GpuReservations
from halcyon.control.reconcile.reconcile_counts import ReconcileCounts
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.scope import Scope
from halcyon.kube import errors
from halcyon.kube.apply_diff import DIGEST, holds, with_digest
from halcyon.kube.client import Kube, Object
from halcyon.kube.kinds import Key, Kind, kind_of

_REJECTED = (errors.Refused, errors.Conflicted)
"""Errors that mean that the API server rejected a write, so that a retry fails too unless something changes."""


@dataclass
class ChildrenWriter:
    """Writer of the child objects of all models."""

    client: Kube
    caches: ClusterState
    reservations: GpuReservations
    counts: ReconcileCounts

    _as_is: dict[Key, dict[tuple[Kind, str], tuple[str, str]]] = field(default_factory=dict)
    """Digest and resourceVersion of children that an admission policy, for example, changes each time they are written."""

    async def apply(self, scope: Scope, plan: ReconcilePlan) -> str:
        """Apply the children that differ from the plan, then delete the surplus ones.

        Returns the API server's messages if it rejected a write, in which case later waves and deletions are skipped; else "".

        Raises:
            ApiError, Unreachable: a request failed that may succeed later. What was written until then stays.
        """
        for wave in (plan.first, plan.then):
            results = await asyncio.gather(*(self._one(scope, obj) for obj in wave), return_exceptions=True)
            servers = (result for obj, result in zip(wave, results, strict=True) if is_servers(obj))
            if not all(isinstance(result, _REJECTED) for result in servers):
                self.reservations.sent(scope.key)
            if rejections := _rejections(results):
                return "; ".join(rejections)
        for kind, name in plan.delete:
            # Delete by uid: another object may have the same name by now.
            seen = scope.children.get((kind, name))
            uid = None if seen is None else seen["metadata"].get("uid")
            await self.client.delete(kind, scope.key.namespace, name, uid=uid)
        return ""

    def forget(self, key: Key) -> None:
        """Drop the state of a model that was deleted."""
        self._as_is.pop(key, None)

    async def _one(self, scope: Scope, obj: Object) -> None:
        kind = kind_of(obj)
        desired = with_digest(obj)
        meta = desired["metadata"]
        where = (kind, meta["name"])
        live = scope.children.get(where)
        if live is not None:
            version = live["metadata"]["resourceVersion"]
            digest = meta["annotations"][DIGEST]
            if holds(live, desired) or self._as_is.get(scope.key, {}).get(where) == (digest, version):
                self.counts.skipped += 1
                return
        # Don't force a creation: if another writer has created the object since the caches were read, it isn't ours to take over.
        after = await self.client.apply(kind, desired, force=live is not None)
        self.counts.written += 1
        self.caches.wrote(scope.key, kind, after)
        if not holds(after, desired):
            # Something, for example an admission policy, changes the object on each write. Remember this, or the writes never end.
            this = (meta["annotations"][DIGEST], after["metadata"]["resourceVersion"])
            self._as_is.setdefault(scope.key, {})[where] = this


def _rejections(results: list[BaseException | None]) -> list[str]:
    """Return the messages of rejected writes; raise any other error."""
    rejections = []
    for result in results:
        if isinstance(result, _REJECTED):
            rejections.append(str(result))
        elif isinstance(result, BaseException):
            raise result
    return rejections
