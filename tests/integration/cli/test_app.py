"""The command line on an API server's stand-in: completion of names, contexts. Not here: help and usage (tests/unit/cli)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from halcyon.main import main
from halcyon_cli.commands.completion import kubectl
from tests.integration.cli.test_explain_command import MODELS, Desk
from tests.unit.cli.stand_in_api import serving


def test_kubectl_completes_commands_options_and_names_of_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("digits", "bert", "digits-large")
        config = ["--kubeconfig", str(desk.kubeconfig)]

        assert completed(capsys, "ex") == ["explain", ":4"]
        assert completed(capsys, "lint", "--st") == ["--strict", ":4"]
        assert completed(capsys, "explain", *config, "dig") == ["digits", "digits-large", ":4"]
        assert completed(capsys, "lint", "-f", "") == [":0"]
        assert completed(capsys, "explain", *config, "-n", "elsewhere", "") == [":4"]


def completed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What kubectl is told, without the help beside."""
    assert kubectl(list(words)) == 0
    return [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("command", "situation", "text"),
    [
        (["scale", "m", "4", "--pause"], "rising", "m scaled to 4 replicas; watch it with halcyon get m -w"),
        (["pause", "m"], "rising", "m paused at 6 replicas; resume it with halcyon resume m"),
        (["resume", "m"], "paused", "scaling of m resumed (was Paused); see its decisions with halcyon explain m"),
    ],
)
def test_a_change_prints_a_message_or_the_changed_object(
    command: list[str], situation: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m", situation=situation)
        arguments = [*command, "--kubeconfig", str(desk.kubeconfig), "--no-color"]

        assert main(arguments) == 0
        assert capsys.readouterr().out == f"{text}\n"
        assert main([*arguments, "-o", "json"]) == 0
        changed = json.loads(capsys.readouterr().out)
        assert main([*arguments, "-o", "yaml"]) == 0
        assert yaml.safe_load(capsys.readouterr().out) == changed
        assert (changed["kind"], changed["metadata"]["name"]) == ("ModelDeployment", "m")
        assert [method for method, _ in api.asked] == ["GET", "PATCH"] * 3


def test_a_canary_and_a_refresh_have_their_results_as_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("m")
        model = api.answers[MODELS.format("team") + "/m"][1]
        data = ["--kubeconfig", str(desk.kubeconfig), "-o", "json"]

        assert main(["refresh", "m", *data]) == 0
        assert json.loads(capsys.readouterr().out) == []
        outdated = {"type": "RuntimeOutdated", "status": "True", "message": "the image differs"}
        model["status"]["conditions"].append(outdated)
        assert main(["refresh", "m", "--dry-run", *data]) == 0
        (dry,) = json.loads(capsys.readouterr().out)
        assert (dry["namespace"], dry["name"], dry["result"]) == ("team", "m", "outdated")
        assert main(["refresh", "m", *data]) == 0
        (started,) = json.loads(capsys.readouterr().out)
        assert started == {**dry, "result": "started"}

        model["status"]["rollout"] = {"phase": "Progressing", "canary": {"step": 1, "weight": 5}}
        assert main(["promote", "m", *data]) == 0
        assert json.loads(capsys.readouterr().out)["metadata"]["name"] == "m"


def test_the_named_context_counts_and_another_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("digits")

        assert desk.run("digits", "--context", "x")[0] == 0
        assert "has no context y; it has x, for example --context x" in desk.wrong("digits", "--context", "y")
