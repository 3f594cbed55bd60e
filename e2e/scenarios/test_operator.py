"""The operator may go: what serves goes on, what scales waits a moment, what is deleted goes all the same."""

import json
import threading
import time
from collections.abc import Callable
from typing import Self

import pytest

from demo import models
from demo.kube import COMPONENT_LABEL, OWNER_LABEL, PATIENCE, SYSTEM, Kube, is_ready, total, wait_for
from demo.models import DIGITS, GRPC_PORT
from e2e.load.process import RunningLoad
from e2e.load.settings import Load

_CHILDREN = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets,horizontalpodautoscalers,controllerrevisions,pods"
_HAND_OVER_S = 2.0
"""Longest gap that the design allows if a leader ends by itself."""


class MetricPoller:
    """Poller of a model's metric, four times a second, as an impatient HPA would. It records failures."""

    def __init__(self, kube: Kube, name: str) -> None:
        self.failures: list[tuple[float, str]] = []
        """Time of each failure, in seconds of the monotonic clock, and its text."""
        self.answered = 0
        self._kube = kube
        self._path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{kube.namespace}/queueDepth"
        self._selector = f"{OWNER_LABEL}={name}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.25):
            status, body = self._kube.raw(self._path, labelSelector=self._selector)
            if status == 200 and json.loads(body)["items"]:
                self.answered += 1
            else:
                self.failures.append((time.monotonic(), f"{status} {body.decode()}"))


def _leader(kube: Kube) -> str | None:
    for pod in kube.operators():
        if total(kube.metrics(pod, 8080), "halcyon_leader") == 1:
            return str(pod["metadata"]["name"])
    return None


@pytest.mark.usefixtures("digits")
def test_a_deleted_leader_costs_no_request_and_no_metric_beyond_the_hand_over(kube: Kube) -> None:
    wait_for(lambda: len([p for p in kube.operators() if is_ready(p)]) == 2, goal="two operators", limit_s=60)
    wait_for(lambda: kube.external_metric(DIGITS, "queueDepth") is not None, goal="the metric is served", limit_s=30)
    wait_for(lambda: _leader(kube) is not None, goal="one leads", limit_s=10)
    first = _leader(kube)
    assert first is not None
    load = Load(address=kube.must_address(DIGITS, GRPC_PORT), model=DIGITS, rate_rps=20, clients=256, duration_s=120)
    with MetricPoller(kube, DIGITS) as poller, RunningLoad(load) as running:
        running.began_s()
        time.sleep(2)
        kube("delete", "pod", first, "--wait=false", namespace=SYSTEM)
        wait_for(lambda: _leader(kube) not in {None, first}, goal="the other leads", limit_s=20)
        wait_for(lambda: len([p for p in kube.operators() if is_ready(p)]) == 2, goal="two operators", limit_s=60)
        time.sleep(6)  # at least one more round of the HPA
        report = running.stop()
    assert report.failed == 0, report
    assert poller.answered > 20
    if poller.failures:
        assert poller.failures[-1][0] - poller.failures[0][0] <= _HAND_OVER_S * PATIENCE, poller.failures


def test_children_of_a_model_that_is_deleted_while_no_operator_runs_go_too(
    kube: Kube, served: Callable[..., str]
) -> None:
    name = served(models.variant("orphaned", gpus=0))
    assert _children(kube, name)
    kube("scale", "deployment/halcyon", "--replicas=0", namespace=SYSTEM)
    try:
        wait_for(lambda: not kube.operators(), goal="no operator runs", limit_s=60)
        kube("delete", "modeldeployment", name, "--wait=false")
        wait_for(lambda: not _children(kube, name), goal=f"the children of {name} go", limit_s=90, every_s=1)
    finally:
        kube("scale", "deployment/halcyon", "--replicas=2", namespace=SYSTEM)
        kube("rollout", "status", "deployment/halcyon", "--timeout=90s", namespace=SYSTEM)


def _children(kube: Kube, name: str) -> list[str]:
    items = json.loads(kube("get", _CHILDREN, f"--selector={OWNER_LABEL}={name}", "-o", "json"))["items"]
    return [
        f"{item['kind']}/{item['metadata']['name']}" for item in items if COMPONENT_LABEL in item["metadata"]["labels"]
    ]
