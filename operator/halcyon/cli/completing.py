"""Completion for bash, zsh, fish and kubectl: commands, options, and names of models, which the cluster is asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from halcyon.cli.cluster import Cluster, Place
from halcyon.cli.errors import Failure
from halcyon.cli.options import emit

VARIABLE = "_HALCYON_COMPLETE"
PATIENCE_S = 2.0
"""Who has pressed Tab waits no longer for a cluster."""
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


def names(params: Mapping[str, Any], incomplete: str) -> list[str]:
    """Names of models that begin so, by the options that stand before; none where no cluster says."""
    place = Place("get", params.get("kubeconfig"), params.get("context"), params.get("namespace"), PATIENCE_S)
    try:
        found = [str(model["metadata"]["name"]) for model in Cluster(place).models()]
    except Failure:
        return []
    return sorted(name for name in found if name.startswith(incomplete))


def _completion(kind: type[ShellComplete]) -> ShellComplete:
    from halcyon.cli.app import group  # noqa: PLC0415  # it imports this module where a name is completed

    return kind(group, {}, "halcyon", VARIABLE)
