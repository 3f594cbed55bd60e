"""`halcyon top`: models by what they have to do and what they cost. Not here: what is told of one (`fleet`)."""

from __future__ import annotations

import click

from halcyon_cli.arguments.options import Output, clustered, emit, formatted
from halcyon_cli.kube.client import Cluster, Place
from halcyon_cli.output import model_rows
from halcyon_cli.output.model_rows import SortKey

_EPILOG = """\
\b
examples:
  halcyon top
  halcyon top -A --sort gpu
  halcyon top -A --sort cost --gpu-price 2.50

QUEUE is the number of requests that wait and, where there is a target, how many the ready servers are to have. GPUS are those of the pods that
exist, busy or not. COST/H is there where the site has said prices (cost of the chart), or you say one. What isn't known is -, and ? where a signal is missing.

exit status: 0, or 2 where nothing can be had: no access, no cluster.
"""


@click.command("top", epilog=_EPILOG)
@click.option(
    "--sort",
    "by",
    type=click.Choice(["queue", "gpu", "cost", "name"]),
    default="queue",
    help="The most first: waiting requests (where it is left out), mean GPU utilisation, GPUs held; or by name.",
)
@click.option(
    "--gpu-price",
    "price",
    type=click.FloatRange(min=0),
    metavar="PRICE",
    help="Of one GPU for an hour, in place of the site's: shows the column COST/H.",
)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Those of all namespaces.")
@clustered
@formatted("table", "wide", "json", "yaml")
def main(by: SortKey, price: float | None, everywhere: bool, place: Place, output: Output) -> int:  # fmt: skip
    """Show models with their replicas, queue, GPU utilisation and the GPUs that they hold."""
    rows = model_rows.ordered([model_rows.row(model) for model in Cluster(place).models(everywhere=everywhere)], by)
    if output.is_data:
        output.data([one.to_dict() | {"costPerHour": model_rows.priced(one, price)} for one in rows])
        return 0
    from halcyon_cli.output import tables  # noqa: PLC0415  # rich: a quarter of a second that wrong usage needn't wait for

    head, cells = model_rows.topped(rows, price=price, wide=output.form == "wide", everywhere=everywhere)
    emit(tables.lines(tables.table_page(head, cells), width=output.width, color=output.color))
    return 0
