"""A new revision on real Triton: one that can't load never serves and goes by itself; one without room says so and replaces.

Requests go on all the while. The GPUs are the node's stand-ins: the scheduler counts them, and nothing computes on one.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from demo import models
from demo.coldstart import ColdStart
from demo.kube import PATIENCE, Kube, is_ready, wait_for
from demo.models import GRPC_PORT, HTTP_PORT
from e2e.load.process import RunningLoad
from e2e.load.settings import Load, Report

pytestmark = pytest.mark.more

_MODEL = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [2]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [2]})
        config.set_max_batch_size(4)
        return config

    def initialize(self, args):
        if FAILS:
            raise ValueError("the weights are for another model")

    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "x").as_numpy()) for request in requests]

    def answer(self, x):
        if x[0, 0] < FAILING_BELOW:
            # Raised: a response that only holds an error counts as answered in Triton's counters.
            raise ValueError("this revision knows no answer")
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", x * FACTOR)])
"""
_GPU = "nvidia.com/gpu"
_REVISION = "serving.halcyon.dev/revision"


def files(name: str, *, factor: int, fails: bool = False, failing_below: int = 0) -> dict[str, Any]:
    """Return the model's ConfigMap; other content is another revision. The model may fail to load, or fail requests.

    Inputs are random from 0 to 16.
    """
    data = {"model.py": f"FACTOR, FAILS, FAILING_BELOW = {factor}, {fails}, {failing_below}\n{_MODEL}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-files"}, "data": data}


def document(name: str, *, gpus: int, **rollout_options: Any) -> dict[str, Any]:
    """Return a model of 2 pods and 1 balancer, from the ConfigMap of `files`."""
    deployment = models.variant(name, replicas=2, gpus=gpus)
    spec = deployment["spec"]
    del spec["batching"]
    items = [{"key": "model.py", "path": "1/model.py"}]
    spec["model"] = {"backend": "python", "source": {"configMap": {"name": f"{name}-files", "items": items}}}
    spec["runtime"]["startupTimeout"] = "10s"
    spec["traffic"] = {"balancerReplicas": 1, "drainTimeout": "5s"}
    spec["rollout"] = rollout_options
    return deployment


def rollout(kube: Kube, name: str) -> dict[str, Any]:
    """Return status.rollout."""
    return dict(((kube.model(name) or {}).get("status") or {}).get("rollout") or {})


def revision(kube: Kube, name: str) -> dict[str, str]:
    """Return status.revision."""
    return dict(((kube.model(name) or {}).get("status") or {}).get("revision") or {})


def wait_phase(kube: Kube, name: str, phase: str, *, target: str = "", limit_s: float = 90) -> None:
    """Wait until the rollout reaches a phase; with `target`, that of another revision than this one."""

    def is_reached() -> bool:
        return rollout(kube, name).get("phase") == phase and revision(kube, name).get("target") != target

    try:
        wait_for(is_reached, goal=f"{name}: {phase}", limit_s=limit_s)
    finally:
        print(models.condition_lines(kube, name), rollout(kube, name), sep="\n")


@contextmanager
def load(kube: Kube, name: str) -> Iterator[list[Report]]:
    """Send requests over both protocols while the block runs, and report at its end."""
    common: dict[str, Any] = {"input": "x", "shape": (1, 2), "batch_output": None, "who_output": None}
    common |= {"model": name, "rate_rps": 20, "clients": 2048, "duration_s": 300}
    grpc = Load(address=kube.must_address(name, GRPC_PORT), protocol="grpc", **common)
    http = Load(address=kube.must_address(name, HTTP_PORT), protocol="http", **common)
    reports: list[Report] = []
    with RunningLoad(grpc) as first, RunningLoad(http) as second:
        for running in (first, second):
            running.began_s()
        yield reports
        reports += [first.stop(), second.stop()]


def serve(kube: Kube, deployment: dict[str, Any]) -> str:
    """Apply a model, wait until it is served, and return the name of its revision."""
    name = str(deployment["metadata"]["name"])
    kube.apply(files(name, factor=2), deployment)
    models.wait_until_served(kube, name, replicas=2)
    wait_phase(kube, name, "Complete")
    return revision(kube, name)["current"]


def test_a_revision_that_does_not_load_never_serves_and_the_one_before_comes_back(
    kube: Kube,
    digits: ColdStart,  # noqa: ARG001  # it comes first
) -> None:
    name = "rolls-back"
    try:
        first = serve(kube, document(name, gpus=0))
        with load(kube, name) as reports:
            kube.apply(files(name, factor=3, fails=True))
            wait_for(lambda: (kube.condition(name, "ModelLoaded") or {}).get("reason") == "LoadFailed",
                     goal="Triton's reason is told", limit_s=30)  # fmt: skip
            # It is told at once; the old pods serve on, and the new one is none of the balancers'.
            bad = revision(kube, name)["target"]
            assert bad != first
            new_pods = [p for p in kube.pods(name, "server") if f"{name}-{p['metadata']['labels'][_REVISION]}" == bad]
            assert [is_ready(p) for p in new_pods] == [False]
            assert models.ready_servers(kube, name) == 2
            wait_phase(kube, name, "RolledBack", limit_s=100)
            stalled = kube.condition(name, "Stalled") or {}
            assert stalled["reason"] == "RolledBack"
            assert "the weights are for another model" in stalled["message"]
            assert rollout(kube, name)["failed"]["revision"] == bad
            assert revision(kube, name) == {"current": first, "target": bad}
        assert [r.failed for r in reports] == [0, 0], reports
        assert min(r.answered for r in reports) > 500
    finally:
        models.delete(kube, name, wait=False)


def _fill(kube: Kube, name: str) -> int:
    """Occupy all free GPUs with one idle pod, and return their number."""
    (node,) = kube.items("/api/v1/nodes")
    used = sum(
        int((c.get("resources") or {}).get("limits", {}).get(_GPU, 0))
        for p in kube.items("/api/v1/pods")
        if p["status"].get("phase") in {"Pending", "Running"}
        for c in p["spec"]["containers"]
    )
    free = int(node["status"]["allocatable"][_GPU]) - used
    if free:
        container = {"name": "pause", "image": "localhost/pause:3.10", "resources": {"limits": {_GPU: str(free)}}}
        pod = {"containers": [container], "terminationGracePeriodSeconds": 0}
        kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod})
        wait_for(lambda: kube("get", "pod", name, "-o", "jsonpath={.status.phase}") == "Running", goal=name, limit_s=30)
    return free


@pytest.mark.usefixtures("digits")
def test_without_a_free_gpu_pods_are_replaced_one_by_one_and_one_that_fails_gives_its_place_back(kube: Kube) -> None:
    name = "replaces"
    try:
        first = serve(kube, document(name, gpus=1, surgeTimeout="3s"))
        _fill(kube, "gpus-taken")
        with load(kube, name) as reports:
            kube.apply(files(name, factor=3))
            wait_for(lambda: rollout(kube, name).get("strategy") == "Replace", goal="it replaces", limit_s=30)
            assert "needs 1 more nvidia.com/gpu" in rollout(kube, name)["strategyReason"]
            wait_phase(kube, name, "Complete", target=first, limit_s=120)
            second = revision(kube, name)["current"]
            assert second != first
            before = time.monotonic()
            kube.apply(files(name, factor=4, fails=True))
            wait_phase(kube, name, "RolledBack", limit_s=90)
            wait_for(lambda: models.ready_servers(kube, name) == 2, goal="both old pods", limit_s=60)
            # Long before the deadline: a pod had gone for it.
            assert time.monotonic() - before < 70 * PATIENCE
            assert "the weights are for another model" in rollout(kube, name)["failed"]["message"]
            assert revision(kube, name)["current"] == second
        assert [r.failed for r in reports] == [0, 0], reports
        events = [e["note"] for e in kube.items(f"/apis/events.k8s.io/v1/namespaces/{kube.namespace}/events")
                  if e["reason"] == "ReplacingPods" and e["regarding"]["name"] == name]  # fmt: skip
        assert len(events) == 2, events
    finally:
        models.delete(kube, name, wait=False)
        kube("delete", "pod", "gpus-taken", "--ignore-not-found", "--wait=false")
