"""`halcyon history`, `undo` and `restart`: commands for a model's revisions, like `kubectl rollout` for Deployments.

Out of scope: the contents of a revision, and the patch of a rollback (`halcyon_cli.rollout.revisions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from halcyon.control.rollout.refresh import RESTART
from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.arguments.options import Output, cluster_options, emit, name_argument, output_options
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster, Target
from halcyon_cli.kube.object_writer import ObjectWriter
from halcyon_cli.output.model_rows import UNKNOWN
from halcyon_cli.output.report_text import ago
from halcyon_cli.rollout.revisions import PastRevision, past_revisions, previous, restoring_patch

Json = Mapping[str, Any]
_MAX_TRIES = 10
"""Number of times that a model is read and changed if other writers, such as the operator, change it in between."""
_HISTORY_EPILOG = """\
\b
examples:
  halcyon history resnet50
  halcyon history resnet50 --revision 3

The operator keeps the last 10 revisions of a model. A revision changes with the parts of
the spec that its pods depend on: model, runtime, batching and some fields of traffic.

exit status: 0, or 2 if there is nothing to show: no such name, no access, no cluster.
"""
_UNDO_EPILOG = """\
\b
examples:
  halcyon undo resnet50
  halcyon undo resnet50 --to-revision 3 --dry-run

The command writes spec.model, spec.runtime and spec.batching of the earlier revision, which
then rolls out like any other change. If the present spec was rejected, the earlier revision
is the one that is served. If a GitOps tool manages the object, change its file
instead. To stop a canary, use halcyon abort.

exit status: 0, or 2 if nothing was changed: no such name or revision, no access, no cluster.
"""
_RESTART_EPILOG = """\
\b
example:
  halcyon restart resnet50

All model pods are replaced according to spec.rollout, so that requests are served
throughout, and with the current pod template of the operator. With kubectl: kubectl annotate
--overwrite mdep resnet50 serving.halcyon.dev/restart=REVISION, where REVISION is
status.revision.target.

exit status: 0, or 2 if nothing was changed: no such name, no pods yet, no access, no cluster.
"""


@click.command("history", epilog=_HISTORY_EPILOG)
@name_argument()
@click.option("--revision", "number", type=int, metavar="N", help="Show the spec of this revision.")
@cluster_options
@output_options("table", "json", "yaml")
def history(name: str, number: int | None, target: Target, output: Output) -> int:
    """List the revisions of a model, the newest first, with the results of their rollouts."""
    revisions = _revisions(Cluster(target), name)[1]
    if number is not None:
        revisions = [_numbered(revisions, name, number)]
    if output.is_data:
        output.data([past.to_dict() for past in revisions])
    elif number is not None:
        Output("yaml").data({"revision": revisions[0].name} | {"spec": revisions[0].spec or {}})
    else:
        from halcyon_cli.output import tables  # noqa: PLC0415  # rich takes 0.25 s to import: not for usage errors

        now = datetime.now(UTC)
        cells = [
            [
                str(revision.number),
                revision.name,
                revision.state,
                ago(revision.finished, now) if revision.finished else UNKNOWN,
                revision.cause,
            ]
            for revision in revisions
        ]
        head = ["REVISION", "NAME", "STATE", "AGE", "CAUSE"]
        emit(tables.lines(tables.table_page(head, cells), width=output.width, color=output.color))
    return 0


@click.command("undo", epilog=_UNDO_EPILOG)
@name_argument()
@click.option("--to-revision", "number", type=int, metavar="N", help="Revision as numbered by halcyon history. Default: the last one served before the present spec.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the change; change nothing.")
@cluster_options
@output_options("table", "name", "json", "yaml")
def undo(name: str, number: int | None, dry_run: bool, target: Target, output: Output) -> int:
    """Write the spec of an earlier revision of a model."""
    cluster = ObjectWriter(target)
    for _ in range(_MAX_TRIES):
        model, past, patch = _roll_back(cluster, name, number)
        if dry_run:
            Output("json" if output.form == "json" else "yaml").data({"spec": patch})
            return 0
        version = str(fields.mapping(model.get("metadata")).get("resourceVersion") or "")
        # Another writer may have changed the spec since it was read, so that the patch would mix both changes.
        changed = cluster.change_version(kinds.MODEL_DEPLOYMENT, name, {"spec": patch}, version)
        if changed is not None:
            output.changed(changed, f"rolled back to revision {past.number}", f"halcyon status {name} -w")
            return 0
    raise ClusterError(f"{name} was changed by others at the same time, {_MAX_TRIES} times in a row; try again")


def _roll_back(cluster: Cluster, name: str, number: int | None) -> tuple[Json, PastRevision, dict[str, Any]]:
    """Return the model, the revision to restore, and the merge patch of the spec that restores it.

    Raises:
        InputError: there is no such revision, or nothing to restore.
    """
    model, revisions = _revisions(cluster, name)
    spec = fields.mapping(model.get("spec"))
    past = previous(name, spec, revisions) if number is None else _numbered(revisions, name, number)
    if past is None:
        raise InputError(f"{name} has no earlier revision that was served; halcyon history {name} lists its revisions")
    if past.spec is None:
        raise InputError(
            f"revision {past.number} of {name} was recorded by an older version, without its spec; apply the earlier file"
        )
    patch = restoring_patch(name, spec, past.spec)
    if not patch:
        raise InputError(
            f"the spec of {name} is that of revision {past.number} already; choose another one with --to-revision"
        )
    return model, past, patch


@click.command("restart", epilog=_RESTART_EPILOG)
@name_argument()
@cluster_options
@output_options("table", "name", "json", "yaml")
def restart(name: str, target: Target, output: Output) -> int:
    """Replace all pods of a model without changing its spec."""
    cluster = Cluster(target)
    revision = fields.mapping(fields.mapping(cluster.model(name).get("status")).get("revision")).get("target")
    if not revision:
        raise InputError(f"{name} has no revision yet, so it has no pods to restart; halcyon get {name} shows why")
    output.changed(cluster.annotate(name, {RESTART: str(revision)}), "restarted", f"halcyon status {name} -w")
    return 0


def _revisions(cluster: Cluster, name: str) -> tuple[Json, list[PastRevision]]:
    model = cluster.model(name)
    stored = cluster.items(kinds.CONTROLLER_REVISION, selector=f"{names.OWNER_LABEL}={name}") or []
    return model, past_revisions(model, stored)


def _numbered(revisions: list[PastRevision], name: str, number: int) -> PastRevision:
    for past in revisions:
        if past.number == number:
            return past
    numbers = ", ".join(str(past.number) for past in revisions)
    raise InputError(f"{name} has no revision {number}; " + (f"it has {numbers}" if numbers else "it has none yet"))
