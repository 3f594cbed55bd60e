"""`halcyon promote NAME [--step]` and `halcyon abort NAME`: manual control of the current canary.

Each command sets an annotation with the name of the revision, and the step if given, so it affects no other revision.
Out of scope: the effect of the annotation (`control.rollout`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from halcyon.api.types import GROUP
from halcyon_cli.arguments.options import Output, cluster_options, name_argument, output_options
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster, Target

_ACTIONS = ("promote", "promote-step", "abort")
_EFFECTS = {
    "promote": "it receives all requests once one of its pods is ready",
    "promote-step": "it goes to the next step once the pods of this one are ready",
    "abort": "the previous revision serves all requests again",
}
_EPILOG = """\
\b
example:
  halcyon {word} resnet50 -n team

With kubectl: kubectl annotate --overwrite mdep resnet50 {group}/{word}=REVISION, where REVISION is status.revision.target. For the
steps of a canary, see docs/concepts/rollouts.md.

{more}exit status: 0, or 2 if there is nothing to {word}: no such name, no canary, no access, no cluster.
"""
_SUPERSEDED_HELP = """\
A canary that a newer spec has superseded is removed pod by pod; abort removes it at once.

"""
_STEP_HELP = """\
With --step: kubectl annotate --overwrite mdep resnet50 {group}/promote-step=REVISION/STEP, where STEP is
status.rollout.canary.step. A canary that the analysis finds worse is rolled back all the same.

"""
_ACTIVE_PHASES = frozenset({"Progressing", "Blocked"})


@click.command("promote", epilog=_EPILOG.format(word="promote", group=GROUP, more=_STEP_HELP.format(group=GROUP)))
@name_argument()
@click.option("--step", is_flag=True, help="End only the current step: go to the next, or promote after the last.")
@cluster_options
@output_options("table", "name", "json", "yaml")
def promote(name: str, step: bool, target: Target, output: Output) -> int:
    """Send all requests to the current canary once one of its pods is ready, regardless of steps and analysis.

    With --step, end only the step that it is in.
    """
    return _annotate("promote-step" if step else "promote", name, target, output)


@click.command("abort", epilog=_EPILOG.format(word="abort", group=GROUP, more=_SUPERSEDED_HELP))
@name_argument()
@cluster_options
@output_options("table", "name", "json", "yaml")
def abort(name: str, target: Target, output: Output) -> int:
    """Take all requests from the current canary, and roll back to the previous revision."""
    return _annotate("abort", name, target, output)


def _annotate(action: str, name: str, target: Target, output: Output) -> int:
    cluster = Cluster(target)
    model = cluster.model(name)
    superseded = superseded_canary(model) if action == "abort" else None
    revision, step = (superseded, "superseded by a newer spec") if superseded else _canary(model, name)
    value = f"{revision}/{_step(model, name)}" if action == "promote-step" else revision
    # Remove the other annotations: the last command wins.
    others = {f"{GROUP}/{other}": None for other in _ACTIONS if other != action}
    if fields.mapping(fields.mapping(model.get("metadata")).get("annotations")).get(f"{GROUP}/{action}") == value:
        # It is left over from an earlier rollout of the revision. Only a change shows the operator that it is new.
        cluster.annotate(name, {f"{GROUP}/{action}": None})
    annotated = cluster.annotate(name, {f"{GROUP}/{action}": value, **others})
    effect = "its remaining pods are removed at once" if superseded else _EFFECTS[action]
    done = {"promote": "promoted", "promote-step": "promoted by a step", "abort": "aborted"}[action]
    output.changed(annotated, f"{done} (revision {revision}, {step}): {effect}", f"halcyon status {name} -w")
    return 0


def superseded_canary(resource: Mapping[str, Any]) -> str | None:
    """Return the canary revision that a newer spec has replaced during its rollout; None if there is none.

    The annotation has no effect on a replaced revision that wasn't a canary.
    """
    rollout = (resource.get("status") or {}).get("rollout") or {}
    history: Sequence[Mapping[str, Any]] = rollout.get("history") or ()
    last_rollout = history[0] if history else {}
    if (
        rollout.get("canary")
        or rollout.get("phase") not in _ACTIVE_PHASES
        or last_rollout.get("result") != "Superseded"
    ):
        return None
    return str(last_rollout.get("revision") or "") or None


def _canary(resource: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Return the revision of the current canary, and its progress as text.

    Raises:
        ClusterError: the model has no canary in progress.
    """
    status = resource.get("status") or {}
    rollout, revision = status.get("rollout") or {}, (status.get("revision") or {}).get("target")
    canary = rollout.get("canary")
    if not canary or not revision:
        strategy = (((resource.get("spec") or {}).get("rollout")) or {}).get("strategy", "Auto")
        hint = "" if strategy == "Canary" else f"; spec.rollout.strategy is {strategy}, not Canary"
        raise ClusterError(f"{name} has no canary in progress: its rollout is {rollout.get('phase', 'unknown')}{hint}")
    return str(revision), f"at step {canary.get('step', '?')} with {canary.get('weight', '?')} % of the requests"


def _step(resource: Mapping[str, Any], name: str) -> int:
    """Return the number of the current canary's step.

    Raises:
        ClusterError: the status has no step, so an annotation for it would have no effect.
    """
    rollout = fields.mapping(fields.mapping(resource.get("status")).get("rollout"))
    step = fields.count(fields.mapping(rollout.get("canary")).get("step"))
    if step is None:
        raise ClusterError(
            f"status.rollout.canary of {name} has no step yet; repeat the command, or promote the canary without --step"
        )
    return step
