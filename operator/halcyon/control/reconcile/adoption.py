"""Adoption of a model's objects that have lost their owner: Velero restores objects without owner references."""

from __future__ import annotations

from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube import errors, kinds
from halcyon.kube.apply_diff import DIGEST
from halcyon.kube.client import Kube, Object
from halcyon.kube.kinds import Key
from halcyon.render import names


async def adopt(client: Kube, caches: ClusterState, key: Key, uid: str) -> bool:
    """Make the ModelDeployment the owner of its objects without an owner. Return whether there were any.

    Raises:
        ApiError, Unreachable: a request failed that may succeed later.
    """
    stored = (kinds.CONTROLLER_REVISION, kinds.CONFIG_MAP)
    objects = {(kind, obj["metadata"]["name"]): obj for kind in stored for obj in caches.children[kind].find(*key)}
    objects |= caches.children_of(key)
    orphans = {child: obj["metadata"] for child, obj in objects.items() if _is_orphan(obj, key)}
    try:
        live = await client.get(kinds.MODEL_DEPLOYMENT, *key) if orphans else None
        # Kubernetes deletes objects whose owner has another uid. A deletion with --cascade=orphan must leave them without an owner.
        if live is None or live["metadata"]["uid"] != uid or "deletionTimestamp" in live["metadata"]:
            return False
        for (kind, name), meta in orphans.items():
            condition = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
            owned = {"metadata": condition | {"ownerReferences": [names.owner(key.name, uid)]}}
            caches.own_writes.wrote(key, kind, await client.patch(kind, key.namespace, name, owned))
    except errors.Refused:  # the status reports the objects as a conflict
        return False
    return True


def _is_orphan(obj: Object, key: Key) -> bool:
    """Return whether Halcyon wrote an object for this ModelDeployment, and it has no owner now."""
    meta = obj["metadata"]
    if meta.get("ownerReferences") or DIGEST not in (meta.get("annotations") or {}):
        return False
    ours = {names.OWNER_LABEL: key.name, names.MANAGER_LABEL: names.MANAGER}
    return ours.items() <= (meta.get("labels") or {}).items()
