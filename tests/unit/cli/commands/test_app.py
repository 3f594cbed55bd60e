"""The frame of the commands: help, errors, completion, the reference page, and the plug-in's manifest."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from halcyon.cli.commands.app import COMMANDS, group
from halcyon.cli.commands.main import main
from halcyon.cli.commands.reference_page import page
from tests.unit.cli.explain.test_report import compared

ROOT = Path(__file__).parents[4]
NAMES = [name for entries in COMMANDS.values() for name in entries]


def examples() -> Iterator[tuple[str, list[str]]]:
    """(command, arguments) of every example in a help text."""
    context = click.Context(group)
    for name in NAMES:
        command = group.get_command(context, name)
        for line in ((command.epilog if command else None) or "").splitlines():
            _, found, rest = (
                line.partition(f"  halcyon {name} ")
                if line.startswith("  halcyon")
                else line.partition(f"| halcyon {name} ")
            )
            if found:
                yield name, shlex.split(rest.partition(" > ")[0])


def test_the_reference_page_is_what_the_commands_say() -> None:
    compared(ROOT / "docs/reference/cli.md", page().rstrip() + "\n")


def test_every_example_in_a_help_text_is_right_usage() -> None:
    found = list(examples())
    context = click.Context(group)
    for name, arguments in found:
        command = group.get_command(context, name)
        assert command is not None
        command.make_context(name, arguments, parent=context)

    assert {name for name, _ in found} == set(NAMES) - {"simulate"}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "simulate"])
def test_every_command_has_help_that_names_its_exit_statuses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    told = capsys.readouterr().out

    assert "exit status" in told or name == "completion"


def test_the_help_without_a_command_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr()

    assert all(f"  {name} " in told.out + told.err for name in NAMES)


@pytest.mark.parametrize(
    "arguments",
    [
        ["gett"],
        ["get", "x", "-A"],
        ["get", "-w"],
        ["get", "x", "-w", "-o", "json"],
        ["top", "--sort", "age"],
        ["infer", "m"],
        ["scale", "m", "many"],
    ],
)
def test_wrong_usage_is_status_2_and_says_so_on_stderr(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_is_printed_for_a_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_HALCYON_COMPLETE" in capsys.readouterr().out


def test_a_missing_package_of_the_extra_is_named_with_its_installation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "halcyon.cli.commands.get", None)
    with pytest.raises(ModuleNotFoundError):
        main(["get"])

    def lacking(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'rich'", name="rich.table")

    monkeypatch.setattr(group, "main", lacking)
    assert main(["get"]) == 2
    said = capsys.readouterr().err
    assert "the package rich.table is needed for this: pip install 'halcyon-operator[cli]'" in said
    assert "in a clone: pip install '.[cli]'" in said


def test_the_manifest_for_krew_names_the_program_of_the_wheel() -> None:
    plugin = yaml.safe_load((ROOT / "manifests/krew/halcyon.yaml").read_text())
    scripts = (ROOT / "pyproject.toml").read_text()

    assert {platform["bin"] for platform in plugin["spec"]["platforms"]} == {"kubectl-halcyon"}
    assert '\nkubectl-halcyon = "halcyon.cli.commands.main:main"\n' in scripts
