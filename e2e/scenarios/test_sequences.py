"""A model that keeps a state between requests, on real pods: each sequence stays with its pod, also while that pod goes."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from demo.kube import Kube, wait_for
from demo.models import GRPC_PORT
from e2e.scenarios import agents

pytestmark = pytest.mark.more

NAME = "stateful"
HEADER = "x-sequence-id"
SEQUENCES = 12
"""Enough that three pods share them: by chance, all are on one pod once in 60,000 times."""
STEPS, PAUSE_S = 24, 0.25
"""6 s of each sequence, well within the drain."""
DRAIN_S = 15
_CONFIG = """\
backend: "python"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "sum" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "WHO" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
  ]
}
"""
_MODEL = '''\
"""The sum of a sequence so far, and the pod that knows it."""

import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        def of(request, name):
            return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

        answers = []
        for request in requests:
            sums = []
            for x, start, sequence in zip(of(request, "x"), of(request, "START"), of(request, "CORRID")):
                key = int(sequence[0])
                # Without its start, somebody else knows the rest of it.
                self.sums[key] = float(x[0]) + (0.0 if start[0] else self.sums.get(key, -1000.0))
                sums.append([self.sums[key]])
            who = np.array([[os.environ["HOSTNAME"].encode()]] * len(sums), dtype=object)
            tensors = [pb_utils.Tensor("sum", np.array(sums, np.float32)), pb_utils.Tensor("WHO", who)]
            answers.append(pb_utils.InferenceResponse(tensors))
        return answers
'''


def documents() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the model's ConfigMap, and a ModelDeployment of three replicas."""
    files = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME},
        "data": {"config.pbtxt": _CONFIG, "model.py": _MODEL},
    }
    items = [{"key": "config.pbtxt", "path": "config.pbtxt"}, {"key": "model.py", "path": "1/model.py"}]
    deployment = {
        "apiVersion": "serving.halcyon.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": NAME},
        "spec": {
            "replicas": 3,
            "model": {"source": {"configMap": {"name": NAME, "items": items}}},
            "runtime": {"gpu": {"count": 0}},
            "traffic": {"stickiness": {"header": HEADER}, "drainTimeout": f"{DRAIN_S}s"},
        },
    }
    return files, deployment


@dataclass
class Sequence:
    """One client's sequence: one request at a time, each with its number."""

    address: str
    number: int
    sums: list[float] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)
    error: str = ""

    def run(self) -> None:
        tensor = grpc_client.InferInput("x", [1, 1], "FP32")
        with grpc_client.InferenceServerClient(self.address) as client:
            for step in range(1, STEPS + 1):
                tensor.set_data_from_numpy(np.array([[step]], np.float32))
                try:
                    answer = client.infer(
                        NAME,
                        [tensor],
                        sequence_id=self.number,
                        sequence_start=step == 1,
                        sequence_end=step == STEPS,
                        headers={HEADER: f"conversation {self.number}"},
                    )
                except Exception as error:  # noqa: BLE001  # whatever it is, the test shows it
                    self.error = f"request {step}: {error}"
                    return
                self.sums.append(float(answer.as_numpy("sum")[0, 0]))
                self.pods.append(bytes(answer.as_numpy("WHO").flat[0]).decode())
                time.sleep(PAUSE_S)


@pytest.fixture(scope="module")
def sequence_runs(kube: Kube, served: Callable[..., str]) -> tuple[str, list[Sequence], list[Sequence]]:
    """Delete a pod; return its name, the sequences that began before, and those that began after."""
    files, deployment = documents()
    kube.apply(files)
    address = kube.must_address(served(deployment, replicas=3), GRPC_PORT)
    wait_for(lambda: len(kube.pods(NAME, "balancer")) == 2, goal="balancers are there", limit_s=30)

    def begin(first: int) -> tuple[list[Sequence], list[threading.Thread]]:
        sequences = [Sequence(address, number) for number in range(first, first + SEQUENCES)]
        threads = [threading.Thread(target=sequence.run, daemon=True) for sequence in sequences]
        for thread in threads:
            thread.start()
        return sequences, threads

    before, running = begin(1)
    wait_for(lambda: all(len(s.pods) > 3 or s.error for s in before), goal="all have begun", limit_s=30, every_s=0.05)
    deleted_pod = before[0].pods[0]
    kube("delete", "pod", deleted_pod, "--wait=false")

    def is_leaving() -> bool:
        return any(
            p["metadata"]["name"] == deleted_pod and p["metadata"].get("deletionTimestamp")
            for p in kube.pods(NAME, "server")
        )

    wait_for(is_leaving, goal=f"{deleted_pod} goes", limit_s=10, every_s=0.05)
    wait_for(
        lambda: agents.drains(kube, NAME, deleted_pod),
        goal=f"the balancers know that {deleted_pod} goes",
        limit_s=10,
        every_s=0.05,
    )
    after, later = begin(100)
    for thread in (*running, *later):
        thread.join(60)
    return deleted_pod, before, after


def test_each_sequence_has_one_pod_that_knows_all_of_it(
    sequence_runs: tuple[str, list[Sequence], list[Sequence]],
) -> None:
    _, before, after = sequence_runs
    for sequence in (*before, *after):
        assert sequence.error == "", sequence
        assert len(set(sequence.pods)) == 1, sequence
        assert sequence.sums == [step * (step + 1) / 2 for step in range(1, STEPS + 1)], sequence


def test_a_pod_that_goes_keeps_its_sequences_and_gets_no_new_ones(
    sequence_runs: tuple[str, list[Sequence], list[Sequence]],
) -> None:
    deleted_pod, before, after = sequence_runs
    assert deleted_pod in {pod for sequence in before for pod in sequence.pods[-1:]}
    assert deleted_pod not in {pod for sequence in after for pod in sequence.pods}
    assert len({pod for sequence in before for pod in sequence.pods}) > 1
