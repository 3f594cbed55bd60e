"""Objects as in the API server and the caches, for tests of the controller's pure code."""

from __future__ import annotations

from typing import Any

from halcyon.api.spec.parse import SpecError, parse
from halcyon.control.desired.plan import ReconcilePlan, make
from halcyon.control.objects import pods
from halcyon.control.state.scope import Scope, SourceState
from halcyon.kube.client import Object
from halcyon.kube.kinds import Kind, kind_of
from halcyon.render import names
from tests.unit.control.copies import copied
from tests.unit.render.rendered import SITE

UID = "0c8a9a4e-0000-4000-8000-000000000001"
PVC: dict[str, Any] = {"persistentVolumeClaim": {"claimName": "models"}}


def resource(spec: dict[str, Any] | None = None, *, generation: int = 1, status: Object | None = None) -> Object:
    """A ModelDeployment `team/digits`."""
    return {
        "apiVersion": "serving.halcyon.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"namespace": "team", "name": "digits", "uid": UID, "generation": generation},
        "spec": {"model": {"source": PVC}, "runtime": {"gpu": {"count": 1}}} | (spec or {}),
        "status": status or {},
    }


def scope_of(spec: dict[str, Any] | None = None, **fields: Any) -> Scope:
    """Return the scope of a new ModelDeployment."""
    return Scope(**{"resource": resource(spec), "site": SITE, "children": {}, "source": SourceState(), **fields})


def applied_children(before: Scope, planned: ReconcilePlan | None = None) -> dict[tuple[Kind, str], Object]:
    """Return the children after this scope's plan was applied."""
    applied = planned or make(before)
    return {(kind_of(o), o["metadata"]["name"]): copied(o) for o in (*applied.first, *applied.then)}


def conflicting_object(kind: Kind, name: str, *, owner_uid: str = "", owner_name: str = "digits") -> Object:
    """Return a conflicting object, without owner or with another ModelDeployment as owner."""
    owners = (
        [{"kind": "ModelDeployment", "name": owner_name, "uid": owner_uid, "controller": True}] if owner_uid else []
    )
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"namespace": "team", "name": name, "ownerReferences": owners},
        "spec": {"template": {"metadata": {"labels": {"app": "theirs"}}}},
        "status": {"availableReplicas": 3, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1},
    }


def pod(
    name: str,
    *,
    ready: bool,
    revision: str = "",
    unschedulable: str = "",
    containers: list[Any] | None = None,
    init: list[Any] | None = None,
    phase: str = "Running",
    deleted: bool = False,
) -> Object:
    """Return a model pod as in the caches."""
    conditions = [{"type": "Ready", "status": str(ready), "reason": "", "message": ""}]
    if unschedulable:
        conditions.append(
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": unschedulable}
        )
    return pods.project(
        {
            "metadata": {
                "namespace": "team",
                "name": name,
                "uid": name,
                "resourceVersion": "1",
                "labels": {names.REVISION_LABEL: revision},
                "deletionTimestamp": "2026-01-01T00:00:00Z" if deleted else None,
            },
            "status": {
                "phase": phase,
                "conditions": conditions,
                "containerStatuses": containers or [],
                "initContainerStatuses": init or [],
            },
        }
    )


def is_valid(spec: dict[str, Any]) -> bool:
    """Return True if the spec can be parsed."""
    try:
        parse("digits", spec)
    except SpecError:
        return False
    return True
