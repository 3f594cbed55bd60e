"""A model created again takes back the objects that Halcyon wrote for it, and no others; its server pods keep running."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from e2e.cluster.kubectl import Kubectl
from halcyon.kube import kinds
from halcyon.kube.apply_diff import DIGEST
from halcyon.kube.kinds import CHILDREN, Kind
from tests.integration.operator_space import REPLICA_SET, Object, Space, deployment
from tests.integration.waiting import always, until

SCALING = {"minReplicas": 1, "maxReplicas": 5, "actuator": "HPA"}
_ASSIGNED = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences")
_KINDS = {kind.kind: kind for kind in CHILDREN}
Children = dict[tuple[str, str], Object]


def uids(objects: Children) -> dict[tuple[str, str], str]:
    return {key: obj["metadata"]["uid"] for key, obj in objects.items()}


def owners(space: Space) -> set[str]:
    """Return the uids of the owners of all objects of models; "" for an object without an owner."""
    references = [obj["metadata"].get("ownerReferences") or [{"uid": ""}] for obj in space.children().values()]
    return {owner["uid"] for each in references for owner in each}


def server_pods(space: Space) -> dict[str, str]:
    """Return the uids of the server pods, by name."""
    pods = (pod["metadata"] for pod in space.every(kinds.POD))
    return {meta["name"]: meta["uid"] for meta in pods if meta["labels"]["app.kubernetes.io/component"] == "server"}


def plain(obj: Object) -> Object:
    """Return what was written of an object: without what differs between two objects with the same content."""
    meta = {k: v for k, v in obj["metadata"].items() if k not in _ASSIGNED}
    dropped = {DIGEST, "deployment.kubernetes.io/revision"}
    meta["annotations"] = {k: v for k, v in (meta.get("annotations") or {}).items() if k not in dropped}
    return {**{k: v for k, v in obj.items() if k != "status"}, "metadata": meta}


def delete_model(space: Space) -> None:
    """Delete the ModelDeployment, but none of its objects."""
    path = kinds.MODEL_DEPLOYMENT.path(space.namespace, "m")
    assert space.api.call("DELETE", path, {"propagationPolicy": "Orphan"}).status in {200, 202}
    until(lambda: space.get(kinds.MODEL_DEPLOYMENT, "m"), lambda model: model is None, goal="the model is deleted")
    assert owners(space) == {""}


def adopted(space: Space) -> set[str]:
    """Wait until the model m has taken back its objects and is served, and return those that its Events name."""
    uid = space.must(kinds.MODEL_DEPLOYMENT, "m")["metadata"]["uid"]
    until(lambda: owners(space), lambda now: now == {uid}, goal="the model owns all objects", limit_s=30)
    space.wait_settled(limit_s=60)
    notes = until(
        lambda: [event["note"] for event in space.events() if event["reason"] == "Adopted"], bool, goal="an Event"
    )
    assert not [event for event in space.events() if event["reason"] == "Conflict"]
    return {name for note in notes for name in note.partition(": ")[2].split(", ")}


@pytest.mark.parametrize("spec", [{}, {"scaling": SCALING}], ids=["fixed", "scaled by an HPA"])
def test_a_model_deleted_without_its_objects_takes_them_back(
    space: Space, kubectl: Kubectl, spec: dict[str, Any]
) -> None:
    space.serve(replicas=3, **spec)
    first = server_pods(space)
    kubectl("rollout", "restart", "deployment/m-a")
    until(
        lambda: server_pods(space).keys(),
        lambda now: len(now) == 3 and not now & first.keys(),
        goal="the pods are restarted",
        limit_s=60,
    )
    space.merge(kinds.SERVICE, "m", {"metadata": {"finalizers": ["example.com/load-balancer"]}})
    space.wait_settled(limit_s=60)
    before, pods = space.children(), server_pods(space)
    delete_model(space)
    # A manifest in a repository has no replicas if an autoscaler writes them.
    space.apply(deployment(**(spec or {"replicas": 3})))

    assert adopted(space) == {f"{kind} {name}" for kind, name in before}
    assert uids(space.children()) == uids(before)
    assert server_pods(space) == pods
    always(lambda: server_pods(space), lambda now: now == pods, goal="no pod is replaced", for_s=3)
    service = space.must(kinds.SERVICE, "m")
    assert service["metadata"]["finalizers"] == ["example.com/load-balancer"]
    assert service["spec"]["clusterIP"] == before["Service", "m"]["spec"]["clusterIP"]
    # The balancers alone have something of the new uid, the key of their drain.
    changed = {key for key, obj in space.children().items() if plain(obj) != plain(before[key])}
    assert changed == {("Deployment", "m-balancer")}
    space.merge(kinds.SERVICE, "m", {"metadata": {"finalizers": None}})


def restored(obj: Object, kind: Kind) -> Object:
    """Return an object as a backup tool creates it again."""
    copied = copy.deepcopy(obj) | {"apiVersion": kind.api_version, "kind": kind.kind}
    copied["metadata"] = {k: v for k, v in copied["metadata"].items() if k not in _ASSIGNED}
    copied["metadata"].setdefault("labels", {})["velero.io/restore-name"] = "nightly"
    copied.pop("status", None)
    if kind is kinds.SERVICE and copied["spec"].get("clusterIP") != "None":
        copied["spec"] = {k: v for k, v in copied["spec"].items() if k not in {"clusterIP", "clusterIPs"}}
    return copied


def restore(kubectl: Kubectl, saved: Children, change: Callable[[Object], None] | None = None) -> None:
    """Create objects again, as backup tools and kubectl do."""
    bodies = [restored(obj, _KINDS[word]) for (word, _), obj in saved.items()]
    if change is not None:
        for body in bodies:
            change(body)
    kubectl.apply(*bodies, arguments=())


def saved_and_deleted(space: Space, **spec: Any) -> Children:
    """Return the objects of a model that was served, and then deleted with all its objects."""
    space.serve(**spec)
    saved = space.children()
    space.delete(kinds.MODEL_DEPLOYMENT, "m")
    until(space.children, lambda children: not children, goal="all objects of the model are deleted", limit_s=60)
    until(lambda: space.every(kinds.POD), lambda pods: not pods, goal="its pods are deleted", limit_s=60)
    return saved


def test_objects_of_a_backup_without_owners_belong_to_their_restored_model(space: Space, kubectl: Kubectl) -> None:
    saved = saved_and_deleted(space, replicas=2)
    restore(kubectl, saved)
    pods = until(lambda: server_pods(space), lambda now: len(now) == 2, goal="the restored Deployment has its pods")
    before = space.children()

    space.apply(deployment(replicas=2))
    assert adopted(space) == {f"{kind} {name}" for kind, name in before}
    assert uids(space.children()) == uids(before)
    always(lambda: server_pods(space), lambda now: now == pods, goal="no pod is replaced", for_s=3)
    sets = [obj for obj in space.every(REPLICA_SET) if obj["metadata"]["ownerReferences"][0]["name"] == "m-a"]
    assert len(sets) == 1
    # They are the objects that Halcyon writes, without what another writer has added.
    changed = {key for key, obj in space.children().items() if plain(obj) != plain(saved[key]) and key[0] != "Service"}
    assert changed == {("Deployment", "m-balancer")}
    assert not [obj for obj in space.children().values() if "velero.io/restore-name" in obj["metadata"]["labels"]]
    # The model follows its spec as before.
    space.scale(3)
    until(space.replicas, lambda count: count == 3, goal="the Deployment has 3 replicas")
    space.wait_settled()


def forge(obj: Object) -> None:
    """Add to an object of a backup what Halcyon would not write."""
    kind, name = obj["kind"], obj["metadata"]["name"]
    obj["metadata"].setdefault("annotations", {})["example.com/role"] = "theirs"
    if kind == "Deployment":
        pod = obj["spec"]["template"]["spec"]
        pod |= {"serviceAccountName": "theirs", "serviceAccount": "theirs", "hostNetwork": True, "hostPID": True}
        pod["containers"].append({"name": "theirs", "image": "evil.example/theirs"})
        pod["containers"][0] |= {"image": "evil.example/theirs", "command": ["theirs"], "securityContext": {}}
        pod.setdefault("initContainers", []).append({"name": "before", "image": "evil.example/theirs"})
        pod.setdefault("volumes", []).append({"name": "host", "hostPath": {"path": "/"}})
        obj["spec"]["template"]["metadata"]["annotations"] = {"theirs": "1"}
        obj["spec"] |= {"replicas": 900 if name == "m-a" else 50, "paused": True, "minReadySeconds": 100}
    elif kind == "Service" and obj["spec"].get("clusterIP") != "None":
        obj["spec"]["ports"].append({"name": "theirs", "port": 9999})
        obj["spec"] |= {"sessionAffinity": "ClientIP", "externalIPs": ["192.0.2.1"]}
        obj["spec"]["selector"]["theirs"] = "1"
    elif kind == "ServiceAccount":
        obj |= {"imagePullSecrets": [{"name": "theirs"}], "automountServiceAccountToken": True}
    elif kind == "Role":
        obj["rules"] = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "delete"]}]
    elif kind == "RoleBinding":
        obj["subjects"].append({"kind": "ServiceAccount", "name": "theirs", "namespace": "default"})
    elif kind == "ConfigMap" and name == "m-balancer":
        obj["data"] |= {"theirs": "1", "accepted.json": "{}", "plan.json": "{}"}
    elif kind == "HorizontalPodAutoscaler":
        obj["spec"] |= {"minReplicas": 900, "maxReplicas": 900}
    elif kind == "PodDisruptionBudget":
        obj["spec"]["selector"]["matchLabels"]["theirs"] = "1"


def test_an_adopted_object_loses_all_forged_fields(space: Space, kubectl: Kubectl) -> None:
    saved = saved_and_deleted(space, replicas=2, scaling=SCALING)
    restore(kubectl, saved, forge)
    assert space.replicas() == 900
    space.apply(deployment(replicas=2, scaling=SCALING))
    uid = space.must(kinds.MODEL_DEPLOYMENT, "m")["metadata"]["uid"]
    until(lambda: owners(space), lambda now: now == {uid}, goal="the model owns all objects", limit_s=30)
    until(space.replicas, lambda count: count <= 5, goal="the replicas are within the limits", limit_s=30)
    space.scale(2)
    space.wait_settled(limit_s=90)

    for key, obj in space.children().items():
        before, after = plain(saved[key]), plain(obj)
        if key[0] == "Service":
            before["spec"], after["spec"] = (
                {k: v for k, v in o["spec"].items() if "IP" not in k} for o in (before, after)
            )
        if key == ("Deployment", "m-balancer"):
            (agent,), (restored_agent,) = (o["spec"]["template"]["spec"]["initContainers"] for o in (before, after))
            assert (restored_agent["image"], len(restored_agent["args"])) == (agent["image"], len(agent["args"]))
            for each in (before, after):
                each["spec"]["template"]["spec"].pop("initContainers")
                for container in each["spec"]["template"]["spec"]["containers"]:
                    container.pop("lifecycle")
        assert after == before, key
    pods = [pod for pod in space.every(kinds.POD) if pod["metadata"]["name"] in server_pods(space)]
    assert "theirs" not in str([pod["spec"] for pod in pods])


def _other_selector(obj: Object) -> None:
    obj["spec"]["selector"]["matchLabels"]["a"] = "b"
    obj["spec"]["template"]["metadata"]["labels"]["a"] = "b"


def _other_role(obj: Object) -> None:
    obj["roleRef"]["name"] = "theirs"


def _other_content(obj: Object) -> None:
    obj["data"]["overlay.json"] = "{}"


def _other_template(obj: Object) -> None:
    obj["data"]["key"] = "0123456789"


def _other_model(obj: Object) -> None:
    obj["metadata"]["labels"]["serving.halcyon.dev/model-deployment"] = "other"


def _no_digest(obj: Object) -> None:
    del obj["metadata"]["annotations"][DIGEST]


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        (kinds.DEPLOYMENT, "m-a", _other_selector),
        (kinds.ROLE_BINDING, "m-balancer", _other_role),
        (kinds.CONFIG_MAP, "m-overlay-.*", _other_content),
        (kinds.CONTROLLER_REVISION, "m-.*", _other_template),
        (kinds.SERVICE, "m", _other_model),
        (kinds.SERVICE_ACCOUNT, "m-balancer", _no_digest),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_forged_object_is_a_conflict_and_nothing_is_adopted(
    space: Space, kubectl: Kubectl, kind: Kind, name: str, change: Callable[[Object], None]
) -> None:
    saved = saved_and_deleted(space, replicas=1)
    forged = next(key for key in saved if key[0] == kind.kind and re.fullmatch(name, key[1]))
    restore(kubectl, saved, lambda obj: change(obj) if (obj["kind"], obj["metadata"]["name"]) == forged else None)
    before = plain(space.must(kind, forged[1]))
    space.apply(deployment())
    message = space.wait_condition("Accepted", "False", "Conflict")
    assert message.startswith(f"{kind.kind} {forged[1]} already exists and does not belong to this ModelDeployment")
    always(lambda: owners(space), lambda now: now == {""}, goal="nothing is adopted", for_s=1)
    assert plain(space.must(kind, forged[1])) == before

    space.delete(kind, forged[1])
    uid = space.must(kinds.MODEL_DEPLOYMENT, "m")["metadata"]["uid"]
    until(lambda: owners(space), lambda now: now == {uid}, goal="the others are adopted", limit_s=60)
    space.wait_settled(limit_s=60)


def test_a_removed_owner_reference_is_put_back(space: Space) -> None:
    space.serve()
    service = space.must(kinds.SERVICE, "m")
    space.merge(kinds.SERVICE, "m", {"metadata": {"ownerReferences": None}})
    now = until(
        lambda: space.must(kinds.SERVICE, "m"),
        lambda obj: obj["metadata"].get("ownerReferences") == service["metadata"]["ownerReferences"],
        goal="the Service belongs to the model",
    )
    assert now["metadata"]["uid"] == service["metadata"]["uid"]
    space.wait_settled()
    assert space.condition("Accepted")[0] == "True"
