"""Options of Triton and of its queue on a real Triton: what the cache, headers, log level, priorities and policies do to requests."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from demo.kube import PATIENCE, Kube, wait_for
from demo.models import GRPC_PORT, HTTP_PORT

pytestmark = pytest.mark.more

CACHED, QUEUED = "cached", "queued"
_CONFIG = """\
backend: "python"
input [ { name: "seconds" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "parameters" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
_MODEL = '''\
"""Sleeps as long as the input says, and returns the request's parameters.

A request with the parameter `name` gets its turn among these requests too. If it has the parameter `gate`, it goes on once the file of
this name is in /tmp, and makes the file GATE.waits before.
"""

import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    turn = 0

    def execute(self, requests):
        answers = []
        for request in requests:
            time.sleep(float(pb_utils.get_input_tensor_by_name(request, "seconds").as_numpy().flat[0]))
            text = request.parameters()
            parameters = json.loads(text or "{}")
            if "name" in parameters:
                self.turn += 1
                text = json.dumps({**parameters, "turn": self.turn})
            if "gate" in parameters:
                open("/tmp/" + parameters["gate"] + ".waits", "w").close()
                while not os.path.exists("/tmp/" + parameters["gate"]):
                    time.sleep(0.02)
            text = np.array([[text.encode()]], dtype=object)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("parameters", text)]))
        return answers
'''


def document(name: str, **spec: Any) -> dict[str, Any]:
    items = [{"key": "config.pbtxt", "path": "config.pbtxt"}, {"key": "model.py", "path": "1/model.py"}]
    return {
        "apiVersion": "serving.halcyon.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "model": {"source": {"configMap": {"name": CACHED, "items": items}}},
            "traffic": {"balancerReplicas": 1},
            "batching": {"maxBatchSize": 1},
            **spec,
        },
    }


@pytest.fixture(scope="module")
def models(kube: Kube, served: Callable[..., str]) -> Callable[[str, int], str]:
    """Serve the models, and return the function that returns the address of a model's port."""
    data = {"config.pbtxt": _CONFIG, "model.py": _MODEL}
    kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CACHED}, "data": data})
    cache = {"responseCache": {"size": "64Mi"}, "logLevel": "Error", "pinnedMemoryPool": "1Mi"}
    served(document(CACHED, runtime={"server": cache}))
    policy = {"maxQueueSize": 1, "timeoutAction": "Reject"}
    batching = {"maxBatchSize": 1, "priorityLevels": 2, "queuePolicy": policy}
    server = {"forwardedHeaders": ["X-Tenant", "traceparent"], "logLevel": "Verbose"}
    traffic = {"balancerReplicas": 1, "accessLog": "All"}
    served(document(QUEUED, runtime={"server": server}, batching=batching, traffic=traffic))
    return kube.must_address


def over_grpc(address: str, name: str, seconds: float, **options: Any) -> dict[str, Any]:
    tensor = grpc_client.InferInput("seconds", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.array([[seconds]], np.float32))
    with grpc_client.InferenceServerClient(address) as client:
        answer = client.infer(name, [tensor], **options)
    return dict(json.loads(bytes(answer.as_numpy("parameters").flat[0])))


def over_http(address: str, name: str, seconds: float, **options: Any) -> dict[str, Any]:
    tensor = http_client.InferInput("seconds", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.array([[seconds]], np.float32))
    with http_client.InferenceServerClient(address) as client:
        answer = client.infer(name, [tensor], **options)
    return dict(json.loads(bytes(answer.as_numpy("parameters").flat[0])))


def metrics(kube: Kube, name: str) -> dict[str, float]:
    """Return the current metrics of the model's pod; of failures only those with reason REJECTED."""
    (pod,) = kube.pods(name, "server")
    samples = kube.metrics(pod, 8002)
    assert samples is not None
    return {sample.name: sample.value for sample in samples if sample.labels.get("reason", "REJECTED") == "REJECTED"}


def rejected_by_servers(kube: Kube) -> float:
    samples = [sample for pod in kube.pods(QUEUED, "balancer") for sample in kube.metrics(pod, 9100) or ()]
    return sum(sample.value for sample in samples if sample.name == "halcyon_agent_server_rejected_total")


def log(kube: Kube, name: str) -> str:
    (pod,) = kube.pods(name, "server")
    return kube("logs", pod["metadata"]["name"], "-c", "triton")


def test_a_repeated_request_is_answered_from_the_cache(kube: Kube, models: Callable[[str, int], str]) -> None:
    before = metrics(kube, CACHED)
    durations_s = []
    for _ in range(3):
        began = time.monotonic()
        over_grpc(models(CACHED, GRPC_PORT), CACHED, 0.5)
        durations_s.append(time.monotonic() - began)
    after = metrics(kube, CACHED)
    growth = {name: after[name] - before.get(name, 0.0) for name in after}
    assert growth["nv_cache_num_hits_per_model"] == 2
    assert growth["nv_inference_request_success"] == 3
    assert growth["nv_inference_count"] == growth["nv_inference_exec_count"] == 1
    assert durations_s[0] > 0.5 > max(durations_s[1:])


def test_the_cache_ignores_request_parameters(models: Callable[[str, int], str]) -> None:
    address = models(CACHED, GRPC_PORT)
    answers = [over_grpc(address, CACHED, 0.25, parameters={"user": user}) for user in ("a", "b")]
    assert answers == [{"user": "a"}] * 2


def test_named_headers_and_no_others_reach_the_model(models: Callable[[str, int], str]) -> None:
    headers = {"x-tenant": "blue", "x-tenants": "no"}
    for call, port in ((over_grpc, GRPC_PORT), (over_http, HTTP_PORT)):
        assert call(models(QUEUED, port), QUEUED, 0.0, headers=headers) == {"x-tenant": "blue"}


def test_a_clients_trace_reaches_the_model_and_the_access_log(kube: Kube, models: Callable[[str, int], str]) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for call, port in ((over_grpc, GRPC_PORT), (over_http, HTTP_PORT)):
        assert call(models(QUEUED, port), QUEUED, 0.0, headers={"traceparent": trace}) == {"traceparent": trace}
    (balancer,) = kube.pods(QUEUED, "balancer")

    def logged() -> list[str]:
        text = kube("logs", balancer["metadata"]["name"], "-c", "haproxy")
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [line["protocol"] for line in lines if line["trace"] == trace.split("-")[1]]

    wait_for(lambda: sorted(logged()) == ["grpc", "http"], goal="both requests are in the access log", limit_s=20)


def test_log_level_decides_the_lines_of_the_log(kube: Kube, models: Callable[[str, int], str]) -> None:
    over_grpc(models(QUEUED, GRPC_PORT), QUEUED, 0.0)
    quiet, verbose = log(kube, CACHED), log(kube, QUEUED)
    assert not [line for line in quiet.splitlines() if line.startswith(("I", "W")) and line[1:5].isdigit()]
    assert "ModelInferHandler" in verbose


class Sent:
    """Requests and their results. Each is sent when the previous one has its place in Triton."""

    def __init__(self, kube: Kube, address: str, gate: str) -> None:
        self._kube, self._address, self._gate = kube, address, gate
        self._threads: list[threading.Thread] = []
        self.turns: dict[str, int] = {}
        """Turn of each request in the model, by name."""
        self.errors: dict[str, str] = {}

    def _send(self, name: str, options: dict[str, Any], parameters: dict[str, str]) -> None:
        try:
            answer = over_grpc(self._address, QUEUED, 0.0, parameters={"name": name, **parameters}, **options)
        except InferenceServerException as error:
            self.errors[name] = f"{error.status()}: {error.message()}"
        else:
            self.turns[name] = answer["turn"]

    def _begin(self, name: str, options: dict[str, Any], parameters: dict[str, str]) -> threading.Thread:
        thread = threading.Thread(target=self._send, args=(name, options, parameters), daemon=True)
        thread.start()
        self._threads.append(thread)
        return thread

    def busy(self, **options: Any) -> None:
        """Send the request that all others wait for, and return once the model executes it."""
        self._begin("busy", options, {"gate": self._gate})
        wait_for(lambda: f"{self._gate}.waits" in self._in_pod("ls", "/tmp"), goal="the model is busy", limit_s=20)

    def queued(self, name: str, place: int, **options: Any) -> None:
        """Send a request, and return once this many wait in Triton's queue."""
        self._begin(name, options, {})
        waits = "nv_inference_pending_request_count"
        wait_for(lambda: metrics(self._kube, QUEUED)[waits] == place, goal=f"{place} in Triton's queue", limit_s=20)

    def rejected(self, name: str, **options: Any) -> None:
        """Send a request, and return once it has its response."""
        self._begin(name, options, {}).join(20 * PATIENCE)

    def release(self) -> None:
        """Let the busy request go on, and wait for all responses."""
        self._in_pod("touch", f"/tmp/{self._gate}")
        for thread in self._threads:
            thread.join(20 * PATIENCE)

    def _in_pod(self, *command: str) -> str:
        (pod,) = self._kube.pods(QUEUED, "server")
        return self._kube("exec", pod["metadata"]["name"], "--container=triton", "--", *command)


def test_priorities_order_requests_and_a_full_queue_rejects(kube: Kube, models: Callable[[str, int], str]) -> None:
    address = models(QUEUED, GRPC_PORT)
    sent = Sent(kube, address, "priorities")
    sent.busy(priority=2)
    sent.queued("low", 1, priority=2)
    sent.queued("high", 2, priority=1)
    sent.release()
    assert (sorted(sent.turns, key=lambda name: sent.turns[name]), sent.errors) == (["busy", "high", "low"], {})

    before = metrics(kube, QUEUED)
    sent = Sent(kube, address, "full")
    sent.busy(priority=1)
    sent.queued("waits", 1, priority=1)
    sent.rejected("too many", priority=1)
    assert set(sent.errors) == {"too many"}
    assert sent.turns == {}, "a request that is rejected has its response before those that wait"
    sent.release()
    assert sorted(sent.turns, key=lambda name: sent.turns[name]) == ["busy", "waits"]
    assert set(sent.errors) == {"too many"}
    assert sent.errors["too many"].startswith("StatusCode.UNAVAILABLE: ")
    assert "Exceeds maximum queue size" in sent.errors["too many"]
    assert metrics(kube, QUEUED)["nv_inference_request_failure"] == before["nv_inference_request_failure"]
    # Triton counts it nowhere, so the balancers do, in their next reading of HAProxy.
    wait_for(lambda: rejected_by_servers(kube) >= 1, goal="the balancer counts the rejection", limit_s=10)
    assert rejected_by_servers(kube) == 1
