"""Attempts of the hostile-input table that need more than a spec. Each returns its successes, one sentence each."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from tests.hostile import DIGEST, spec
from tests.integration.hostile_scene import HostileNamespace, model
from tests.integration.operator_space import MERGE, Object, Space
from tests.integration.waiting import until

NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)
QUOTA = Kind("v1", "ResourceQuota", "resourcequotas")


def labelled(children: list[Object], name: str, namespace: str) -> list[str]:
    """Return labels, annotations and names of stored children that can only come from the tenant."""
    lines = []
    for child in children:
        template = (child.get("spec") or {}).get("template") or {"metadata": {}}
        for meta in (child["metadata"], template["metadata"]):
            odd = [*(meta.get("labels") or {}), *(meta.get("annotations") or {})]
            lines += [
                f"{child['kind']} {name}: {key}"
                for key in odd
                if key.startswith(("sidecar.", "container.", "example.com/"))
            ]
        if child["metadata"]["namespace"] != namespace or len(child["metadata"]["name"]) > 253:
            lines.append(f"{child['kind']} {child['metadata']['namespace']}/{child['metadata']['name']}")
    return lines


def own_key(scene: HostileNamespace) -> list[str]:
    """Create a model next to the operator that uses the operator's key.

    No admission policy applies there, so the operator must detect it.
    """
    space, name = Space(scene.space.api, scene.operator.namespace), "r7-own"
    requested = spec(
        "runtime.env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "halcyon-tls", "key": "tls.key"}}}]
    )
    space.apply(model(name, requested))
    message = space.wait_condition("Accepted", "False", "PolicyDenied", name=name)
    left = [f"{kind} {child}" for kind, child in space.children() if child.startswith(name)]
    space.delete(kinds.MODEL_DEPLOYMENT, name)
    return left + ([] if "the operator's private key" in message else [message])


def gpus_of_a_namespace(scene: HostileNamespace) -> list[str]:
    """Create models that exceed the GPU budget only together, at the same time, and increase one with /scale."""
    requested, names = spec() | {"runtime": {"gpu": {"count": 8}}}, [f"r30-{n}" for n in range(6)]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: scene.space.apply(model(name, requested)), names))
    conditions = {
        name: until(lambda name=name: scene.space.condition("Accepted", name), any, goal=f"{name} is looked at")  # type: ignore[misc]
        for name in names
    }
    accepted = [name for name in names if conditions[name][0] == "True"]
    refused = {name: message for name, (_, reason, message) in conditions.items() if reason == "PolicyDenied"}
    full = "up to 24 GPUs. The limit for a namespace is 24 "
    escaped = [] if (len(accepted), len(refused)) == (3, 3) else [f"accepted {accepted}, refused {[*refused]}"]
    escaped += [message for message in refused.values() if full not in message]
    escaped += [f"{o['kind']} of {name}" for name in refused for o in scene.of(name)]
    scene.space.scale(9, accepted[0])
    scene.space.wait_condition("Accepted", "False", "PolicyDenied", name=accepted[0])
    count = scene.space.replicas(accepted[0])
    escaped += [f"{accepted[0]} has {count} replicas"] if count != 1 else []
    # It would take the GPUs that the next model leaves, because it requests more than it has.
    scene.space.scale(1, accepted[0])
    scene.space.wait_condition("Accepted", "True", name=accepted[0])
    scene.end(accepted[1])
    # Its GPUs go to the models that were rejected, and only to one of them.
    later = until(
        lambda: [name for name in refused if scene.space.condition("Accepted", name)[0] == "True"],
        bool,
        goal="one that was refused is accepted",
    )
    return escaped + ([] if len(later) == 1 else [f"{later} were accepted"])


def numbers_that_json_has_not(scene: HostileNamespace) -> list[str]:
    """Send NaN and infinity, as some clients write them."""
    escaped = []
    for text in ("NaN", "Infinity", "1e309"):
        body = json.dumps(model("r33", spec() | {"replicas": 77})).replace("77", text)
        answer = scene.send_text(body, content="application/json")
        escaped += [] if answer.status in {400, 422} else [f"{text}: {answer.status}"]
    return escaped


def own_labels(scene: HostileNamespace) -> list[str]:
    """Set labels on a ModelDeployment, which no child may have."""
    labels = {
        "sidecar.istio.io/inject": "true",
        "serving.halcyon.dev/model-deployment": "other",
        "example.com/app": "victim",
    }
    annotations = {"container.apparmor.security.beta.kubernetes.io/triton": "unconfined", "example.com/note": "x"}
    scene.serve("r41", labels=labels, annotations=annotations)
    escaped = labelled(scene.of("r41"), "r41", scene.space.namespace)
    escaped += [f"{o['kind']} of other" for o in scene.of("other")]
    return escaped


def annotations_without_end(scene: HostileNamespace) -> list[str]:
    """Set as many annotations as Kubernetes allows. The operator stores nothing there that might no longer fit."""
    scene.serve("r43", annotations={"example.com/a": "x" * 250_000})
    return []


_BOMB = "\n".join(
    [
        "a: &a [x,x,x,x,x,x,x,x,x]",
        *(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    ]
)
"""YAML in which aliases expand to nine to the ninth copies of one letter."""


def yaml_bombs(scene: HostileNamespace) -> list[str]:
    """Send YAML with aliases that multiply, and with duplicate keys."""
    head = "apiVersion: serving.halcyon.dev/v1alpha1\nkind: ModelDeployment\nmetadata: {name: r44}\n"
    twice = f"{head}spec: {json.dumps(spec())}\nspec: {{}}\n"
    escaped = []
    for text in (f"{head}{_BOMB}\nspec: *i\n", twice):
        answer = scene.send_text(text, content="application/yaml", validation="Strict")
        escaped += [] if 400 <= answer.status < 500 else [f"{answer.status}: {text[:200]}"]
    return escaped


def another_source(scene: HostileNamespace) -> list[str]:
    """Change the kind of the source.

    This is a new revision like any other: the old one serves until the new one can.
    """
    scene.serve("r45")
    before = scene.space.must(kinds.DEPLOYMENT, "r45-a")["spec"]["template"]
    scene.space.merge(
        kinds.MODEL_DEPLOYMENT,
        "r45",
        {"spec": {"model": {"source": {"configMap": None, "persistentVolumeClaim": {"claimName": "nobodys"}}}}},
    )
    scene.space.wait_condition("Accepted", "False", "SourceNotFound", name="r45")
    after = scene.space.must(kinds.DEPLOYMENT, "r45-a")["spec"]["template"]
    return [] if after == before else ["the servers changed"]


def somebody_s_name(scene: HostileNamespace) -> list[str]:
    """Create a Service with the name that the model's Service would have."""
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "r46"},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
    }
    scene.space.apply(theirs)
    before = scene.space.must(kinds.SERVICE, "r46")["metadata"]["resourceVersion"]
    scene.space.apply(model("r46", spec()))
    scene.space.wait_condition("Accepted", "False", "Conflict", name="r46")
    after = scene.space.must(kinds.SERVICE, "r46")["metadata"]["resourceVersion"]
    children = [o["kind"] for o in scene.of("r46") if o["kind"] != "Service"]
    return children + ([] if after == before else ["their Service was written"])


def spoofed_owner(scene: HostileNamespace) -> list[str]:
    """Write to the ConfigMap that stores the accepted spec, while the current spec is rejected."""
    scene.serve("r47", spec() | {"replicas": 1})
    scene.space.scale(900, "r47")
    scene.space.wait_condition("Accepted", "False", "PolicyDenied", name="r47")
    kept = scene.space.must(kinds.CONFIG_MAP, "r47-balancer")["data"]["accepted.json"]
    forged = json.loads(kept)
    forged["traffic"]["service"] = {"type": "NodePort"}
    forged["runtime"]["image"] = f"evil.example/triton@{DIGEST}"
    scene.space.merge(kinds.CONFIG_MAP, "r47-balancer", {"data": {"accepted.json": json.dumps(forged)}})
    # The operator detects this: the accepted spec stays in force, and is written again.
    until(
        lambda: scene.space.must(kinds.CONFIG_MAP, "r47-balancer")["data"]["accepted.json"],
        lambda text: text == kept,
        goal="the accepted spec is there again",
        limit_s=20,
    )
    service, servers = scene.space.must(kinds.SERVICE, "r47"), scene.space.must(kinds.DEPLOYMENT, "r47-a")
    escaped = [] if service["spec"]["type"] == "ClusterIP" else ["the Service is of the forged type"]
    escaped += [] if "evil" not in json.dumps(servers) else ["the servers run the forged image"]
    escaped += [] if servers["spec"]["replicas"] <= 64 else [f"{servers['spec']['replicas']} replicas"]
    message = scene.space.condition("Accepted", "r47")[2]
    return escaped + ([] if "stays in effect" in message else [message])


def finalizers(scene: HostileNamespace) -> list[str]:
    """Add a foreign finalizer, and edit the object during its deletion. Nothing may be left or recreated."""
    scene.serve("r48", finalizers=["example.com/hold"])
    scene.space.delete(kinds.MODEL_DEPLOYMENT, "r48")
    scene.space.merge(kinds.MODEL_DEPLOYMENT, "r48", {"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 3}})
    scene.space.merge(kinds.MODEL_DEPLOYMENT, "r48", {"metadata": {"finalizers": None}})
    scene.end("r48")
    return []


def own_status(scene: HostileNamespace) -> list[str]:
    """Write to the status. The operator must restore it, and not act on it."""
    scene.serve("r49")
    before = scene.space.status("r49")["pods"]
    claimed = {"replicas": 900, "pods": {**before, "total": 900, "ready": 900}, "conditions": []}
    path = kinds.MODEL_DEPLOYMENT.path(scene.space.namespace, "r49", "status")
    answer = scene.space.api.call("PATCH", path, {"status": claimed}, content_type=MERGE)
    assert answer.status == 200, answer
    until(lambda: scene.space.status("r49").get("pods"), lambda r: r == before, goal="the status is right", limit_s=20)
    return [] if scene.space.replicas("r49") == 1 else ["the servers follow the status"]


def broken_annotations(scene: HostileNamespace) -> list[str]:
    """Break the annotations of the operator's framework, which the operator must not need."""
    broken = {
        "kopf.zalando.org/last-handled-configuration": "{",
        "kopf.zalando.org/reconcile": "}",
        "serving.halcyon.dev/refresh": "{",
    }
    scene.serve("r50", annotations=broken)
    return []


def no_node(scene: HostileNamespace) -> list[str]:
    """Request more GPUs than any node has."""
    scene.space.apply(model("r62", spec() | {"runtime": {"gpu": {"count": 16}}}))
    scene.space.wait_condition("ServersReady", "False", "Unschedulable", name="r62")
    return []


def without_pause(scene: HostileNamespace) -> list[str]:
    """Create and delete a model as fast as possible, while another one is to be served."""
    for _ in range(25):
        scene.space.apply(model("r65", spec()))
        scene.space.api.call("DELETE", kinds.MODEL_DEPLOYMENT.path(scene.space.namespace, "r65"))
    scene.serve("r65b")
    scene.end("r65")
    return []


def quota(scene: HostileNamespace) -> list[str]:
    """Create more models than a ResourceQuota allows."""
    space = scene.other(f"quota-{uuid.uuid4().hex[:8]}")
    counted = "count/modeldeployments.serving.halcyon.dev"
    body = {"metadata": {"name": "models"}, "spec": {"hard": {counted: "2"}}}
    answer = space.api.call("POST", QUOTA.path(space.namespace), body)
    assert answer.status == 201, answer

    limits = {"hard": ""}

    def ask() -> None:
        # A kind that is new to the quota controller is counted at the next change of the quota, or minutes later.
        limits["hard"] = str(next(changes))
        space.merge(QUOTA, "models", {"spec": {"hard": {"count/configmaps": limits["hard"]}}})

    def used() -> str:
        """Return the usage that the controller counted after our last change; empty before. No older count follows."""
        status = space.must(QUOTA, "models").get("status") or {}
        if (status.get("hard") or {}).get("count/configmaps") != limits["hard"]:
            return ""
        usage = str((status.get("used") or {}).get(counted, ""))
        ask()
        return usage

    def create(number: int) -> int:
        path = kinds.MODEL_DEPLOYMENT.path(space.namespace)
        return int(space.api.call("POST", path, model(f"r66-{number}", spec())).status)

    changes = itertools.count(100)
    ask()
    until(used, lambda usage: usage == "0", goal="the quota counts models", limit_s=60, every_s=0.5)
    answers = [create(0), create(1)]
    until(used, lambda usage: usage == "2", goal="the quota has counted both", limit_s=60, every_s=0.5)
    answers += [create(2), create(3)]
    space.end()
    return [] if answers == [201, 201, 403, 403] else [f"the quota of 2 let in {answers}"]


def namespace_that_ends(scene: HostileNamespace) -> list[str]:
    """Create a model in a namespace that is being deleted."""
    space = scene.other(f"ends-{uuid.uuid4().hex[:8]}")
    space.apply(model("r67", spec(), finalizers=["example.com/hold"]))
    space.end()
    until(
        lambda: space.api.call("GET", NAMESPACE.path(name=space.namespace)).body,
        lambda body: (body or {}).get("status", {}).get("phase") == "Terminating",
        goal="the namespace ends",
    )
    late = space.api.call("POST", kinds.MODEL_DEPLOYMENT.path(space.namespace), model("r67-late", spec()))
    space.merge(kinds.MODEL_DEPLOYMENT, "r67", {"metadata": {"finalizers": None}})
    until(
        lambda: space.api.call("GET", NAMESPACE.path(name=space.namespace)).status,
        lambda status: status == 404,
        goal="the namespace is gone",
        limit_s=60,
    )
    return [] if late.status == 403 else [f"a model in a namespace that ends: {late.status}"]


def longest_names(scene: HostileNamespace) -> list[str]:
    """Use the longest namespace name with the longest model name."""
    space = scene.other(f"long-{uuid.uuid4().hex[:8]}-".ljust(63, "n"))
    name = "r68".ljust(52, "m")
    space.apply(model(name, spec()))
    space.wait_settled(name)
    escaped = labelled(list(space.children().values()), name, space.namespace)
    space.end()
    return escaped


DEEDS: dict[str, Callable[[HostileNamespace], list[str]]] = {
    deed.__name__: deed
    for deed in (
        own_key,
        gpus_of_a_namespace,
        numbers_that_json_has_not,
        own_labels,
        annotations_without_end,
        yaml_bombs,
        another_source,
        somebody_s_name,
        spoofed_owner,
        finalizers,
        own_status,
        broken_annotations,
        no_node,
        without_pause,
        quota,
        namespace_that_ends,
        longest_names,
    )
}
