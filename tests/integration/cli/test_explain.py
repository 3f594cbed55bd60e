"""`halcyon explain` on what a real API server, scheduler and quota controller say. Pods are KWOK's, so no agent speaks.

What it says of decisions is the unit tests' matter: there the planner decides on what agents say.
"""

from collections.abc import Callable
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from halcyon.main import main
from tests.integration.operator_space import Space, deployment, files
from tests.integration.waiting import until

pytestmark = pytest.mark.more

Explain = Callable[..., str]
SCALING: dict[str, Any] = {"minReplicas": 1, "maxReplicas": 5, "actuator": "Direct"}


@pytest.fixture
def explain(cluster: Cluster, space: Space, capsys: pytest.CaptureFixture[str]) -> Explain:
    """`explain(text)`: waits until the page has it; the page, on one line."""

    def page() -> str:
        status = main(["explain", "m", "-n", space.namespace, "--kubeconfig", str(cluster.kubeconfig)])
        captured = capsys.readouterr()
        assert (status, captured.err) == (0, "")
        return " ".join(captured.out.split())

    def explained(text: str) -> str:
        return until(page, lambda shown: text in shown, goal=f"it is explained by {text!r}")

    return explained


def test_a_pod_that_finds_no_node_is_explained_by_the_scheduler(space: Space, explain: Explain) -> None:
    nowhere = {"gpu": {"count": 0}, "placement": {"nodeSelector": {"halcyon.dev/pool": "nowhere"}}}
    space.apply(files(), deployment(replicas=2, runtime=nowhere))

    page = explain("0 of 2 ready, 2 unschedulable")
    assert "2 replicas, fixed: spec.scaling is not set" in page
    assert "ServersReady is False (Unschedulable)" in page
    assert "didn't match Pod's node affinity/selector" in page


def test_gpus_that_are_not_there_are_counted_and_their_holders_named(space: Space, explain: Explain) -> None:
    space.apply(files(), deployment(replicas=3, runtime={"gpu": {"count": 3}}))

    page = explain(f"2 of 8 nvidia.com/gpu free on 1 node; {space.namespace}/m holds 6")
    assert "1 unschedulable" in page
    assert "1 Insufficient nvidia.com/gpu" in page


def test_a_quota_that_refuses_pods_is_explained_by_its_name(space: Space, explain: Explain) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"count/pods": "3"}}}
    space.api.create(f"/api/v1/namespaces/{space.namespace}/resourcequotas", quota)
    space.apply(files(), deployment(replicas=4))

    page = explain("exceeded quota: few")
    assert "4 replicas, fixed" in page
    assert "not created yet" in page


def test_another_autoscaler_is_explained_by_its_name(space: Space, explain: Explain) -> None:
    space.serve(scaling=SCALING)
    target = {"apiVersion": kinds.MODEL_DEPLOYMENT.api_version, "kind": kinds.MODEL_DEPLOYMENT.kind, "name": "m"}
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3, "metrics": [metric]}
    theirs = {"apiVersion": kinds.HPA.api_version, "kind": kinds.HPA.kind, "metadata": {"name": "theirs"}, "spec": spec}
    space.apply(theirs)

    assert "external autoscaler: HorizontalPodAutoscaler theirs" in explain("external autoscaler")


def test_a_pause_a_missing_signal_and_a_refused_spec_are_explained(space: Space, explain: Explain) -> None:
    space.serve(scaling=SCALING)
    assert "1 replica; nothing was decided yet: no balancer agent has reported yet" in explain("no balancer agent")

    sourceless = deployment(scaling=SCALING)
    sourceless["spec"]["model"]["source"]["configMap"]["name"] = "absent"
    space.apply(sourceless)
    page = explain("SourceNotFound")
    assert "ConfigMap" in page
    assert "the last accepted spec stays in effect" in page


def test_a_rollout_without_room_is_explained(space: Space, explain: Explain) -> None:
    space.serve(replicas=1)
    nowhere = {"gpu": {"count": 0}, "placement": {"nodeSelector": {"halcyon.dev/pool": "nowhere"}}}
    space.apply(deployment(replicas=1, runtime=nowhere, rollout={"strategy": "Surge", "surgeTimeout": "1s"}))

    page = explain("RolloutBlocked")
    assert "is waiting for capacity" in page
    assert "1 replica, fixed" in page
