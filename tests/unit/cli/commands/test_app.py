"""The frame of the commands: help, errors, completion, the reference page, and the plug-in's manifest."""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
import yaml

from generators.cli_reference import COMMON, COMMON_FORMS, GOLDEN, commands, page
from halcyon.main import main
from halcyon_cli.commands.app import COMMANDS, EXIT_STATUSES, NEGATIVE_RESULTS, group
from halcyon_cli.kube.client_messages import INSTALL_COMMAND
from halcyon_cli.plan import preview
from tests.unit.cli.explain.test_report import compared

ROOT = Path(__file__).parents[4]
NAMES = [name for entries in COMMANDS.values() for name in entries]
MODEL = "{apiVersion: serving.halcyon.dev/v1alpha1, kind: ModelDeployment, metadata: {name: résnet}, spec: {}}\n"
COMMAND = shlex.join([sys.executable, "-c", "import sys; from halcyon.main import main; sys.exit(main())"])


def examples() -> Iterator[tuple[str, list[str]]]:
    """(command, arguments) of every example in a help text."""
    context = click.Context(group)
    for name in NAMES:
        command = group.get_command(context, name)
        for line in ((command.epilog if command else None) or "").splitlines():
            _, separator, rest = (
                line.partition(f"  halcyon {name} ")
                if line.startswith("  halcyon")
                else line.partition(f"| halcyon {name} ")
            )
            if separator:
                yield name, shlex.split(rest.partition(" > ")[0])


def test_the_reference_page_is_what_the_commands_say() -> None:
    compared(ROOT / "docs/reference/cli.md", page(ROOT / GOLDEN).rstrip() + "\n")


def test_every_example_in_a_help_text_is_right_usage() -> None:
    cases = list(examples())
    context = click.Context(group)
    for name, arguments in cases:
        command = group.get_command(context, name)
        assert command is not None
        command.make_context(name, arguments, parent=context)

    assert {name for name, _ in cases} == set(NAMES) - {"simulate"}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "simulate"])
def test_every_command_has_help_that_names_its_exit_statuses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    help_text = capsys.readouterr().out

    assert "exit status" in help_text or name == "completion"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "simulate"])
def test_help_fits_80_columns(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([name, "--help"]) == 0

    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("parameter", COMMON)
def test_an_option_that_commands_share_is_on_all_that_could_use_it(parameter: str) -> None:
    having = {name for name, command in commands() if parameter in {param.name for param in command.params}}
    # lint, report, analyse and variants reach no cluster; logs prints text that it doesn't own, dashboard a URL, and report writes a page.
    offline = (
        {"lint", "report", "analyse", "variants"}
        if parameter not in {"form", "no_color"}
        else {"logs", "dashboard", "report"}
    )

    assert having == set(NAMES) - {"simulate", "completion"} - offline


def test_the_output_option_has_the_same_formats_in_every_command() -> None:
    for name, command in commands():
        forms = [tuple(p.type.choices) for p in command.params if p.name == "form" and isinstance(p.type, click.Choice)]
        assert all(choices[0] == "table" and set(COMMON_FORMS) <= set(choices) for choices in forms), name


def test_exit_status_1_is_documented_for_exactly_the_commands_that_return_it() -> None:
    """A command returns it by a 1 in a return statement of its module, or of the preview that plan ends with."""
    modules = {name: module.partition(":")[0] for entries in COMMANDS.values() for name, (module, _) in entries.items()}
    modules |= {"plan": preview.__name__}
    returning = {name for name, module in modules.items() if name != "simulate" and _returns_1(module)}
    documented = {name for name, command in commands() if "\n  1  " in (command.epilog or "")}
    listed = dict(EXIT_STATUSES)["1"].partition(": ")[2].split(", ")

    assert returning == documented == set(listed) == set(NEGATIVE_RESULTS)


def _returns_1(module: str) -> bool:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None]
    ends = [
        end for value in returned for end in ((value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,))
    ]
    return any(isinstance(end, ast.Constant) and end.value is not True and end.value == 1 for end in ends)


MANIFEST = """\
apiVersion: serving.halcyon.dev/v1alpha1
kind: ModelDeployment
metadata: {name: m}
spec:
  model: {source: {configMap: {name: files, items: [{key: model.onnx, path: 1/model.onnx}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: files}
data: {model.onnx: x}
"""


@pytest.mark.parametrize(
    ("text", "arguments", "status"),
    [
        (MANIFEST, ["lint"], 0),
        (MANIFEST.replace("{name: m}", "{name: M}"), ["lint"], 1),
        (MANIFEST.replace("ModelDeployment", "Service").replace("serving.halcyon.dev/v1alpha1", "v1"), ["lint"], 2),
        (MANIFEST, ["plan", "--offline"], 0),
        (MANIFEST.replace("data: {model.onnx: x}", "data: {other: x}"), ["plan", "--offline"], 1),
        (MANIFEST.replace("{name: m}", "{name: M}"), ["plan", "--offline"], 2),
        (MANIFEST, ["plan"], 2),
    ],
)
def test_the_exit_status_of_commands_for_files_is_the_documented_one(
    text: str, arguments: list[str], status: int, tmp_path: Path
) -> None:
    (tmp_path / "m.yaml").write_text(text)

    assert main([*arguments, "-f", str(tmp_path / "m.yaml")]) == status


def test_lint_takes_files_with_and_without_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for file in files:
        file.write_text(MANIFEST.replace("{name: m}", f"{{name: {file.stem}}}"))
    first, second = map(str, files)

    assert main(["lint", first, second]) == main(["lint", "-f", first, second]) == 0
    assert capsys.readouterr().out.count("2 ModelDeployments in 2 files") == 2
    assert main(["lint"]) == 2
    assert "Missing a file or folder, for example: halcyon lint -f model.yaml" in capsys.readouterr().err


def test_the_advice_to_install_is_the_command_of_the_install_guide() -> None:
    assert f"$ {INSTALL_COMMAND}\n" in (ROOT / "docs/guides/install.md").read_text()


def test_the_help_without_a_command_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    captured = capsys.readouterr()

    assert all(f"  {name} " in captured.out + captured.err for name in NAMES)


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
        ["scale", "m"],
        ["scale", "m", "3", "--replicas=4"],
    ],
)
def test_wrong_usage_is_status_2_and_says_so_on_stderr(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get", "--for", "5m"], "--for limits -w; add -w, or omit --for"),
        (["get", "m", "--for", "5m"], "--for limits -w; add -w, or omit --for"),
        (["status", "m", "--for", "5m"], "--for limits -w; add -w, or omit --for"),
        (
            ["diagnose", "m", "--no-bundle", "--bundle", "m.tar.gz"],
            "--bundle names a file, and --no-bundle writes none",
        ),
        (["pause", "m", "-A"], "-A needs --all, and m names one model; omit -A"),
        (["pause", "m", "-l", "team=x"], "-l needs --all, and m names one model; omit -l"),
        (["resume", "m", "-A"], "-A needs --all, and m names one model; omit -A"),
        (["resume", "m", "-l", "team=x"], "-l needs --all, and m names one model; omit -l"),
        (["pause", "--site", "-A"], "--site is for the whole site; omit -A"),
        (["get", "m", "-w", "-o", "yaml"], "-w shows a tree, which -o yaml isn't; omit one of them"),
        (["resume", "--site", "-l", "team=x"], "--site is for the whole site; omit -l"),
    ],
)
def test_option_without_an_effect_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_is_printed_for_a_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_HALCYON_COMPLETE" in capsys.readouterr().out


def test_a_missing_package_of_the_extra_is_named_with_its_installation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "halcyon_cli.commands.get", None)
    with pytest.raises(ModuleNotFoundError):
        main(["get"])

    def lacking(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'tritonclient'", name="tritonclient.http")

    monkeypatch.setattr(group, "main", lacking)
    assert main(["infer"]) == 2
    stderr = capsys.readouterr().err
    assert stderr == (
        "halcyon infer: needs tritonclient, which the extra bench of the distribution halcyon-cli installs: "
        "pip install './cli[bench]', in a clone\n"
    )


def test_simulate_without_its_distribution_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "halcyon_simulator", None)
    for name in [name for name in sys.modules if name.startswith("halcyon_simulator.")]:
        monkeypatch.delitem(sys.modules, name)

    assert main(["simulate", "--scenario", "S1"]) == 2
    stderr = capsys.readouterr().err
    assert (
        "the extra simulate of the distribution halcyon-cli installs: pip install './cli[simulate]', in a clone"
        in stderr
    )


def test_halcyon_without_its_commands_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("halcyon.main._COMMANDS", "halcyon_absent.commands.app")

    assert [main(arguments) for arguments in (["get", "digits"], [], ["--help"], ["--version"])] == [2, 2, 0, 0]
    captured = capsys.readouterr()
    assert captured.err == (
        "halcyon get: needs the distribution halcyon-cli, which isn't installed: pip install ./cli, in a clone\n"
    )
    assert all(f"  {name} " in captured.out for name in ("operator", "agent", "fetch"))
    assert captured.out.splitlines()[-1] == f"halcyon {version('halcyon-core')}"


def test_the_manifest_for_krew_names_the_program_of_the_wheel() -> None:
    plugin = yaml.safe_load((ROOT / "manifests/krew/halcyon.yaml").read_text())
    scripts = (ROOT / "cli/pyproject.toml").read_text()

    assert {platform["bin"] for platform in plugin["spec"]["platforms"]} == {"kubectl-halcyon"}
    assert '\nkubectl-halcyon = "halcyon_cli.commands.app:run"\n' in scripts


def shell(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in which $HALCYON is the command, and return its output, with stderr."""
    return subprocess.run(
        ["/bin/sh", "-c", script.replace("$HALCYON", COMMAND)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ("$HALCYON lint -f m.yaml", 1, r"r\xe9snet"),
        ("$HALCYON lint -f m.yaml >/dev/full", 2, "halcyon lint: stdout can't be written: No space left on device"),
        ("$HALCYON lint -f m.yaml >&-", 1, ""),
        ("$HALCYON lint -f - <&-", 2, "halcyon lint: stdin: no ModelDeployment or BatchInference in it"),
        ("$HALCYON plan -f m.yaml --offline 2>&-", 2, ""),
        ("$HALCYON lint -f m.yaml.none 2>/dev/full", 2, ""),
    ],
)
def test_streams_that_are_closed_full_or_not_unicode_are_no_traceback(
    script: str, status: int, words: str, tmp_path: Path
) -> None:
    (tmp_path / "m.yaml").write_text(MODEL, "utf-8")
    completed = shell(script.replace("m.yaml", str(tmp_path / "m.yaml")), PYTHONIOENCODING="ascii")
    assert completed.returncode == status, completed.stdout
    assert words in completed.stdout
    assert "Traceback" not in completed.stdout


def test_an_interrupt_while_modules_are_imported_is_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("halcyon.main.import_module", interrupted)
    assert main(["lint"]) == 130


@pytest.mark.parametrize(
    "line",
    ["infer m --input x --pixel-scale nan", "bench m --pixel-scale inf", "top --gpu-price nan"],
)
def test_an_amount_that_is_no_number_is_a_usage_error(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert f"'{line.rsplit(maxsplit=1)[-1]}' is not a finite number; for example 2.5" in capsys.readouterr().err
