"""The embedded cluster obeys like any Kubernetes: what the other integration tests rest on."""

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.kubectl import Kubectl, KubectlError
from e2e.cluster.kwok import HOLD
from e2e.cluster.processes import wait_until

_LIMIT_S = 60


def _deployment(*, replicas: int, gpus: int = 0, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    labels = {"app": "web"}
    container: dict[str, Any] = {"name": "web", "image": "localhost/none:none"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations or {}},
                "spec": {"containers": [container]},
            },
        },
    }


def _config(value: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"key": value}}


def _ready(kubectl: Kubectl) -> int:
    return int(kubectl.get("deployment", "web")["status"].get("readyReplicas", 0))


def test_a_deployments_pods_become_ready_with_addresses_and_endpoints(kubectl: Kubectl) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    kubectl.apply(_deployment(replicas=3), service)
    kubectl("rollout", "status", "deployment/web", f"--timeout={_LIMIT_S}s")

    pods = kubectl.get("pods")["items"]
    addresses = {pod["status"]["podIP"] for pod in pods}
    assert len(addresses) == 3
    assert all(status["started"] for pod in pods for status in pod["status"]["containerStatuses"])

    def endpoints() -> set[str]:
        slices = kubectl.get("endpointslices")["items"]
        return {a for s in slices for e in s["endpoints"] or [] if e["conditions"]["ready"] for a in e["addresses"]}

    wait_until(lambda: endpoints() == addresses, goal="the Service has all pods", limit_s=_LIMIT_S)


def test_server_side_apply_of_the_same_object_changes_nothing(kubectl: Kubectl) -> None:
    kubectl.apply(_config("a"))
    before = kubectl.get("configmap", "settings")["metadata"]["resourceVersion"]
    kubectl.apply(_config("a"))
    assert kubectl.get("configmap", "settings")["metadata"]["resourceVersion"] == before


def test_server_side_apply_refuses_a_field_that_another_manager_owns(kubectl: Kubectl) -> None:
    kubectl.apply(_config("a"), arguments=("--server-side", "--field-manager=first"))
    with pytest.raises(KubectlError, match=r'conflict with "first".*\.data\.key|\.data\.key'):
        kubectl.apply(_config("b"), arguments=("--server-side", "--field-manager=second"))
    assert kubectl.get("configmap", "settings")["data"] == {"key": "a"}


def test_children_go_with_their_owner(kubectl: Kubectl) -> None:
    kubectl.apply(_config("a"))
    owner = kubectl.get("configmap", "settings")["metadata"]["uid"]
    child = _config("b")
    child["metadata"] = {
        "name": "child",
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "settings", "uid": owner}],
    }
    kubectl.apply(child)
    kubectl("delete", "configmap", "settings")
    kubectl("wait", "--for=delete", "configmap/child", f"--timeout={_LIMIT_S}s")


def test_the_scheduler_gives_out_eight_gpus_and_no_more(kubectl: Kubectl) -> None:
    kubectl.apply(_deployment(replicas=9, gpus=1))
    wait_until(lambda: _ready(kubectl) == 8, goal="8 pods are Ready", limit_s=_LIMIT_S)

    def reason() -> str:
        waiting = [pod for pod in kubectl.get("pods")["items"] if pod["status"]["phase"] == "Pending"]
        return " ".join(c.get("message", "") for pod in waiting for c in pod["status"].get("conditions", []))

    wait_until(lambda: "Insufficient nvidia.com/gpu" in reason(), goal="one pod has no GPU", limit_s=_LIMIT_S)
    assert _ready(kubectl) == 8


def test_a_held_pod_starts_when_the_hold_goes(kubectl: Kubectl) -> None:
    kubectl.apply(_deployment(replicas=2, annotations={HOLD: ""}))

    def scheduled() -> list[dict[str, Any]]:
        return [pod for pod in kubectl.get("pods")["items"] if pod["spec"].get("nodeName")]

    wait_until(lambda: len(scheduled()) == 2, goal="both pods have a node", limit_s=_LIMIT_S)
    first, second = scheduled()
    kubectl("annotate", "pod", first["metadata"]["name"], f"{HOLD}-")
    kubectl("wait", "--for=condition=Ready", f"pod/{first['metadata']['name']}", f"--timeout={_LIMIT_S}s")
    assert kubectl.get("pod", second["metadata"]["name"])["status"]["phase"] == "Pending"


def test_a_job_completes(kubectl: Kubectl) -> None:
    kubectl("create", "job", "once", "--image=localhost/none:none")
    kubectl("wait", "--for=condition=Complete", "job/once", f"--timeout={_LIMIT_S}s")


class _Metrics(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps(
            {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "probe.halcyon.test/v1", "resources": []}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def local_port(cluster: Cluster) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Metrics)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cluster.place.pki / "apiserver.crt", cluster.place.pki / "apiserver.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_api_server_reaches_a_local_process_as_an_aggregated_api(
    cluster: Cluster, kubectl: Kubectl, namespace: str, local_port: int
) -> None:
    kubectl("create", "service", "externalname", "probe", "--external-name=localhost")
    api = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.probe.halcyon.test"},
        "spec": {
            "group": "probe.halcyon.test",
            "version": "v1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 10,
            "service": {"name": "probe", "namespace": namespace, "port": local_port},
            "insecureSkipTLSVerify": True,
        },
    }
    kubectl.apply(api)
    try:
        kubectl("wait", "--for=condition=Available", "apiservice/v1.probe.halcyon.test", f"--timeout={_LIMIT_S}s")
        answer = cluster.api.call("GET", "/apis/probe.halcyon.test/v1")
        assert (answer.body or {}).get("groupVersion") == "probe.halcyon.test/v1"
    finally:
        kubectl("delete", "apiservice", "v1.probe.halcyon.test")
