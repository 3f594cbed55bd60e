"""The command line on an API server's stand-in: completion of names, contexts. Not here: help and usage (tests/unit/cli)."""

from __future__ import annotations

from pathlib import Path

import pytest

from halcyon.cli.commands.completion import kubectl
from tests.integration.cli.test_explain_command import Desk
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


def test_the_named_context_counts_and_another_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as api:
        desk = Desk(tmp_path, capsys, api)
        desk.holds("digits")

        assert desk.run("digits", "--context", "x")[0] == 0
        assert "has no context y; it has x, for example --context x" in desk.wrong("digits", "--context", "y")
