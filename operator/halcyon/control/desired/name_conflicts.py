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
    """Existing object that has a name which the ModelDeployment needs, but that has another owner."""

    kind: str
    name: str
    leaving: bool
    """Whether the object's owner is a deleted ModelDeployment of the same name. The object will then be
    garbage-collected."""


def conflicting_objects(view: Scope, objects: list[Object]) -> list[ConflictingObject]:
    """Return the existing objects that have the name of one of `objects` but don't belong to this ModelDeployment."""
    found = []
    for wanted in objects:
        there = view.children.get((kind_of(wanted), wanted["metadata"]["name"]))
        if there is not None and not is_ours(view, there):
            owners = there["metadata"].get("ownerReferences") or ()
            former = (o for o in owners if o.get("controller") and o.get("uid") != view.meta["uid"])
            leaving = any(
                (o.get("kind"), o.get("name")) == (kinds.MODEL_DEPLOYMENT.kind, view.key.name) for o in former
            )
            found.append(ConflictingObject(wanted["kind"], wanted["metadata"]["name"], leaving=leaving))
    return found


def conflict(conflicts: list[ConflictingObject]) -> Acceptance:
    """Return the result for a spec that is not accepted because of conflicting objects.

    Its message names these objects.
    """
    said = ", ".join(f"{s.kind} {s.name}" for s in conflicts)
    if all(s.leaving for s in conflicts):
        message = f"waiting for the deletion of {said}, which belonged to a deleted ModelDeployment of the same name"
    else:
        found, it = f"{said} already exists and does not belong to this ModelDeployment", "it"
        if len(conflicts) > 1:
            found, it = f"{said} already exist and do not belong to this ModelDeployment", "them"
        message = (
            f"{found}; Halcyon will not modify {it}. Delete {it} (or recreate {it} under another name), or choose "
            "another name for the ModelDeployment"
        )
    return Acceptance(accepted=False, reason=Reason.CONFLICT, message=message)
