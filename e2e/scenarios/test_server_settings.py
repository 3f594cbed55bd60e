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

from demo.kube import Kube
from demo.models import GRPC_PORT, HTTP_PORT

pytestmark = pytest.mark.more

CACHED, QUEUED = "cached", "queued"
BUSY_S = 1.0
"""Time of the request that others wait for."""
_CONFIG = """\
backend: "python"
input [ { name: "seconds" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "parameters" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
_MODEL = '''\
"""Sleeps as long as the input says, and returns the request's parameters."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            time.sleep(float(pb_utils.get_input_tensor_by_name(request, "seconds").as_numpy().flat[0]))
            text = np.array([[request.parameters().encode()]], dtype=object)
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
    """The address of a model's port, by the model's name."""
    data = {"config.pbtxt": _CONFIG, "model.py": _MODEL}
    kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CACHED}, "data": data})
    cache = {"responseCache": {"size": "64Mi"}, "logLevel": "Error", "pinnedMemoryPool": "1Mi"}
    served(document(CACHED, runtime={"server": cache}))
    policy = {"maxQueueSize": 1, "timeoutAction": "Reject"}
    batching = {"maxBatchSize": 1, "priorityLevels": 2, "queuePolicy": policy}
    server = {"forwardedHeaders": ["X-Tenant"], "logLevel": "Verbose"}
    served(document(QUEUED, runtime={"server": server}, batching=batching))
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
    """The newest metrics of the model's pod; of failures only those with reason REJECTED."""
    (pod,) = kube.pods(name, "server")
    samples = kube.metrics(pod, 8002)
    assert samples is not None
    return {sample.name: sample.value for sample in samples if sample.labels.get("reason", "REJECTED") == "REJECTED"}


def log(kube: Kube, name: str) -> str:
    (pod,) = kube.pods(name, "server")
    return kube("logs", pod["metadata"]["name"], "-c", "triton")


def test_a_repeated_request_is_answered_from_the_cache(kube: Kube, models: Callable[[str, int], str]) -> None:
    before = metrics(kube, CACHED)
    took = []
    for _ in range(3):
        began = time.monotonic()
        over_grpc(models(CACHED, GRPC_PORT), CACHED, 0.5)
        took.append(time.monotonic() - began)
    after = metrics(kube, CACHED)
    grew = {name: after[name] - before.get(name, 0.0) for name in after}
    assert grew["nv_cache_num_hits_per_model"] == 2
    assert grew["nv_inference_request_success"] == 3
    assert grew["nv_inference_count"] == grew["nv_inference_exec_count"] == 1
    assert took[0] > 0.5 > max(took[1:])


def test_the_cache_ignores_request_parameters(models: Callable[[str, int], str]) -> None:
    address = models(CACHED, GRPC_PORT)
    answers = [over_grpc(address, CACHED, 0.25, parameters={"user": user}) for user in ("a", "b")]
    assert answers == [{"user": "a"}] * 2


def test_named_headers_and_no_others_reach_the_model(models: Callable[[str, int], str]) -> None:
    headers = {"x-tenant": "blue", "x-tenants": "no"}
    for call, port in ((over_grpc, GRPC_PORT), (over_http, HTTP_PORT)):
        assert call(models(QUEUED, port), QUEUED, 0.0, headers=headers) == {"x-tenant": "blue"}


def test_log_level_decides_the_lines_of_the_log(kube: Kube, models: Callable[[str, int], str]) -> None:
    over_grpc(models(QUEUED, GRPC_PORT), QUEUED, 0.0)
    quiet, verbose = log(kube, CACHED), log(kube, QUEUED)
    assert not [line for line in quiet.splitlines() if line.startswith(("I", "W")) and line[1:5].isdigit()]
    assert "ModelInferHandler" in verbose


def test_priorities_order_requests_and_a_full_queue_rejects(kube: Kube, models: Callable[[str, int], str]) -> None:
    address = models(QUEUED, GRPC_PORT)
    ended: list[str] = []
    errors: dict[str, str] = {}

    def send(name: str, seconds: float, priority: int) -> None:
        try:
            over_grpc(address, QUEUED, seconds, priority=priority)
        except InferenceServerException as error:
            errors[name] = f"{error.status()}: {error.message()}"
        ended.append(name)

    threads = []
    for name, seconds, priority in (("busy", BUSY_S, 2), ("low", 0.01, 2), ("high", 0.01, 1)):
        threads.append(threading.Thread(target=send, args=(name, seconds, priority), daemon=True))
        threads[-1].start()
        time.sleep(0.2)
    for thread in threads:
        thread.join(10)
    assert (ended, errors) == (["busy", "high", "low"], {})

    before, ended[:] = metrics(kube, QUEUED), []
    threads = []
    for name, seconds in (("busy", BUSY_S), ("waits", 0.01), ("too many", 0.01)):
        threads.append(threading.Thread(target=send, args=(name, seconds, 1), daemon=True))
        threads[-1].start()
        time.sleep(0.2)
    for thread in threads:
        thread.join(10)
    assert ended == ["too many", "busy", "waits"]
    assert set(errors) == {"too many"}
    assert errors["too many"].startswith("StatusCode.UNAVAILABLE: ")
    assert "Exceeds maximum queue size" in errors["too many"]
    assert metrics(kube, QUEUED)["nv_inference_request_failure"] == before["nv_inference_request_failure"]
    # Triton counts it nowhere, so the balancers do.
    found = [sample for pod in kube.pods(QUEUED, "balancer") for sample in kube.metrics(pod, 9100) or ()]
    assert sum(sample.value for sample in found if sample.name == "halcyon_agent_server_rejected_total") == 1
