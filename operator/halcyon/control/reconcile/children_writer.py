"""Writes of a model's child objects: what differs from the plan, in two waves, and deletions last."""

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
"""Errors after which nothing was written, and nothing will be without a change."""


@dataclass
class ChildrenWriter:
    """The writer of all models' children."""

    client: Kube
    caches: ClusterState
    reservations: GpuReservations
    counts: ReconcileCounts

    _as_is: dict[Key, dict[tuple[Kind, str], tuple[str, str]]] = field(default_factory=dict)
    """Digest and resourceVersion of children that something else changes every time we write them."""

    async def apply(self, scope: Scope, plan: ReconcilePlan) -> str:
        """Write what differs. Return a sentence about what the API server rejected; empty if nothing.

        Raises:
            ApiError, Unreachable: a request failed that may succeed later; whatever was written stays.
        """
        for wave in (plan.first, plan.then):
            results = await asyncio.gather(*(self._one(scope, obj) for obj in wave), return_exceptions=True)
            servers = (result for obj, result in zip(wave, results, strict=True) if is_servers(obj))
            if not all(isinstance(result, _REJECTED) for result in servers):
                self.reservations.sent(scope.key)
            if rejections := _rejections(results):
                return "; ".join(rejections)
        for kind, name in plan.delete:
            # Only with that uid: another object may have its name by now.
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
        # Not forced if there was no object a moment ago: if another writer has created it meanwhile, it isn't ours to take.
        after = await self.client.apply(kind, desired, force=live is not None)
        self.counts.written += 1
        self.caches.wrote(scope.key, kind, after)
        if not holds(after, desired):
            # Something (an admission policy, say) changes what we write. Writing again would not end.
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
