"""`halcyon plan -f FILE`: the children that a ModelDeployment would have, and what would change in a cluster, printed.

Not here: what they are (`children`), where they come from (`prospect`), and what the planner would decide (`plan`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from halcyon.control.desired import plan as reconciled
from halcyon.control.desired.plan import ReconcilePlan
from halcyon.kube.apply_diff import with_digest
from halcyon.kube.kinds import Kind
from halcyon_cli.arguments.options import Output, emit
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube.client import Cluster
from halcyon_cli.output.report_text import printable
from halcyon_cli.plan.child_diff import Child, Tried, children, restarts
from halcyon_cli.plan.cluster_scope import PlannedScope, offline, online

_MARKS = {"create": ("+", "32"), "change": ("~", "33"), "same": ("=", "2"), "delete": ("-", "31")}
_TOLD = (("create", "to create"), ("change", "to change"), ("delete", "to delete"), ("same", "as they are"))


def show(
    document: Mapping[str, Any], beside: Sequence[Mapping[str, Any]], cluster: Cluster | None, output: Output
) -> int:
    """Print it; gives the exit status: 1 where the spec would not be accepted."""
    prospect = offline(document, beside) if cluster is None else online(cluster, document)
    planned = reconciled.make(prospect.view)
    found = children(prospect.view, planned, _never if cluster is None else _asking(cluster))
    if output.is_data:
        output.data(_data(prospect, planned, found))
    else:
        emit("\n".join(_page(prospect, planned, found, output)))
    return 0 if planned.acceptance.accepted else 1


def _never(_kind: Kind, _wanted: Mapping[str, Any]) -> None:
    return None


def _asking(cluster: Cluster) -> Tried:
    def tried(kind: Kind, wanted: dict[str, Any]) -> Mapping[str, Any] | None:
        try:
            return cluster.dry_run("PATCH", kind, str(wanted["metadata"]["name"]), with_digest(wanted))
        except ClusterError:
            return None  # what the operator may write isn't for a person to know; it is compared here

    return tried


def _data(prospect: PlannedScope, planned: ReconcilePlan, found: Sequence[Child]) -> dict[str, Any]:
    acceptance = planned.acceptance
    told = {"accepted": acceptance.accepted, "reason": acceptance.reason.value, "message": acceptance.message}
    servers = restarts(prospect.view, planned)
    return told | {"servers": servers, "notes": list(prospect.notes), "children": [child.to_dict() for child in found]}


def _page(prospect: PlannedScope, planned: ReconcilePlan, found: Sequence[Child], output: Output) -> list[str]:
    key, acceptance = prospect.view.key, planned.acceptance
    page = [f"{_painted(str(key), '1', output)}: {restarts(prospect.view, planned)}"]
    if not acceptance.accepted:
        page.append(
            f"{_painted('!', '31', output)} not accepted ({acceptance.reason}): {printable(acceptance.message)}"
        )
    if planned.actuator_why and planned.spec is not None and planned.spec.scaling is not None:
        page.append(f"  written by {planned.actuator.value}: {printable(planned.actuator_why)}")
    page += [f"{_painted('!', '33', output)} {printable(note)}" for note in prospect.notes]
    if found:
        page.append("")
    widest = max((len(child.kind) for child in found), default=0)
    for child in found:
        mark, color = _MARKS[child.change]
        page.append(f"{_painted(f'{mark} {child.kind:<{widest}}  {child.name}', color, output)}")
        page += [f"    {_line(line, output)}" for line in child.diff]
    counts = [f"{sum(c.change == change for c in found)} {said}" for change, said in _TOLD]
    return [*page, "", ", ".join(counts)]


def _line(line: str, output: Output) -> str:
    color = {"+": "32", "-": "31"}.get(line[:1], "2")
    return _painted(printable(line), color, output) if line[:1] in "+-." else printable(line)


def _painted(part: str, code: str, output: Output) -> str:
    return f"\x1b[{code}m{part}\x1b[0m" if output.color else part
