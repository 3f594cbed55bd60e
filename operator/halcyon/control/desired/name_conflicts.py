"""Name conflicts: existing objects with a name that a ModelDeployment needs, but with another owner. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.conditions import Reason
from halcyon.control.desired.acceptance_result import Acceptance
from halcyon.control.state.ownership import is_ours
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.kinds import Object, kind_of


@dataclass(frozen=True)
class ConflictingObject:
    """Existing object with a name that the ModelDeployment needs, but with another owner."""

    kind: str
    name: str
    leaving: bool
    """Whether the object's owner is a deleted ModelDeployment of the same name. The object will then be
    garbage-collected."""


def conflicting_objects(scope: Scope, desired: list[Object]) -> list[ConflictingObject]:
    """Return the existing objects that have the name of one of `desired` but don't belong to this ModelDeployment."""
    conflicts = []
    for obj in desired:
        existing = scope.children.get((kind_of(obj), obj["metadata"]["name"]))
        if existing is not None and not is_ours(scope, existing):
            owners = existing["metadata"].get("ownerReferences") or ()
            others = (o for o in owners if o.get("controller") and o.get("uid") != scope.meta["uid"])
            same_name = (kinds.MODEL_DEPLOYMENT.kind, scope.key.name)
            leaving = any((o.get("kind"), o.get("name")) == same_name for o in others)
            conflicts.append(ConflictingObject(obj["kind"], obj["metadata"]["name"], leaving=leaving))
    return conflicts


def conflict(conflicts: list[ConflictingObject]) -> Acceptance:
    """Return the rejection of a spec because of conflicting objects. Its message names them."""
    objects = ", ".join(f"{s.kind} {s.name}" for s in conflicts)
    if all(s.leaving for s in conflicts):
        message = f"Halcyon is waiting for the deletion of {objects} of a deleted ModelDeployment with the same name"
    else:
        message = (
            f"{objects} already exists and does not belong to this ModelDeployment; Halcyon will not modify it. Delete "
            "it, recreate it under another name, or choose another name for the ModelDeployment"
        )
        if len(conflicts) > 1:
            message = (
                f"{objects} already exist and do not belong to this ModelDeployment; Halcyon will not modify them. Delete "
                "them, recreate them under other names, or choose another name for the ModelDeployment"
            )
    return Acceptance(accepted=False, reason=Reason.CONFLICT, message=message)
