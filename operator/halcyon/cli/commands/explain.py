"""`halcyon explain NAME`: why a ModelDeployment has as many replicas as it has, from what the operator has written of it.

One object is read, and where its pods find no node what the nodes have and who holds it; nothing is changed. Not here: what is
told of it (`reporting`), and how that looks (`text`).
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import click

from halcyon.cli.arguments.options import Output, cluster_options, emit, name_argument, output_options
from halcyon.cli.errors import ClusterError
from halcyon.cli.explain.build import insufficient_for, report
from halcyon.cli.kube import free_capacity
from halcyon.cli.kube.client import Cluster, Target
from halcyon.cli.output.report_text import MAX_WIDTH, render

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
@name_argument()
@cluster_options
@output_options("table", "json", "yaml")
def main(name: str, target: Target, output: Output) -> int:
    """Why a ModelDeployment has as many replicas as it has: what was decided, by what, and what became of it."""
    cluster = Cluster(target)
    resource = cluster.model(name)
    capacity: tuple[free_capacity.FreeCapacity, ...] = ()
    # Nodes and pods of others are for few to see, and the scheduler has said already that there is too little.
    with suppress(ClusterError):
        capacity = free_capacity.read_free_capacity(cluster, insufficient_for(resource))
    now = datetime.now(UTC)
    result = report(resource, now, capacity)
    if output.is_data:
        output.data(result.to_dict())
    else:
        emit(render(result, now, width=min(output.width, MAX_WIDTH), color=output.color))
    return 0
