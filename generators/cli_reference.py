"""The reference page of the commands, docs/reference/cli.md, made of what they say of themselves: `python -m generators.cli_reference`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator

import click

from halcyon_cli.commands.app import COMMANDS, EXITS, group

_HEAD = """\
# The command line

<!-- Generated from cli/halcyon_cli by `make docs`. Do not edit. -->

`halcyon` and `kubectl halcyon` take the same commands. They are in the distribution `halcyon-cli`, and use `halcyon-operator`, which has the program
`halcyon`. pip makes both of a clone. In its root:

```console
$ pip install . ./cli
```

`halcyon simulate` needs the distribution `halcyon-simulator` as well: `pip install . ./cli ./simulator`. The operator's image has none of these commands. For
krew there is a template, [manifests/krew/halcyon.yaml](../../manifests/krew/halcyon.yaml).

Commands read and change objects as you, with the kubeconfig that kubectl uses. They need the verbs get, list and watch on
`modeldeployments.serving.halcyon.dev`, and patch where they change one; `get` and `diagnose` show what else they may read and say what they may not.

## What all have in common

| option | |
| --- | --- |
| `-n`, `--namespace` | namespace; that of the kubeconfig's context where it is left out |
| `--context` | context of the kubeconfig; the current one where it is left out |
| `--kubeconfig` | instead of `$KUBECONFIG` and `~/.kube/config`; in a pod without either, its service account counts |
| `--timeout` | longest time for each request to the cluster, `10s` where it is left out |
| `-o`, `--output` | `table`, `wide` (more columns), `json` or `yaml`; the data have the same names in both |
| `--no-color` | plain text on a terminal too; so does the variable `NO_COLOR`. What isn't a terminal gets plain text, and lines as long as they need be |

Errors are one line on stderr: what can't be done, why, and what to do.

| exit status | |
| --- | --- |
"""


def page() -> str:
    """The page, in Markdown."""
    exits = "".join(f"| {status} | {text} |\n" for status, text in EXITS)
    return re.sub(r"\n{3,}", "\n\n", _HEAD + exits + "".join(_sections()))


def _sections() -> Iterator[str]:
    context = click.Context(group, info_name="halcyon")
    for title, entries in COMMANDS.items():
        yield f"\n## Commands: {title}\n"
        for name in entries:
            command = group.get_command(context, name)
            if command is not None:
                yield from _command(name, command, context)


def _command(name: str, command: click.Command, parent: click.Context) -> Iterator[str]:
    yield f"\n### {name}\n\n"
    if command.help is None:
        yield f"{command.short_help}. `halcyon {name} --help` tells its options; see [the simulator](../simulator.md).\n"
        return
    context = click.Context(command, info_name=name, parent=parent)
    yield f"`{command.get_usage(context).removeprefix('Usage: ')}`\n\n{_flowing(command.help)}\n\n"
    rows = [row for param in command.params if (row := _option(param, context)) is not None]
    if rows:
        yield "| option | |\n| --- | --- |\n" + "".join(rows) + "\n"
    for block in (command.epilog or "").strip().split("\n\n"):
        if block.startswith("\b\n"):
            yield f"```\n{block.removeprefix(chr(8)).strip()}\n```\n\n"
        elif block:
            yield _flowing(block) + "\n\n"


_COMMON = {"namespace", "context", "kubeconfig", "timeout", "form", "no_color"}


def _option(param: click.Parameter, context: click.Context) -> str | None:
    if not isinstance(param, click.Option) or param.name in _COMMON:
        return None
    record = param.get_help_record(context)
    if record is None:
        return None
    names, text = (part.replace("|", "\\|") for part in record)
    return f"| `{names}` | {_flowing(text)} |\n"


def _flowing(text: str) -> str:
    """Paragraphs on a line each."""
    return "\n\n".join(re.sub(r"\s+", " ", block).strip() for block in inspect.cleandoc(text).split("\n\n"))


if __name__ == "__main__":
    sys.stdout.write(page().rstrip() + "\n")
