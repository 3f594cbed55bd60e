"""Output of `halcyon plan -f FILE`: a model's objects and the changes that an apply would make in the cluster.

Out of scope: the differences (`child_diff`), the scope (`cluster_scope`), and the replay of observations
(`commands.plan`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from halcyon.control.desired import plan as reconciled
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.kube.apply_diff import with_digest
from halcyon.kube.kinds import Kind
from halcyon_cli.arguments.options import Output, emit, warn
from halcyon_cli.errors import ClusterError, NoAccessError
from halcyon_cli.kube.client import Cluster
from halcyon_cli.output.report_text import printable
from halcyon_cli.plan.child_diff import ChildDiff, DryRun, diff_children, restarts
from halcyon_cli.plan.cluster_scope import UNKNOWN_UID, PlannedScope, live_scope, offline_scope

_MARKS = {"create": ("+", "32"), "change": ("~", "33"), "same": ("=", "2"), "delete": ("-", "31")}
_COUNTS = (("create", "to create"), ("change", "to change"), ("delete", "to delete"), ("same", "unchanged"))


def show(
    document: Mapping[str, Any], documents: Sequence[Mapping[str, Any]], cluster: Cluster | None, output: Output
) -> int:
    """Print the preview. Return 1 as the exit status if the operator would reject the spec, otherwise 0."""
    planned_scope = offline_scope(document, documents) if cluster is None else live_scope(cluster, document)
    planned = reconciled.make(planned_scope.scope)
    rejections: list[str] = []
    dry_run = _no_dry_run if cluster is None else _cluster_dry_run(cluster, rejections)
    diffs = diff_children(planned_scope.scope, planned, dry_run)
    planned_scope = replace(planned_scope, notes=(*planned_scope.notes, *rejections))
    acceptance = planned.acceptance
    if output.is_objects:
        output.objects([_applicable(diff.desired) for diff in diffs if diff.desired is not None])
        if not acceptance.accepted:
            warn("plan", f"rejected ({acceptance.reason}): {acceptance.message}")
    elif output.is_data:
        output.data(_data(planned_scope, planned, diffs))
    else:
        emit("\n".join(_page(planned_scope, planned, diffs, output)))
    return 0 if acceptance.accepted else 1


def _applicable(desired: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object in a form that kubectl can apply.

    An owner that doesn't exist yet is left out, because it has no uid.
    """
    meta = dict(desired["metadata"])
    owners = [owner for owner in meta.pop("ownerReferences", ()) if owner.get("uid") not in {"", UNKNOWN_UID}]
    return {**desired, "metadata": meta | ({"ownerReferences": owners} if owners else {})}


def _no_dry_run(_kind: Kind, _desired: Mapping[str, Any]) -> None:
    return None


def _cluster_dry_run(cluster: Cluster, rejections: list[str]) -> DryRun:
    """Return a function that applies an object as a dry run. If this fails, the diff is computed locally.

    If the API server would reject the object, for example by an admission policy, the reason is added to `rejections`.
    """

    def dry_run(kind: Kind, desired: dict[str, Any]) -> Mapping[str, Any] | None:
        name = str(desired["metadata"]["name"])
        try:
            return cluster.dry_run("PATCH", kind, name, with_digest(desired))
        except NoAccessError:
            return None  # the user needs no permission that the operator has
        except ClusterError as error:
            rejections.append(f"{kind.kind} {name}: {error}")
            return None

    return dry_run


def _data(planned_scope: PlannedScope, planned: ReconcilePlan, diffs: Sequence[ChildDiff]) -> dict[str, Any]:
    acceptance = planned.acceptance
    document = {"accepted": acceptance.accepted, "reason": acceptance.reason.value, "message": acceptance.message}
    servers = restarts(planned_scope.scope, planned)
    return document | {
        "servers": servers,
        "notes": list(planned_scope.notes),
        "children": [diff.to_dict() for diff in diffs],
    }


def _page(planned_scope: PlannedScope, planned: ReconcilePlan, diffs: Sequence[ChildDiff], output: Output) -> list[str]:
    key, acceptance = planned_scope.scope.key, planned.acceptance
    page = [f"{_styled(str(key), '1', output)}: {restarts(planned_scope.scope, planned)}"]
    if not acceptance.accepted:
        page.append(f"{_styled('!', '31', output)} rejected ({acceptance.reason}): {printable(acceptance.message)}")
    if planned.actuator_why and planned.spec is not None and planned.spec.scaling is not None:
        page.append(f"  replicas written by {planned.actuator.value}: {printable(planned.actuator_why)}")
    page += [f"{_styled('!', '33', output)} {printable(note)}" for note in planned_scope.notes]
    if diffs:
        page.append("")
    widest = max((len(diff.kind) for diff in diffs), default=0)
    for diff in diffs:
        mark, color = _MARKS[diff.change]
        page.append(f"{_styled(f'{mark} {diff.kind:<{widest}}  {diff.name}', color, output)}")
        page += [f"    {_line(line, output)}" for line in diff.diff]
    counts = [f"{sum(c.change == change for c in diffs)} {label}" for change, label in _COUNTS]
    return [*page, "", ", ".join(counts)]


def _line(line: str, output: Output) -> str:
    color = {"+": "32", "-": "31"}.get(line[:1], "2")
    return _styled(printable(line), color, output) if line[:1] in "+-." else printable(line)


def _styled(part: str, code: str, output: Output) -> str:
    return f"\x1b[{code}m{part}\x1b[0m" if output.color else part
