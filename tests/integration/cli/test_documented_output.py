"""The output of commands in docs/reference/cli.md, each from the command itself on an API server's stand-in."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from generators.cli_reference import OUTPUTS
from halcyon.main import main
from tests.integration.cli.test_app import REVISIONS, revisions
from tests.integration.cli.test_explain_command import MODELS, Desk
from tests.unit.cli.explain.test_report import GOLDEN, compared
from tests.unit.cli.stand_in_api import Api, serving

COMMANDS = (
    "status", "history", "logs", "scale", "pause", "resume", "promote", "abort", "undo", "restart", "refresh", "images",
    "version",
)  # fmt: skip
"""Commands whose output this module makes; unit tests make that of the others."""
MANIFEST = {
    "kind": "Deployment",
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {
                        "image": f"registry.example.com/halcyon-operator@sha256:{'a' * 64}",
                        "args": [f"--balancer-image=registry.example.com/halcyon-balancer@sha256:{'b' * 64}"],
                    }
                ]
            }
        }
    },
}


def test_every_command_has_an_output_in_the_reference_that_a_test_makes() -> None:
    assert set(COMMANDS) < set(OUTPUTS)


@pytest.mark.parametrize(("line", "file"), [each for name in COMMANDS for each in OUTPUTS[name]])
def test_an_output_in_the_reference_is_that_of_the_command(
    line: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rendered.yaml").write_text(yaml.safe_dump(MANIFEST))
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        _have_models(desk, api)
        arguments = shlex.split(line)[1:]
        monkeypatch.setenv("KUBECONFIG", str(desk.kubeconfig))
        status = main(arguments)
        captured = capsys.readouterr()

    assert (status, captured.err) == (0, "")
    compared(GOLDEN / file, captured.out)


def _have_models(desk: Desk, api: Api) -> None:
    """Let the namespace have two models, their revisions and pods, and an operator."""
    desk.holds("digits", "bert")
    now = datetime.now(UTC)
    ended = [
        (now - age).strftime("%Y-%m-%dT%H:%M:%SZ")
        for age in (timedelta(days=9.5), timedelta(hours=2.5), timedelta(hours=1.5))
    ]
    api.answers[REVISIONS] = (200, {"items": revisions(desk, "digits", ended)})
    model = api.answers[f"{MODELS.format('team')}/digits"][1]
    model["spec"]["scaling"]["mode"] = "Paused"
    model["metadata"]["generation"] = model["status"]["observedGeneration"] = 3
    model["status"]["revision"] = {"current": "digits-c2d65bc95f", "target": "digits-c2d65bc95f"}
    model["status"]["rollout"] = {"phase": "Complete", "canary": {"step": 1, "weight": 5}}
    outdated = {"type": "RuntimeOutdated", "status": "True", "message": "the image differs"}
    ready = {"type": "Ready", "status": "True", "message": "3 of 3 servers are ready"}
    model["status"]["conditions"] = [ready, outdated]
    pods = "/api/v1/namespaces/team/pods"
    names = ["digits-a-5d9c7-4kx2p", "digits-a-5d9c7-9wz7q"]
    api.answers[pods] = (200, {"items": [{"metadata": {"name": name}} for name in names]})
    for name in names:
        text = "I1119 10:00:00.1 1 model_lifecycle.cc:849] successfully loaded 'digits'\n"
        api.answers[f"{pods}/{name}/log"] = (200, text)
    own = version("halcyon-cli")
    meta = {"namespace": "halcyon-system", "name": "halcyon", "labels": {"app.kubernetes.io/version": own}}
    api.answers["/apis/apps/v1/deployments"] = (200, {"items": [{"metadata": meta}]})
    api.answers["/version"] = (200, {"gitVersion": "v1.35.0"})
