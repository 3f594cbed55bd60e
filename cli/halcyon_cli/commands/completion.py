"""Completion for bash, zsh, fish and kubectl: commands, options, and names of models, which the cluster is asked for."""

from __future__ import annotations

import sys

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from halcyon_cli.arguments.options import emit

VARIABLE = "_HALCYON_COMPLETE"
_DEFAULT, _NO_FILES = 0, 4
"""How kubectl is told whether names of files complete too."""
_EPILOG = """\
\b
examples:
  halcyon completion bash > ~/.local/share/bash-completion/completions/halcyon
  halcyon completion zsh > "${fpath[1]}/_halcyon"
  halcyon completion fish > ~/.config/fish/completions/halcyon.fish

kubectl completes kubectl halcyon by itself, where kubectl_complete-halcyon, which comes with it, is on the PATH.
"""


@click.command("completion", epilog=_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def main(shell: str) -> int:
    """Print what makes a shell complete commands, options, and names of models."""
    emit(_completion(get_completion_class(shell) or ShellComplete).source())
    return 0


def kubectl(argv: list[str] | None = None) -> int:
    """What kubectl runs for `kubectl halcyon ...`: a line per completion, then a number that says what else completes."""
    *before, incomplete = (sys.argv[1:] if argv is None else argv) or [""]
    found: list[CompletionItem] = _completion(ShellComplete).get_completions(before, incomplete)
    plain = [item for item in found if item.type == "plain"]
    told = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in plain]
    emit("\n".join([*told, f":{_NO_FILES if len(plain) == len(found) else _DEFAULT}"]))
    return 0


def _completion(kind: type[ShellComplete]) -> ShellComplete:
    from halcyon_cli.commands.app import group  # noqa: PLC0415  # it imports this module when the command is run

    return kind(group, {}, "halcyon", VARIABLE)
