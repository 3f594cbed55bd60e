"""Ownership of child objects, by the controlling owner in their ownerReferences. Pure."""

from __future__ import annotations

from typing import Any

from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind, Object
from halcyon.render import names
from halcyon.render.names import Slot


def belongs(obj: Object, uid: str) -> bool:
    """Return whether the controlling owner of `obj` is the object with this uid."""
    return any(o.get("uid") == uid and o.get("controller") for o in obj["metadata"].get("ownerReferences") or ())


def is_ours(scope: Scope, obj: Object) -> bool:
    """Return whether the controlling owner of `obj` is the ModelDeployment with this uid."""
    return belongs(obj, scope.meta["uid"])


def own(scope: Scope, kind: Kind, name: str) -> Object | None:
    """Return the object of this kind and name if this ModelDeployment owns it; else None."""
    child = scope.children.get((kind, name))
    return child if child is not None and is_ours(scope, child) else None


def child_condition(scope: Scope, kind: Kind, name: str, condition_type: str) -> dict[str, Any]:
    """Return the condition of this type in the status of an object that `own` returns; empty if it is absent."""
    conditions = ((own(scope, kind, name) or {}).get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == condition_type), {})


def server_counts(scope: Scope) -> dict[str, int]:
    """Return the replicas of a ModelDeployment's existing server Deployments, by the Deployment's name."""
    deployments = own_servers(scope).values()
    return {obj["metadata"]["name"]: int(obj["spec"].get("replicas") or 0) for obj in deployments}


def own_servers(scope: Scope) -> dict[Slot, Object]:
    """Return the existing server Deployments of a ModelDeployment, by slot."""
    slots = {slot: own(scope, kinds.DEPLOYMENT, names.server(scope.key.name, slot)) for slot in names.SLOTS}
    return {slot: deployment for slot, deployment in slots.items() if deployment is not None}
