"""What others do to a model's objects, on a real API server, Deployment controller and scheduler: it is reported, and fails no model.

Pods are KWOK's. Containers and scheduling gates are added by a real mutating admission webhook, which this test serves.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.kubectl import Kubectl
from e2e.cluster.kwok import HOLD
from halcyon.kube import kinds
from tests.integration.certificates import pair
from tests.integration.operator_space import Object, Space, deployment
from tests.integration.waiting import always, until

pytestmark = pytest.mark.more

_HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
GATE = {"name": "kueue.x-k8s.io/admission"}
SIDECAR = {"name": "istio-proxy", "image": "proxy:1"}
NODES = "/api/v1/nodes"


@contextlib.contextmanager
def webhook(space: Space, folder: Path, patch: list[Object]) -> Iterator[None]:
    """Apply a JSON patch to each new pod of the namespace."""
    certificate = pair()
    (folder / "crt").write_text(certificate.crt)
    (folder / "key").write_text(certificate.key)

    class Hook(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = base64.b64encode(json.dumps(patch).encode()).decode()
            response = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": text}
            body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "crt", folder / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hook: Object = {
        "name": "inject.example.com",
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_port}/",
            "caBundle": base64.b64encode(certificate.crt.encode()).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
    }
    space.api.create(_HOOKS, {"metadata": {"name": space.namespace}, "webhooks": [hook]})
    probe = {
        "metadata": {"name": "probe"},
        "spec": {"initContainers": [{"name": "i", "image": "c:1"}], "containers": [{"name": "c", "image": "c:1"}]},
    }
    path = f"{kinds.POD.path(space.namespace)}?dryRun=All"
    # The API server reads its webhooks from a cache.
    until(
        lambda: space.api.call("POST", path, probe).body,
        lambda pod: pod is not None and _is_patched(pod, patch),
        goal="pods are patched",
    )
    try:
        yield
    finally:
        space.api.call("DELETE", f"{_HOOKS}/{space.namespace}")
        server.shutdown()
        server.server_close()


def _is_patched(pod: Object, patch: list[Object]) -> bool:
    text = json.dumps(pod["spec"])
    return all(
        json.dumps(change["value"]["name"] if isinstance(change["value"], dict) else change["value"][0]["name"]) in text
        for change in patch
    )


def add(path: str, value: Any) -> Object:
    return {"op": "add", "path": path, "value": value}


def model_pods(space: Space) -> list[Object]:
    pods = [p for p in space.every(kinds.POD) if p["metadata"]["name"].startswith("m-a-")]
    return [p for p in pods if not p["metadata"].get("deletionTimestamp")]


def test_pods_behind_a_scheduling_gate_wait_and_then_serve(space: Space, tmp_path: Path) -> None:
    with webhook(space, tmp_path, [add("/spec/schedulingGates", [GATE])]):
        space.apply(deployment(runtime={"gpu": {"count": 0}, "startupTimeout": "10s"}), _files())
        message = space.wait_condition("ServersReady", "False", "Unschedulable")
        assert f"scheduling gate {GATE['name']} keeps the scheduler from placing it" in message
        # The progress deadline is 70 s, so only the unit tests wait for it.
        always(lambda: space.condition("Stalled")[0], lambda s: s != "True", goal="nothing has failed", for_s=3)
        (pod,) = until(lambda: model_pods(space), lambda p: len(p) == 1, goal="a pod")
        space.merge(kinds.POD, pod["metadata"]["name"], {"spec": {"schedulingGates": []}})
        for balancer in space.every(kinds.POD):
            space.merge(kinds.POD, balancer["metadata"]["name"], {"spec": {"schedulingGates": []}})
        space.wait_settled()


@pytest.mark.parametrize("position", ["0", "-"])
def test_injected_containers_in_any_position_change_nothing(space: Space, tmp_path: Path, position: str) -> None:
    native = {**SIDECAR, "name": "istio-native", "restartPolicy": "Always"}
    first = {"name": "istio-init", "image": "proxy:1"}
    patch = [
        add(f"/spec/containers/{position}", SIDECAR),
        add(f"/spec/initContainers/{position}", native),
        add(f"/spec/initContainers/{position}", first),
    ]
    space.apply(deployment(), _files())
    space.wait_settled()
    with webhook(space, tmp_path, patch):
        space.apply(deployment(batching={"maxBatchSize": 4}))
        space.wait_settled()
        (pod,) = model_pods(space)
        named = [c["name"] for c in pod["spec"]["containers"]]
        assert named == (["istio-proxy", "triton"] if position == "0" else ["triton", "istio-proxy"])
        status = space.status()
        assert status["runtimeImage"] == "localhost/tritonserver-cpu:24.10"
        assert status["coldStart"]["seconds"] >= 0


def test_an_injected_container_that_fails_is_named_and_rolls_nothing_back(space: Space, tmp_path: Path) -> None:
    space.serve()
    held = {"gpu": {"count": 0}, "startupTimeout": "10s", "placement": {"nodeSelector": {HOLD: ""}}}
    node = _held_node(space)
    try:
        with webhook(space, tmp_path, [add("/spec/containers/0", SIDECAR)]):
            space.apply(deployment(runtime=held))
            new = until(
                lambda: [p for p in model_pods(space) if p["spec"].get("nodeName") == node], bool, goal="a new pod"
            )
            crash = {"exitCode": 1, "reason": "Error"}
            states = {
                "istio-proxy": {
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": crash},
                    "restartCount": 3,
                },
                "triton": {"state": {"running": {}}, "restartCount": 0, "started": True, "ready": True},
            }
            statuses = [
                {"image": "x", "imageID": "", "ready": False, **state, "name": name} for name, state in states.items()
            ]
            fetched = {
                "name": "fetch",
                "image": "x",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"terminated": {"exitCode": 0}},
            }
            body = {"status": {"initContainerStatuses": [fetched], "containerStatuses": statuses}}
            space.merge(kinds.POD, new[0]["metadata"]["name"], body, subresource="status")
            message = until(
                lambda: space.condition("Reconciling"), lambda c: "istio-proxy" in c[2], goal="the container is named"
            )[2]
            assert "added to the pod by an admission webhook and not by Halcyon" in message
            assert space.condition("Ready")[0] == "True"
            assert space.status()["rollout"]["phase"] == "Progressing"
    finally:
        space.api.call("DELETE", f"{NODES}/{node}")


def test_a_paused_deployment_is_reported_and_goes_on_when_resumed(space: Space, kubectl: Kubectl) -> None:
    space.serve()
    kubectl("rollout", "pause", "deployment/m-a")
    space.apply(deployment(batching={"maxBatchSize": 4}))
    message = space.wait_condition("Reconciling", "True", "DeploymentPaused")
    assert "kubectl rollout resume deployment/m-a" in message
    space.scale(2)
    until(lambda: len(model_pods(space)), lambda n: n == 2, goal="replicas are followed meanwhile")
    kubectl("rollout", "resume", "deployment/m-a")
    space.wait_settled()


def test_a_restarted_deployment_serves_again_with_the_same_revision(space: Space, kubectl: Kubectl) -> None:
    space.serve()
    before = {p["metadata"]["uid"] for p in model_pods(space)}
    target = space.status()["revision"]["target"]
    kubectl("rollout", "restart", "deployment/m-a")
    until(
        lambda: {p["metadata"]["uid"] for p in model_pods(space)},
        lambda now: now and not now & before,
        goal="its pods are replaced",
    )
    space.wait_settled()
    assert space.status()["revision"] == {"current": target, "target": target}
    always(space.settled, bool, goal="nothing is undone", for_s=2)


@pytest.mark.parametrize("strategy", ["Auto", "Canary"])
@pytest.mark.parametrize("part", ["env", "source"])
def test_a_deployment_whose_rollout_was_undone_gets_its_template_back(
    space: Space, kubectl: Kubectl, part: str, strategy: str
) -> None:
    def env(name: str) -> Object:
        return {"gpu": {"count": 0}, "env": [{"name": name, "value": "1"}]}

    earlier, present = {"runtime": env("EARLIER")}, {"runtime": env("PRESENT")}
    if part == "source":  # a volume with both sources is invalid
        _disk(space)
        earlier, present = {"model": {"source": {"persistentVolumeClaim": {"claimName": "disk"}}}}, {}
    for spec in (earlier, present):
        space.apply(_files(), deployment(**spec))
        space.wait_settled()
    space.apply(deployment(**present, rollout={"strategy": strategy}))
    revision = space.status()["revision"]
    template = _template(space)

    kubectl("rollout", "undo", "deployment/m-a")
    until(lambda: _template(space), lambda current: current == template, goal="the template is put back")
    space.wait_settled()
    assert space.status()["revision"] == revision
    assert space.get(kinds.DEPLOYMENT, "m-b") is None, "no canary of the revision that serves"
    assert [e["type"] for e in space.events() if e["reason"] == "TemplateReplaced"] == ["Warning"]

    space.apply(deployment(runtime=env("NEXT"), rollout={"strategy": "Auto"}))
    space.wait_settled()
    (container,) = _template(space)["spec"]["containers"]
    assert [variable["name"] for variable in container["env"]][-1] == "NEXT"
    assert not {"EARLIER", "PRESENT"} & {variable["name"] for variable in container["env"]}


def _template(space: Space) -> Object:
    template: Object = space.must(kinds.DEPLOYMENT, "m-a")["spec"]["template"]
    return template


def test_a_pod_that_was_preempted_or_drained_is_replaced_and_no_failure(space: Space) -> None:
    space.serve()
    (pod,) = model_pods(space)
    name = pod["metadata"]["name"]
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"}
    kept = [c for c in pod["status"]["conditions"] if c["type"] != "Ready"]
    ended = {"phase": "Failed", "reason": "Preempting", "conditions": [*kept, disrupted]}
    space.merge(kinds.POD, name, {"status": ended}, subresource="status")
    until(
        lambda: [p["metadata"]["name"] for p in model_pods(space) if p["status"]["phase"] == "Running"],
        bool,
        goal="another pod",
    )
    until(lambda: space.status()["pods"]["ready"], lambda n: n == 1, goal="it serves")
    assert "failed" not in space.status()["pods"]
    assert space.condition("Stalled")[0] != "True"


def _files() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "files"},
        "data": {"config.pbtxt": "max_batch_size: 8"},
    }


def _held_node(space: Space) -> str:
    """Create a node whose pods KWOK doesn't start, and return its name."""
    name = f"held-{space.namespace}"
    room = {"cpu": "64", "memory": "512Gi", "pods": "100"}
    labels = {HOLD: "", "type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    node = {"metadata": {"name": name, "labels": labels}, "status": {"capacity": room, "allocatable": room}}
    space.api.create(NODES, {"apiVersion": "v1", "kind": "Node", **node})
    return name


@pytest.mark.parametrize(("strategy", "replicas"), [("Auto", 2), ("Auto", 1), ("Surge", 1)])
def test_a_volume_of_another_node_is_replaced_at_once_if_allowed(space: Space, strategy: str, replicas: int) -> None:
    source = {"persistentVolumeClaim": {"claimName": "disk"}}
    spec: Object = {"model": {"source": source}, "rollout": {"strategy": strategy}, "replicas": replicas}
    _disk(space)
    space.apply(deployment(**spec))
    space.wait_settled()
    node = _held_node(space)
    try:
        # The new pod goes to another node, where the volume can't be attached while the old pods use it.
        held = {"gpu": {"count": 0}, "placement": {"nodeSelector": {HOLD: ""}}}
        space.apply(deployment(**spec, runtime=held))
        # Auto leaves the only serving pod.
        replaces = replicas > 1
        text = f"on node {node} and can't attach PersistentVolumeClaim disk (ReadWriteOnce), which pod m-a-"
        message = until(lambda: space.condition("Reconciling"), lambda c: text in c[2], goal="it is reported")
        assert message[1] == ("Progressing" if replaces else "RolloutBlocked")
        if replaces:
            until(
                lambda: sum(pod["spec"].get("nodeName") != node for pod in model_pods(space)),
                lambda old: old == 1,
                goal="an old pod is deleted, without waiting for surgeTimeout",
            )
        else:
            assert "set spec.rollout.strategy: Replace" in message[2]
            assert len(model_pods(space)) == 2
    finally:
        space.api.call("DELETE", f"{NODES}/{node}")


def _disk(space: Space) -> None:
    """Create a bound PersistentVolumeClaim that one node can attach."""
    modes = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume: Object = {
        **modes,
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/disk"},
        "claimRef": {"namespace": space.namespace, "name": "disk"},
    }
    name = f"disk-{space.namespace}"
    space.api.create("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": volume})
    claim: Object = {**modes, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    path = f"/api/v1/namespaces/{space.namespace}/persistentvolumeclaims"
    space.api.create(path, {"metadata": {"name": "disk"}, "spec": claim})
    until(
        lambda: (space.api.call("GET", f"{path}/disk").body or {}).get("status", {}).get("phase"),
        lambda phase: phase == "Bound",
        goal="the claim is bound",
    )
