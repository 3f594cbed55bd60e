"""Objects of our names that are somebody else's are left alone; what is ours comes back; what isn't ours in it stays."""

from collections.abc import Callable
from typing import Any

import pytest

from halcyon.kube import kinds
from halcyon.kube.kinds import CHILDREN, Kind
from tests.integration.operator_process import Operator
from tests.integration.operator_space import Object, Space, deployment, files
from tests.integration.waiting import always, until

SCALING = {"maxReplicas": 4, "actuator": "HPA"}
_KINDS = {k.kind: k for k in CHILDREN}
POD: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "localhost/none"}]}}
THEIRS: dict[str, Object] = {
    "Deployment": {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "m-a"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": POD},
    },
    "Service": {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "m"}, "spec": {"ports": [{"port": 80}]}},
    "HorizontalPodAutoscaler": {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "m"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}, "maxReplicas": 2},
    },
    "ConfigMap": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m-balancer"}, "data": {"theirs": "1"}},
    "ServiceAccount": {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "m-balancer"}},
}


def spec_of(obj: Object) -> Any:
    """All but what controllers measure in it."""
    meta = {k: v for k, v in obj["metadata"].items() if k not in {"managedFields", "resourceVersion"}}
    return {**{k: v for k, v in obj.items() if k != "status"}, "metadata": meta}


def reasons(space: Space, owner: str) -> Callable[[], list[str]]:
    """A look at the reasons of the events about a ModelDeployment."""
    return lambda: [e["reason"] for e in space.events(owner)]


@pytest.mark.parametrize("labelled", [False, True], ids=["not-labelled", "labelled-as-ours"])
def test_a_conflicting_object_is_left_untouched_and_no_other_is_made(space: Space, labelled: bool) -> None:
    theirs: dict[str, tuple[Kind, Object]] = {}
    for number, (word, obj) in enumerate(THEIRS.items()):
        owner = f"m{number}"
        name = owner + obj["metadata"]["name"][1:]
        labels = {"app.kubernetes.io/managed-by": "halcyon", "serving.halcyon.dev/model-deployment": owner}
        theirs[owner] = (_KINDS[word], {**obj, "metadata": {"name": name, "labels": labels if labelled else {}}})
    space.apply(files(), *(obj for _, obj in theirs.values()))
    names = {owner: obj["metadata"]["name"] for owner, (_, obj) in theirs.items()}
    # Their own controllers have had their say: that of Deployments writes an annotation.
    for owner, (kind, _) in theirs.items():
        if kind is kinds.DEPLOYMENT:
            until(
                lambda name=names[owner]: space.must(kinds.DEPLOYMENT, name)["metadata"].get("annotations") or {},  # type: ignore[misc]
                lambda annotations: "deployment.kubernetes.io/revision" in annotations,
                goal="the Deployment is taken up",
            )
    before = {owner: spec_of(space.must(kind, names[owner])) for owner, (kind, _) in theirs.items()}
    for owner in theirs:
        space.apply(deployment(owner, scaling=SCALING))
    for owner, (kind, _) in theirs.items():
        message = space.wait_condition("Accepted", "False", "Conflict", name=owner)
        assert f"{kind.kind} {names[owner]} already exists and does not belong to this ModelDeployment" in message
        assert space.condition("Stalled", owner)[:2] == ("True", "Conflict")
        # The files come by another watch than the models: whoever is planned before them says so first.
        until(
            lambda owner=owner: [r for r in reasons(space, owner)() if r != "SourceNotFound"],  # type: ignore[misc]
            lambda r: r == ["Conflict"],
            goal="an event tells it",
        )
    labelled_names = {(kind.kind, names[owner]) for owner, (kind, _) in theirs.items() if labelled}
    always(
        lambda: space.children().keys() - labelled_names,
        lambda children: not children,
        goal="nothing is made",
        for_s=0.5,
    )
    assert {owner: spec_of(space.must(kind, names[owner])) for owner, (kind, _) in theirs.items()} == before

    for owner, (kind, _) in theirs.items():
        space.delete(kind, names[owner])
    for owner, (kind, _) in theirs.items():
        space.wait_settled(owner, limit_s=20)
        assert space.must(kind, names[owner])["metadata"]["ownerReferences"][0]["name"] == owner


def test_a_model_deployment_recreated_at_once_gets_children_of_its_own(space: Space) -> None:
    space.serve()
    old = space.must(kinds.MODEL_DEPLOYMENT, "m")["metadata"]["uid"]
    space.delete(kinds.MODEL_DEPLOYMENT, "m")
    space.apply(deployment())
    space.wait_settled(limit_s=30)
    new = space.must(kinds.MODEL_DEPLOYMENT, "m")["metadata"]["uid"]
    assert new != old
    owners = {o["metadata"]["ownerReferences"][0]["uid"] for o in space.children().values()}
    assert owners == {new}
    assert len(space.children()) == 13


def test_every_child_that_is_deleted_comes_back(space: Space) -> None:
    space.serve(scaling=SCALING)
    before = {key: obj["metadata"]["uid"] for key, obj in space.children().items()}
    for kind, name in before:
        space.delete(_KINDS[kind], name)
    until(
        lambda: {key: obj["metadata"]["uid"] for key, obj in space.children().items()},
        lambda now: now.keys() == before.keys() and not set(now.values()) & set(before.values()),
        goal="every child is there again",
        limit_s=15,
    )


EDITS: list[tuple[str, str, Object]] = [
    ("Deployment", "m-a", {"spec": {"replicas": 5}}),
    ("Deployment", "m-a", {"metadata": {"labels": {"app.kubernetes.io/component": "theirs"}}}),
    ("Deployment", "m-balancer", {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}),
    ("Service", "m", {"spec": {"selector": {"app.kubernetes.io/component": "theirs"}}}),
    ("Service", "m-server-a", {"spec": {"ports": [{"name": "http", "port": 8000, "targetPort": "x"}]}}),
    ("PodDisruptionBudget", "m-a", {"spec": {"maxUnavailable": 3}}),
    ("ConfigMap", "m-balancer", {"data": {"plan.json": "{}"}}),
    ("Role", "m-balancer", {"rules": []}),
    ("RoleBinding", "m-balancer", {"subjects": []}),
    ("ServiceAccount", "m-balancer", {"automountServiceAccountToken": True}),
    ("HorizontalPodAutoscaler", "m", {"spec": {"maxReplicas": 9}}),
    ("ControllerRevision", "", {"metadata": {"labels": {"app.kubernetes.io/component": "theirs"}}}),
]


def test_every_edit_of_a_child_is_set_right(space: Space) -> None:
    space.serve(scaling=SCALING)
    record = space.every(kinds.CONTROLLER_REVISION)[0]["metadata"]["name"]
    for kind, child_name, body in EDITS:
        name = child_name or record
        before = without_versions(space.must(_KINDS[kind], name))
        space.merge(_KINDS[kind], name, body)
        until(
            lambda kind=kind, name=name: without_versions(space.must(_KINDS[kind], name)),  # type: ignore[misc]  # defaults
            lambda now, before=before: now == before,  # type: ignore[misc]
            goal=f"{kind} {name} is as it was after {body}",
            limit_s=5,
        )


def without_versions(obj: Object) -> Object:
    """What was asked for."""
    plain = spec_of(obj)
    plain["metadata"].pop("generation", None)
    plain["metadata"].get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
    return dict(plain)


def test_a_finished_edit_by_another_field_manager_is_set_right_as_well(space: Space) -> None:
    space.serve()
    edit = {**THEIRS["Service"], "spec": {"selector": {"app.kubernetes.io/component": "theirs"}}}
    space.apply(edit, manager="somebody")
    until(
        lambda: space.must(kinds.SERVICE, "m")["spec"]["selector"]["app.kubernetes.io/component"],
        lambda component: component == "balancer",
        goal="the selector is ours again",
        limit_s=5,
    )


def test_labels_annotations_and_fields_of_others_stay(space: Space) -> None:
    space.serve()
    theirs: Object = {
        "metadata": {"labels": {"team": "blue"}, "annotations": {"note": "theirs"}},
        "spec": {"sessionAffinity": "ClientIP"},
    }
    space.merge(kinds.SERVICE, "m", theirs)
    space.merge(kinds.SERVICE, "m", {"metadata": {"labels": {"app.kubernetes.io/managed-by": "somebody"}}})
    service = until(
        lambda: space.must(kinds.SERVICE, "m"),
        lambda s: s["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "halcyon",
        goal="our label is back",
        limit_s=5,
    )
    assert service["metadata"]["labels"]["team"] == "blue"
    assert service["metadata"]["annotations"]["note"] == "theirs"
    assert service["spec"]["sessionAffinity"] == "ClientIP"


def test_a_port_added_by_another_writer_stays(space: Space, operator: Operator) -> None:
    # Ports are a map for server-side apply: an item of another manager is not ours to remove.
    space.serve()
    space.apply({**THEIRS["Service"], "spec": {"ports": [{"name": "admin", "port": 9999}]}}, manager="somebody")
    version = until(
        lambda: space.must(kinds.SERVICE, "m")["metadata"]["resourceVersion"],
        lambda _: len(space.must(kinds.SERVICE, "m")["spec"]["ports"]) == 3,
        goal="it is there",
    )
    # What earlier tests have left is still being deleted, and that has the operator write.
    until(lambda: operator.metrics()["halcyon_model_deployments"], lambda n: n == 1, goal="this one is the only one")
    written = operator.metrics()["halcyon_api_writes_total"]
    space.scale(2)
    space.wait_settled()
    assert space.must(kinds.SERVICE, "m")["metadata"]["resourceVersion"] == version
    assert operator.metrics()["halcyon_api_writes_total"] - written <= 8
