"""`halcyon explain NAME`: the reason for a model's replica count, taken from the status that the operator writes.

The command reads one ModelDeployment. It also reads Events about measurements of the served model, its batches and, if pods are
unschedulable, the nodes and the pods on them. It changes nothing. Out of scope: the contents of the report
(`explain.build`) and its layout (`report_text`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import click

from halcyon_cli.arguments.options import Output, cluster_options, emit, name_argument, output_options
from halcyon_cli.errors import ClusterError
from halcyon_cli.explain.build import insufficient_for, report
from halcyon_cli.explain.report import Note
from halcyon_cli.kube import batches, bench_events, free_capacity
from halcyon_cli.kube.client import Cluster, Target
from halcyon_cli.output.report_text import MAX_WIDTH, render

_EPILOG = """\
\b
examples:
  halcyon explain resnet50
  halcyon explain resnet50 -n team -o json

The same data is in the status: kubectl get mdep resnet50 -o yaml. If pods are unschedulable for lack of GPUs, the output also shows how
many GPUs are free and which workloads hold the rest. This requires permission to list nodes and pods in all namespaces. For the meaning of
each line, see docs/concepts/scaling.md.

exit status: 0, or 2 if there is nothing to explain: no such name, no access, no cluster.
"""


@click.command("explain", epilog=_EPILOG)
@name_argument()
@cluster_options
@output_options("table", "json", "yaml")
def main(name: str, target: Target, output: Output) -> int:
    """Explain a model's replica count: the decision, its parts, its limits and its effect."""
    cluster = Cluster(target)
    resource = cluster.model(name)
    capacity: tuple[free_capacity.FreeCapacity, ...] = ()
    # Few users may list nodes and pods of other namespaces. Without them, the scheduler's message still names the
    # resource.
    with suppress(ClusterError):
        capacity = free_capacity.read_free_capacity(cluster, insufficient_for(resource))
    now = datetime.now(UTC)
    result = report(resource, now, capacity)
    measured = tuple(Note("Measured", "True", reason, text) for reason, text in bench_events.recent(cluster, name))
    running = tuple(Note("Batch", "True", reason, text) for reason, text in batches.unended_of_model(cluster, name))
    result = replace(result, notes=(*result.notes, *measured, *running))
    if output.is_data:
        output.data(result.to_dict())
    else:
        emit(render(result, now, width=min(output.width, MAX_WIDTH), color=output.color))
    return 0
