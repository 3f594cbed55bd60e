"""Name conflicts: existing objects with a name that a ModelDeployment needs, but with another owner or with none. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.conditions import Reason
from halcyon.control.desired.acceptance_result import Acceptance
from halcyon.control.objects.orphans import is_orphan
from halcyon.control.state.ownership import is_ours
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind, Object, kind_of


@dataclass(frozen=True)
class ConflictingObject:
    """Existing object with a name that the ModelDeployment needs, but with another owner or with none."""

    kind: str
    name: str
    leaving: bool
    """Whether the object's owner is a deleted ModelDeployment of the same name. The object will then be
    garbage-collected."""
    orphaned: bool = False
    """Whether Halcyon wrote the object for this model, and it has no owner now. The ModelDeployment then adopts it."""


def conflicting_objects(scope: Scope, desired: list[Object]) -> list[ConflictingObject]:
    """Return the existing objects that have the name of one of `desired` but don't belong to this ModelDeployment."""
    conflicts = []
    for obj in desired:
        kind, name = kind_of(obj), obj["metadata"]["name"]
        existing = scope.children.get((kind, name))
        if existing is not None and not is_ours(scope, existing):
            owners = existing["metadata"].get("ownerReferences") or ()
            others = (o for o in owners if o.get("controller") and o.get("uid") != scope.meta["uid"])
            same_name = (kinds.MODEL_DEPLOYMENT.kind, scope.key.name)
            leaving = any((o.get("kind"), o.get("name")) == same_name for o in others)
            orphaned = is_orphan(existing, kind, scope.key.name)
            conflicts.append(ConflictingObject(obj["kind"], name, leaving=leaving, orphaned=orphaned))
    return conflicts


def orphans(scope: Scope) -> tuple[tuple[Kind, str], ...]:
    """Return the kind and name of each object that the ModelDeployment adopts, including those that it no longer needs."""
    return tuple(child for child, obj in scope.children.items() if is_orphan(obj, child[0], scope.key.name))


def conflict(conflicts: list[ConflictingObject]) -> Acceptance:
    """Return the rejection of a spec because of conflicting objects. Its message names them.

    It names objects that will be adopted only if there are no others.
    """
    others = [s for s in conflicts if not s.orphaned]
    objects = ", ".join(f"{s.kind} {s.name}" for s in others or conflicts)
    if not others:
        message = f"Halcyon is adopting {objects}, which it created for a ModelDeployment with the same name"
    elif all(s.leaving for s in others):
        message = f"Halcyon is waiting for the deletion of {objects} of a deleted ModelDeployment with the same name"
    else:
        message = (
            f"{objects} already exists and does not belong to this ModelDeployment; Halcyon will not modify it. Delete "
            "it, recreate it under another name, or choose another name for the ModelDeployment"
        )
        if len(others) > 1:
            message = (
                f"{objects} already exist and do not belong to this ModelDeployment; Halcyon will not modify them. Delete "
                "them, recreate them under other names, or choose another name for the ModelDeployment"
            )
    return Acceptance(accepted=False, reason=Reason.CONFLICT, message=message)
