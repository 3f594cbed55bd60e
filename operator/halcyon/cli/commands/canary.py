"""`halcyon promote NAME`, `halcyon abort NAME`: a person's word on the canary under way.

It is an annotation that names the revision, so it counts for that one and no other. Not here: what becomes of it
(`control.canary`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from halcyon.api.types import GROUP
from halcyon.cli.arguments.options import cluster_options, emit, name_argument
from halcyon.cli.errors import ClusterError
from halcyon.cli.kube.client import Cluster, Target

_ACTIONS = ("promote", "abort")
_EFFECTS = {
    "promote": "it gets all requests once a pod of it is ready",
    "abort": "the revision before it serves all requests again",
}
_EPILOG = """\
\b
example:
  halcyon {word} resnet50 -n team

The same by hand: kubectl annotate mdep resnet50 {group}/{word}=REVISION, with the REVISION of status.revision.target. How
canaries go: docs/concepts/rollouts.md.

{more}exit status: 0, or 2 where there is nothing to {word}: no such name, no canary, no access, no cluster.
"""
_SUPERSEDED_HELP = """\
A canary that the spec has left (another one was applied) goes pod by pod; abort ends it at once.

"""
_UNDER_WAY = frozenset({"Progressing", "Blocked"})


@click.command("promote", epilog=_EPILOG.format(word="promote", group=GROUP, more=""))
@name_argument()
@cluster_options
def promote(name: str, target: Target) -> int:
    """Give the canary under way all requests, once a pod of it is ready, whatever steps and analysis say."""
    return _annotate("promote", name, target)


@click.command("abort", epilog=_EPILOG.format(word="abort", group=GROUP, more=_SUPERSEDED_HELP))
@name_argument()
@cluster_options
def abort(name: str, target: Target) -> int:
    """Take all requests from the canary under way, and go back to the revision that served before."""
    return _annotate("abort", name, target)


def _annotate(action: str, name: str, target: Target) -> int:
    cluster = Cluster(target)
    model = cluster.model(name)
    superseded = superseded_canary(model) if action == "abort" else None
    revision, step = (superseded, "gone from the spec already") if superseded else _canary(model, name)
    other_action = next(candidate for candidate in _ACTIONS if candidate != action)
    # The word before is taken back: the last one counts.
    cluster.annotate(name, {f"{GROUP}/{action}": revision, f"{GROUP}/{other_action}": None})
    effect = "what is left of it goes at once" if superseded else _EFFECTS[action]
    emit(f"revision {revision} of {name}, {step}: {effect}. kubectl get mdep {name} -w shows it")
    return 0


def superseded_canary(resource: Mapping[str, Any]) -> str | None:
    """The revision that was on its way when the spec left it, while a rollout takes its place; None: there is none.

    Where it was no canary the word has no effect.
    """
    rollout = (resource.get("status") or {}).get("rollout") or {}
    history: Sequence[Mapping[str, Any]] = rollout.get("history") or ()
    last = history[0] if history else {}
    if rollout.get("canary") or rollout.get("phase") not in _UNDER_WAY or last.get("result") != "Superseded":
        return None
    return str(last.get("revision") or "") or None


def _canary(resource: Mapping[str, Any], name: str) -> tuple[str, str]:
    """(revision, where it is) of the canary under way.

    Raises:
        ClusterError: there is none.
    """
    status = resource.get("status") or {}
    rollout, revision = status.get("rollout") or {}, (status.get("revision") or {}).get("target")
    canary = rollout.get("canary")
    if not canary or not revision:
        strategy = (((resource.get("spec") or {}).get("rollout")) or {}).get("strategy", "Auto")
        hint = "" if strategy == "Canary" else f"; spec.rollout.strategy is {strategy}, and Canary makes one"
        raise ClusterError(
            f"no canary of {name} is under way: its rollout is {rollout.get('phase', 'not known')}{hint}"
        )
    return str(revision), f"at step {canary.get('step', '?')} with {canary.get('weight', '?')} % of the requests"
