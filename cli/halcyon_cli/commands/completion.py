"""Shell completion for bash, zsh, fish and kubectl: commands, options, and model names read from the cluster."""

from __future__ import annotations

import sys

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from halcyon_cli.arguments.options import emit

VARIABLE = "_HALCYON_COMPLETE"
_DEFAULT, _NO_FILES = 0, 4
"""Completion directives of kubectl's plugin protocol. With 0, the shell also completes file names. With 4, it
doesn't."""
_EPILOG = """\
\b
examples:
  halcyon completion bash > ~/.local/share/bash-completion/completions/halcyon
  halcyon completion zsh > "${fpath[1]}/_halcyon"
  halcyon completion fish > ~/.config/fish/completions/halcyon.fish

kubectl completes kubectl halcyon if kubectl_complete-halcyon, which is installed with it, is on the PATH.
"""


@click.command("completion", epilog=_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def main(shell: str) -> int:
    """Print a script that completes commands, options and model names in a shell."""
    emit(_completion(get_completion_class(shell) or ShellComplete).source())
    return 0


def kubectl(argv: list[str] | None = None) -> int:
    """Print completions for kubectl, one per line, and a directive. kubectl calls this for `kubectl halcyon ...`."""
    *before, incomplete = (sys.argv[1:] if argv is None else argv) or [""]
    items: list[CompletionItem] = _completion(ShellComplete).get_completions(before, incomplete)
    plain = [item for item in items if item.type == "plain"]
    lines = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in plain]
    emit("\n".join([*lines, f":{_NO_FILES if len(plain) == len(items) else _DEFAULT}"]))
    return 0


def _completion(shell_class: type[ShellComplete]) -> ShellComplete:
    from halcyon_cli.commands.app import group  # noqa: PLC0415  # a circular import otherwise

    return shell_class(group, {}, "halcyon", VARIABLE)
