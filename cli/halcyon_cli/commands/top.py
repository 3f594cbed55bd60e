"""`halcyon top`: lists models by load and cost. Out of scope: the contents of a row (`model_rows`)."""

from __future__ import annotations

import click

from halcyon_cli.arguments.options import AmountParam, Output, cluster_options, emit, output_options, selector_option
from halcyon_cli.kube import client_messages
from halcyon_cli.kube.client import Cluster, Target
from halcyon_cli.output import model_rows
from halcyon_cli.output.model_rows import SortKey

_EPILOG = """\
\b
examples:
  halcyon top
  halcyon top -A --sort gpu
  halcyon top -A --sort cost --gpu-price 2.50

QUEUE is the number of queued requests and, if there is a target, the number that the ready model pods should have. GPUS counts the GPUs of all
pods that have a node, busy or idle. COST/H is shown if the chart sets prices (cost) or you pass --gpu-price. - means unknown; ? means that a signal is missing.

exit status: 0, or 2 if nothing can be listed: no access, no cluster.
"""


@click.command("top", epilog=_EPILOG)
@click.option(
    "--sort",
    "sort_key",
    type=click.Choice(["queue", "gpu", "cost", "name"]),
    default="queue",
    help="Sort by queued requests, mean GPU utilization or cost, highest first, or by name. Default: queue.",
)
@click.option(
    "--gpu-price",
    "price",
    type=AmountParam(min=0),
    metavar="PRICE",
    help="Price of one GPU per hour, instead of the configured prices. Adds the column COST/H.",
)
@click.option("-A", "--all-namespaces", "all_namespaces", is_flag=True, help="Models in all namespaces.")
@selector_option
@cluster_options
@output_options("table", "wide", "json", "yaml")
def main(  # noqa: PLR0917  # click passes them by keyword
    sort_key: SortKey, price: float | None, all_namespaces: bool, selector: str, target: Target, output: Output
) -> int:  # fmt: skip
    """Show models with their replicas, queue, GPU utilization and allocated GPUs."""
    cluster = Cluster(target)
    models = cluster.models(all_namespaces=all_namespaces, selector=selector)
    rows = model_rows.sorted_rows([model_rows.build_row(model) for model in models], sort_key, price)
    if output.is_data:
        output.data([row.to_dict() | model_rows.cost_fields(row, price) for row in rows])
        return 0
    if not rows:
        emit(client_messages.no_models(namespace=None if all_namespaces else cluster.namespace, selector=selector))
        return 0
    from halcyon_cli.output import tables  # noqa: PLC0415  # rich takes 0.25 s to import: not for usage errors

    head, cells = model_rows.top_table(rows, price=price, wide=output.form == "wide", all_namespaces=all_namespaces)
    emit(tables.lines(tables.table_page(head, cells), width=output.width, color=output.color))
    return 0
