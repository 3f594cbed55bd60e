"""A restore from a backup: every object comes back with a new uid, and owner references with the old one. Velero omits them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from halcyon.kube import kinds
from halcyon.kube.kinds import CHILDREN, Kind
from tests.integration.operator_space import Object, Space
from tests.integration.waiting import until

pytestmark = pytest.mark.more

_ASSIGNED = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")


def restored(obj: Object) -> Object:
    """Return the object as a backup tool creates it again: without what the API server assigns, and without its status."""
    copied = copy.deepcopy(obj)
    for name in _ASSIGNED:
        copied["metadata"].pop(name, None)
    copied.pop("status", None)
    for name in ("clusterIP", "clusterIPs"):
        if copied.get("kind") == "Service" and copied["spec"].get(name) != "None":
            copied["spec"].pop(name, None)
    return copied


def backup(space: Space) -> list[tuple[Kind, Object]]:
    """Return all objects of the operator, then the ModelDeployments."""
    children = [(kind, obj) for kind in CHILDREN for obj in space.every(kind) if obj["metadata"].get("ownerReferences")]
    return [*children, *((kinds.MODEL_DEPLOYMENT, obj) for obj in space.every(kinds.MODEL_DEPLOYMENT))]


def restore(space: Space, saved: list[tuple[Kind, Object]]) -> None:
    for kind, obj in saved:
        body = restored(obj) | {"apiVersion": kind.api_version, "kind": kind.kind}
        answer = space.api.call("POST", kind.path(space.namespace), body)
        assert answer.status == 201, answer


def owner(obj: Object) -> Any:
    return [reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ()]


def test_a_model_serves_again_after_a_restore_with_other_uids(space: Space) -> None:
    space.serve(replicas=2, scaling={"minReplicas": 1, "maxReplicas": 5})
    before, saved = space.must(kinds.MODEL_DEPLOYMENT, "m"), backup(space)
    revision = space.status()["revision"]["current"]
    space.delete(kinds.MODEL_DEPLOYMENT, "m")
    until(space.children, lambda children: not children, goal="all objects of the model are deleted", limit_s=60)

    restore(space, saved)
    uid = space.must(kinds.MODEL_DEPLOYMENT, "m")["metadata"]["uid"]
    assert uid != before["metadata"]["uid"]
    space.wait_settled(limit_s=90)
    until(
        lambda: [key for key, obj in space.children().items() if owner(obj) != [uid]],
        lambda foreign: not foreign,
        goal="every object belongs to the restored model",
        limit_s=60,
    )

    assert space.condition("Accepted")[0] == space.condition("Ready")[0] == "True"
    assert space.status()["revision"]["current"] == revision
    assert {key for key in space.children() if key[0] != "ReplicaSet"} >= {
        ("Deployment", "m-a"),
        ("Deployment", "m-balancer"),
        ("Service", "m"),
        ("ControllerRevision", revision),
    }
    # It follows changes of its spec and of its replicas as before.
    space.merge(kinds.MODEL_DEPLOYMENT, "m", {"spec": {"scaling": {"mode": "Paused"}, "replicas": 3}})
    until(space.replicas, lambda count: count == 3, goal="the Deployment has 3 replicas", limit_s=30)
    space.wait_settled(limit_s=60)
    assert backup(space)[-1][1]["status"]["replicas"] == 3
