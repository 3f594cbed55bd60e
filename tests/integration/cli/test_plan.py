"""`halcyon plan -f FILE` against a real API server: what it says there would be is what the operator makes then, and nothing is written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.cluster import Cluster
from e2e.cluster.kubectl import Kubectl
from halcyon.kube import kinds
from halcyon.main import main
from tests.integration.operator_space import Object, Space, deployment, files
from tests.integration.waiting import rested

pytestmark = pytest.mark.more

QUIET_S = 11
"""A status whose words alone have changed is written within 10 s."""
Run = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def plan(cluster: Cluster, space: Space, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """`plan(object, ...)`: (exit status, what is told as data, stderr)."""

    def run(obj: Object, *options: str) -> tuple[int, dict[str, Any], str]:
        file = tmp_path / "m.yaml"
        file.write_text(yaml.safe_dump(obj))
        target = ["-n", space.namespace, "--kubeconfig", str(cluster.kubeconfig)]
        status = main(["plan", "-f", str(file), "-o", "report", *target, *options])
        captured = capsys.readouterr()
        return status, json.loads(captured.out) if captured.out else {}, captured.err

    return run


def planned_changes(report: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(child["kind"], child["name"]): child["change"] for child in report["children"]}


def test_the_plan_is_what_the_operator_then_makes(space: Space, plan: Run) -> None:
    space.apply(files())
    before = space.versions()
    status, report, err = plan(deployment(replicas=2))
    assert (status, err) == (0, "")
    assert space.versions() == before
    assert set(planned_changes(report).values()) == {"create"}
    assert report["servers"] == "2 model pods of the first revision would start"

    space.serve(replicas=2)
    # The overlay's and the record's names follow from the spec, so they are told as they come.
    assert set(space.children()) == set(planned_changes(report))
    # The second balancer, Events, and words of the status come a while after it is served.
    before = rested(space.versions, for_s=QUIET_S)
    status, again, _ = plan(deployment(replicas=2))
    assert (status, again["servers"]) == (0, "no model pod would restart: the revision stays the same")
    assert set(planned_changes(again).values()) == {"same"}, [c for c in again["children"] if c["change"] != "same"]
    assert space.versions() == before


def test_the_objects_of_a_plan_are_applied_by_kubectl(
    space: Space, kubectl: Kubectl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space.apply(files())
    file = tmp_path / "m.yaml"
    file.write_text(yaml.safe_dump(deployment(replicas=2, scaling={"minReplicas": 1, "maxReplicas": 5})))
    assert (
        main(["plan", "-f", str(file), "-o", "yaml", "-n", space.namespace, "--kubeconfig", str(kubectl.kubeconfig)])
        == 0
    )
    written = capsys.readouterr().out
    applied = kubectl(
        "apply", "--dry-run=server", "-o", "name", "-n", space.namespace, "-f", "-", stdin=written
    ).split()

    assert len(applied) == len(yaml.safe_load(written)["items"]) > 8
    assert "deployment.apps/m-a" in applied
    assert "&id" not in written
    assert space.get(kinds.DEPLOYMENT, "m-a") is None


def test_a_change_is_shown_as_the_api_server_would_have_it(space: Space, plan: Run) -> None:
    space.serve(replicas=1)
    changed = deployment(replicas=1, batching={"maxBatchSize": 4})
    _, report, _ = plan(changed)
    by = {(child["kind"], child["name"]): child for child in report["children"]}

    assert report["servers"].startswith("1 model pod would be replaced by rollout.strategy Auto")
    servers = by["Deployment", "m-a"]
    assert servers["change"] == "change"
    assert any(line.startswith("+") and "serving.halcyon.dev/revision" in line for line in servers["diff"])
    # The API server's defaults are there on both sides, so they are no difference.
    assert not any("terminationMessagePath" in line for line in servers["diff"] if line[0] in "+-")
    space.apply(changed)
    space.wait_settled()
    assert {child for child, change in planned_changes(report).items() if change == "create"} <= set(space.children())
    assert set(planned_changes(plan(changed)[1]).values()) == {"same"}


def test_the_writer_of_the_replicas_keeps_them(space: Space, plan: Run) -> None:
    document = deployment(scaling={"minReplicas": 1, "maxReplicas": 5, "actuator": "Direct"})
    space.apply(files(), document)
    space.wait_settled()
    space.scale(3)
    space.wait_settled()

    _, report, _ = plan(document)
    assert planned_changes(report)["Deployment", "m-a"] == "same"


def test_objects_that_the_api_server_refuses_are_refused(space: Space, plan: Run) -> None:
    space.apply(files())
    document = deployment(name="m", replicas=1)
    document["spec"]["scaling"] = {"minReplicas": 5, "maxReplicas": 2}
    status, report, err = plan(document)

    assert (status, report) == (2, {})
    assert "maxReplicas" in err
    missing = deployment(replicas=1)
    missing["spec"]["model"]["source"]["configMap"]["name"] = "absent"
    status, report, _ = plan(missing)
    assert space.get(kinds.MODEL_DEPLOYMENT, "m") is None
    assert any("absent" in note for note in [*report["notes"], report["message"]])
