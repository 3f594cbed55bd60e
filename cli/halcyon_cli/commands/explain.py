"""`halcyon explain NAME`: why a ModelDeployment has as many replicas as it has, from what the operator has written of it.

One object is read, and where its pods find no node what the nodes have and who holds it; nothing is changed. Not here: what is
told of it (`reporting`), and how that looks (`text`).
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import click

from halcyon_cli.arguments.options import Output, clustered, emit, formatted, named
from halcyon_cli.errors import ClusterError
from halcyon_cli.explain.build import lacks, report
from halcyon_cli.kube import free_capacity
from halcyon_cli.kube.client import Cluster, Place
from halcyon_cli.output.report_text import WIDEST, text

_EPILOG = """\
\b
examples:
  halcyon explain resnet50
  halcyon explain resnet50 -n team -o json

What is told here is in the status too: kubectl get mdep resnet50 -o yaml. Where pods find no node for want of GPUs, it is counted besides how
many are free and who holds the others, as far as you may list nodes and the pods of all namespaces. What it means: docs/concepts/scaling.md.

exit status: 0, or 2 where there is nothing to explain: no such name, no access, no cluster.
"""


@click.command("explain", epilog=_EPILOG)
@named()
@clustered
@formatted("table", "json", "yaml")
def main(name: str, place: Place, output: Output) -> int:
    """Why a ModelDeployment has as many replicas as it has: what was decided, by what, and what became of it."""
    cluster = Cluster(place)
    resource = cluster.model(name)
    found: tuple[free_capacity.FreeCapacity, ...] = ()
    # Nodes and pods of others are for few to see, and the scheduler has said already that there is too little.
    with suppress(ClusterError):
        found = free_capacity.look(cluster, lacks(resource))
    now = datetime.now(UTC)
    told = report(resource, now, found)
    if output.is_data:
        output.data(told.to_dict())
    else:
        emit(text(told, now, width=min(output.width, WIDEST), color=output.color))
    return 0
