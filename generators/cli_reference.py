"""Generator of docs/reference/cli.md from the help of the commands, with example output from the tests' golden files.

`scripts/generate docs` runs it in the repository's root: `python -m generators.cli_reference`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from halcyon_cli.commands.app import COMMANDS, EXIT_STATUSES, NEGATIVE_RESULTS, group

GOLDEN = Path("tests/unit/cli/golden")
"""Folder of the golden files, relative to the repository's root."""
OUTPUTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "get": (
        ("halcyon get -n team", "list.txt"),
        ("halcyon get digits -n team", "tree-canary.txt"),
    ),
    "top": (("halcyon top -n team --gpu-price 2.50", "top.txt"),),
    "status": (("halcyon status digits -n team --watch", "status.txt"),),
    "history": (("halcyon history digits -n team", "history.txt"),),
    "logs": (("halcyon logs digits -n team --tail 1", "logs.txt"),),
    "scale": (("halcyon scale digits 4 -n team --pause --reason 'load test until noon'", "scale.txt"),),
    "pause": (
        ("halcyon pause digits -n team --reason 'node gpu-7 is being repaired'", "pause.txt"),
        ("halcyon pause --all -n team", "pause-all.txt"),
    ),
    "resume": (("halcyon resume digits -n team", "resume.txt"),),
    "promote": (("halcyon promote digits -n team", "promote.txt"),),
    "abort": (("halcyon abort digits -n team", "abort.txt"),),
    "undo": (
        ("halcyon undo digits -n team", "undo.txt"),
        ("halcyon undo digits -n team --dry-run", "undo-dry-run.txt"),
    ),
    "restart": (("halcyon restart digits -n team", "restart.txt"),),
    "refresh": (("halcyon refresh digits -n team", "refresh.txt"),),
    "images": (("halcyon images -f rendered.yaml", "images.txt"),),
    "version": (("halcyon version", "version.txt"),),
    "explain": (("halcyon explain digits -n team", "rising.txt"),),
    "diagnose": (("halcyon diagnose digits -n team --no-bundle", "diagnosis.txt"),),
    "lint": (("halcyon lint -f model.yaml", "lint.txt"),),
    "plan": (
        ("halcyon plan -f digits.yaml", "plan-change.txt"),
        ("halcyon plan -f digits.yaml --observations observations.json", "plan-observations.txt"),
    ),
}
"""Examples with output, as (command line, golden file), by command."""
COMMON = ("namespace", "context", "kubeconfig", "timeout", "form", "no_color")
"""Names of the parameters that several commands share."""
COMMON_FORMS = ("table", "json", "yaml")
"""Output formats of every command with -o."""
_HEAD = """\
# Command line reference

<!-- Generated from cli/halcyon_cli by `scripts/generate docs`. A test keeps it up to date. -->

This page lists the commands, options, output and exit statuses of `halcyon`. `kubectl halcyon` takes the same commands. They are in the distribution
`halcyon-cli`, which takes at most 20 packages in all, none of them the operator's. Install it from the root of a clone:

```console
$ pip install ./cli
...
Successfully installed ... halcyon-cli-0.1.0 ...
```

| extra | for | installation |
| --- | --- | --- |
| `bench` | `halcyon bench`, `halcyon infer`: NVIDIA's client, aiohttp, numpy, pillow | `pip install './cli[bench]'` |
| `models` | `halcyon analyse`: onnx, onnxruntime | `pip install './cli[models]'` |
| `simulate` | `halcyon simulate`: the distribution `halcyon-simulator`, with numba and matplotlib | `pip install './cli[simulate]'` |

The operator's image has none of these commands. For krew there is a template, [manifests/krew/halcyon.yaml](../../manifests/krew/halcyon.yaml).

Commands act with your permissions and use the same kubeconfig as kubectl, credential plugins (`exec`), proxies and
impersonation included. The old `auth-provider` isn't supported, except that a stored `id-token` is sent as it is. Commands need the verbs get, list and watch on
`modeldeployments.serving.halcyon.dev`, and patch for changes. `get` and `diagnose` read more objects if they may, and name what they could not read.
"""


def page(golden: Path) -> str:
    """Return the page in Markdown, with output from the golden files in the folder `golden`."""
    exits = "".join(f"| {status} | {text} |\n" for status, text in EXIT_STATUSES)
    negative = "".join(f"| `{name}` | {text} |\n" for name, text in NEGATIVE_RESULTS.items())
    head = (
        f"{_HEAD}\n## Common options\n\n| option | meaning | commands |\n| --- | --- | --- |\n{''.join(_common_options())}\n"
        "Some commands have more output formats, which their own tables list. JSON and YAML have the same fields.\n\n"
        "## Exit status\n\nErrors are one line on stderr, with the problem, the reason and the next step.\n\n"
        f"| status | meaning |\n| --- | --- |\n{exits}\n"
        f"Status 1 has one meaning per command:\n\n| command | status 1 |\n| --- | --- |\n{negative}"
    )
    return re.sub(r"\n{3,}", "\n\n", head + "".join(_sections(golden)))


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield (name, command) for every command that click parses."""
    context = click.Context(group, info_name="halcyon")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and command.help is not None:
            yield name, command


def _common_options() -> Iterator[str]:
    """Yield a table row for each common option, with the commands that have it."""
    every = dict(commands())
    for parameter in COMMON:
        having = {name: p for name, command in every.items() for p in command.params if p.name == parameter}
        option = next(iter(having.values()))
        missing = [name for name in every if name not in having]
        names = "all" if not missing else "all except " + ", ".join(f"`{name}`" for name in missing)
        opts = ", ".join(f"`{opt}`" for opt in option.opts)
        text = _cell(getattr(option, "help", None) or "")
        if parameter == "form":
            text = text.replace("format.", f"format: {', '.join(COMMON_FORMS)}.")
        yield f"| {opts} | {text} | {names} |\n"


def _sections(golden: Path) -> Iterator[str]:
    context = click.Context(group, info_name="halcyon")
    for title, entries in COMMANDS.items():
        yield f"\n## {title}\n"
        for name in entries:
            command = group.get_command(context, name)
            if command is not None:
                yield from _command(name, command, context, golden)


def _command(name: str, command: click.Command, parent: click.Context, golden: Path) -> Iterator[str]:
    yield f"\n### {name}\n\n"
    if command.help is None:
        yield f"{command.short_help}. For its options, run `halcyon {name} --help`; see [the simulator](../simulator.md).\n"
        return
    context = click.Context(command, info_name=name, parent=parent)
    yield f"`{command.get_usage(context).removeprefix('Usage: ')}`\n\n{_flowing(command.help)}\n\n"
    rows = [row for param in command.params if (row := _option(param, context)) is not None]
    if rows:
        yield "| option | meaning |\n| --- | --- |\n" + "".join(rows) + "\n"
    for line, file in OUTPUTS.get(name, ()):
        yield f"```console\n$ {line}\n{(golden / file).read_text().rstrip()}\n```\n\n"
    for block in (command.epilog or "").strip().split("\n\n"):
        if block.startswith("\b\n"):
            yield f"```\n{block.removeprefix(chr(8)).strip()}\n```\n\n"
        elif block:
            yield _flowing(block) + "\n\n"


def _option(param: click.Parameter, context: click.Context) -> str | None:
    """Return the table row of an option; None for a common option, unless its choices differ from the common ones."""
    if not isinstance(param, click.Option):
        return None
    is_common = not isinstance(param.type, click.Choice) or tuple(param.type.choices) == COMMON_FORMS
    if param.name in COMMON and is_common:
        return None
    record = param.get_help_record(context)
    if record is None:
        return None
    names, text = (_cell(part) for part in record)
    return f"| `{names}` | {text} |\n"


def _cell(text: str) -> str:
    return _flowing(text).replace("|", "\\|")


def _flowing(text: str) -> str:
    """Join the lines of each paragraph into one line."""
    return "\n\n".join(re.sub(r"\s+", " ", block).strip() for block in inspect.cleandoc(text).split("\n\n"))


if __name__ == "__main__":
    sys.stdout.write(page(GOLDEN).rstrip() + "\n")
