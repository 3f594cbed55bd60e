"""Commands of a user whose permissions are few: what they assume and say, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halcyon.main import main
from tests.integration.cli.test_explain_command import MODELS, Desk
from tests.unit.cli.stand_in_api import failure, serving

GROUP = "/apis/gateway.networking.k8s.io/v1/namespaces/team"
MODEL: dict[str, Any] = {
    "apiVersion": "serving.halcyon.dev/v1alpha1",
    "kind": "ModelDeployment",
    "metadata": {"name": "m", "namespace": "team", "uid": "u", "generation": 1},
    "spec": {
        "model": {"source": {"configMap": {"name": "files", "items": [{"key": "model.py", "path": "1/model.py"}]}}}
    },
}


def denied(verb: str, resource: str) -> tuple[int, Any]:
    return failure(403, f'{resource} is forbidden: User "bob" cannot {verb} resource "{resource}"')


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    with serving() as api:
        yield Desk(tmp_path, capsys, api)


def planned(desk: Desk, capsys: pytest.CaptureFixture[str], model: dict[str, Any]) -> tuple[int, Any, str]:
    """Return (exit status, report, stderr) of a plan of a new model."""
    file = desk.folder / "m.json"
    file.write_text(json.dumps(model))
    desk.api.answers[MODELS.format("team")] = (200, model)
    status = main(["plan", "-f", str(file), "-o", "report", "--kubeconfig", str(desk.kubeconfig)])
    printed = capsys.readouterr()
    return status, json.loads(printed.out or "{}"), printed.err


def test_plan_needs_no_right_to_list_routes(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.api.answers |= {f"{GROUP}/{kind}": denied("list", kind) for kind in ("httproutes", "grpcroutes")}
    desk.api.answers["/api/v1/namespaces/team/configmaps/files"] = denied("get", "configmaps")
    status, report, err = planned(desk, capsys, MODEL)
    assert (status, err, report["accepted"]) == (0, "", True)
    assert "you may not read ConfigMap files: the name of its copy will differ" in report["notes"]
    assert not any("HTTPRoutes" in note for note in report["notes"])
    gateway = MODEL["spec"] | {"traffic": {"gateway": {"name": "edge"}}}
    _, report, _ = planned(desk, capsys, MODEL | {"spec": gateway})
    assert "you may not read HTTPRoutes and GRPCRoutes: assumes that the cluster has these kinds" in report["notes"]


def test_plan_ends_if_children_are_unknown_for_another_reason(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.api.answers["/apis/apps/v1/namespaces/team/deployments/m-a"] = failure(503, "etcd has no leader")
    status, report, err = planned(desk, capsys, MODEL)
    assert (status, report) == (2, {})
    assert "responds with 503: etcd has no leader" in err


def test_operators_that_can_not_be_read_are_unknown(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.api.answers["/version"] = (200, {"gitVersion": "v1.35.0"})
    config = ["--kubeconfig", str(desk.kubeconfig)]
    for path in ("/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/team/deployments"):
        desk.api.answers[path] = denied("list", "deployments")
    assert main(["version", *config]) == 0
    assert "Operator:    unknown: no access: deployments is forbidden" in capsys.readouterr().out
    assert main(["version", "-o", "json", *config]) == 0
    assert json.loads(capsys.readouterr().out)["operators"] is None


def test_lists_of_all_namespaces_need_a_right_in_the_whole_cluster(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/apis/serving.halcyon.dev/v1alpha1/modeldeployments"
    desk.api.answers[path] = denied("list", "modeldeployments")
    assert main(["get", "-A", "--kubeconfig", str(desk.kubeconfig)]) == 2
    assert "get and list on modeldeployments.serving.halcyon.dev in the whole cluster" in capsys.readouterr().err


def test_resumed_model_gets_back_the_mode_before_the_incident(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.holds("m", situation="paused")
    model = desk.api.answers[f"{MODELS.format('team')}/m"][1]
    model["metadata"].setdefault("annotations", {})["serving.halcyon.dev/paused-from"] = "Recommend"
    assert main(["resume", "m", "--kubeconfig", str(desk.kubeconfig), "--no-color"]) == 0
    assert "m resumed (was Paused), in mode Recommend as before" in capsys.readouterr().out
    assert json.loads(desk.api.bodies[-1])["spec"] == {"scaling": {"mode": "Recommend"}}
