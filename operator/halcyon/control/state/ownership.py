"""Which objects are a ModelDeployment's own. Pure."""

from __future__ import annotations

from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Kind
from halcyon.render import names


def is_ours(view: Scope, obj: Object) -> bool:
    """Whether the object's controller is this very ModelDeployment, not an earlier one of its name."""
    return any(
        o.get("controller") and o.get("uid") == view.meta["uid"] for o in obj["metadata"].get("ownerReferences") or ()
    )


def own(view: Scope, kind: Kind, name: str) -> Object | None:
    """The child of this name, unless it is somebody else's."""
    child = view.children.get((kind, name))
    return child if child is not None and is_ours(view, child) else None


def server_counts(view: Scope) -> dict[str, int]:
    """Replicas of its servers' Deployments that are there, by their names."""
    servers = [names.server(view.key.name, slot) for slot in names.SLOTS]
    found = {name: own(view, kinds.DEPLOYMENT, name) for name in servers}
    return {name: int(obj["spec"].get("replicas") or 0) for name, obj in found.items() if obj is not None}
