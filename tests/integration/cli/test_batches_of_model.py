"""Batches of a model in other commands: in the bundle of `halcyon diagnose`, redacted, and in `explain` and `status`."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from halcyon.kube import kinds
from halcyon.kube.kinds import BATCH_INFERENCE
from halcyon.main import main
from halcyon.render.names import BATCH_LABEL
from halcyon_cli.kube.batches import unended_of_model
from halcyon_cli.kube.client import Cluster, Target
from tests.unit.cli.commands.inference.test_batch import RUNNING, kubeconfig
from tests.unit.cli.stand_in_api import failure, serving

FAILED: dict[str, Any] = {
    "metadata": {"name": "night", "namespace": "team", "uid": "u"},
    "spec": {"modelDeployment": "digits"},
    "status": {
        "conditions": [
            {"type": "Failed", "status": "True", "reason": "OutputUnwritable", "message": "the store denied access"},
            {"type": "Complete", "status": "False", "reason": "Failed", "message": "it has failed"},
        ]
    },
}
RUNNER: dict[str, Any] = {
    "metadata": {"name": "night-batch-x", "namespace": "team", "labels": {BATCH_LABEL: "night"}},
    "spec": {"nodeName": "n", "containers": [{"name": "runner", "image": "bench"}]},
    "status": {"phase": "Failed"},
}
EVENT = {
    "metadata": {"name": "e"},
    "regarding": {"kind": "BatchInference", "name": "night"},
    "reason": "OutputUnwritable",
    "type": "Warning",
    "note": "the store denied access",
}


def test_a_bundle_has_the_batches_of_the_model_and_redacted_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").write_text("")
    with serving() as api:
        (tmp_path / "config").write_text(kubeconfig(api.url))
        model = {"metadata": {"name": "digits", "namespace": "team", "uid": "m"}, "spec": {}, "status": {}}
        other = {**FAILED, "metadata": {"name": "other"}, "spec": {"modelDeployment": "letters"}}
        log = "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI7MDENGbPxRfiCY\nspec.output: the store denied access\n"
        api.answers |= {
            f"{kinds.MODEL_DEPLOYMENT.path('team')}/digits": (200, model),
            kinds.BATCH_INFERENCE.path("team"): (200, {"items": [FAILED, other], "metadata": {}}),
            kinds.POD.path("team"): (200, {"items": [RUNNER], "metadata": {}}),
            kinds.EVENT.path("team"): (200, {"items": [EVENT], "metadata": {}}),
            f"{kinds.POD.path('team')}/night-batch-x/log": (200, log),
        }
        bundle = tmp_path / "bundle.tar.gz"
        main(["diagnose", "digits", "--bundle", str(bundle), "-n", "team", "--kubeconfig", str(tmp_path / "config")])
        selectors = [path for _, path in api.requests if "batch-inference" in path]
    assert selectors
    with tarfile.open(bundle) as archive:
        texts = {
            name.partition("/")[2]: (archive.extractfile(name) or pytest.fail(name)).read().decode()
            for name in archive.getnames()
        }
    assert "a batch of digits has failed (OutputUnwritable)" in capsys.readouterr().out
    assert "the store denied access" in texts["objects/BatchInference/night.yaml"]
    assert "objects/BatchInference/other.yaml" not in texts
    assert "objects/Pod/night-batch-x.yaml" in texts
    assert "BatchInference" in texts["events.yaml"]
    assert "spec.output: the store denied access" in texts["logs/night-batch-x/runner.log"]
    assert not [name for name, text in texts.items() if "wJalrXUtnFEMI7MDENGbPxRfiCY" in text]


def test_causes_are_shown_if_the_bundle_can_not_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        (tmp_path / "config").write_text(kubeconfig(api.url))
        model = {"metadata": {"name": "digits", "namespace": "team", "uid": "m"}, "spec": {}, "status": {}}
        api.answers |= {
            f"{kinds.MODEL_DEPLOYMENT.path('team')}/digits": (200, model),
            kinds.BATCH_INFERENCE.path("team"): (200, {"items": [FAILED], "metadata": {}}),
        }
        bundle = tmp_path / "none" / "bundle.tar.gz"
        status = main(["diagnose", "digits", "--bundle", str(bundle), "--kubeconfig", str(tmp_path / "config")])
    captured = capsys.readouterr()
    assert status == 2
    assert "a batch of digits has failed (OutputUnwritable)" in captured.out
    assert "the evidence" not in captured.out
    assert "bundle.tar.gz: can't write it: No such file or directory; choose another file with --bundle" in captured.err


@pytest.mark.parametrize("answer", [failure(403, "forbidden"), (404, "404 page not found\n")])
def test_batches_that_can_not_be_read_are_left_out(tmp_path: Path, answer: tuple[int, Any]) -> None:
    with serving() as api:
        (tmp_path / "config").write_text(kubeconfig(api.url))
        cluster = Cluster(Target("test", tmp_path / "config"))
        api.answers[BATCH_INFERENCE.path("team")] = answer
        assert unended_of_model(cluster, "digits") == []
        other = {**RUNNING, "spec": {"modelDeployment": "letters"}}
        api.answers[BATCH_INFERENCE.path("team")] = (200, {"items": [RUNNING, other], "metadata": {}})
        assert [reason for reason, _ in unended_of_model(cluster, "digits")] == ["Running"]


@pytest.mark.parametrize("command", ["explain", "status"])
def test_a_running_batch_is_shown_with_its_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    with serving() as api:
        (tmp_path / "config").write_text(kubeconfig(api.url))
        model = {"metadata": {"name": "digits", "namespace": "team", "uid": "m"}, "spec": {}, "status": {}}
        api.answers |= {
            f"{kinds.MODEL_DEPLOYMENT.path('team')}/digits": (200, model),
            BATCH_INFERENCE.path("team"): (200, {"items": [RUNNING], "metadata": {}}),
        }
        main([command, "digits", "-n", "team", "--kubeconfig", str(tmp_path / "config")])
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "batch night is Running, 405/1000 rows, 5 without a result, 50 rows/s, expected end 2026-11-24T16:10:00Z"
        in shown
    )
