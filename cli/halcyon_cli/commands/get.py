"""`halcyon get [NAME] [-w]`: models as a list, or one of them as a tree, once or for as long as one looks.

Not here: what is told of them (`fleet`, `tree`), how it looks (`drawing`), and how changes are heard of (`watching`).
"""

from __future__ import annotations

from datetime import UTC, datetime

import click

from halcyon_cli.arguments.options import DURATION, Output, clustered, emit, formatted, named
from halcyon_cli.commands.watch import follow
from halcyon_cli.errors import InputError
from halcyon_cli.kube.client import Cluster, Place

_EPILOG = """\
\b
examples:
  halcyon get
  halcyon get -A -o wide
  halcyon get resnet50
  halcyon get resnet50 -w --for 5m

\b
states of a pod:
  pending   no node yet; Unschedulable: the scheduler finds none, and says why
  pulling   a node has it, and images or volumes are on their way
  fetching  the model is brought, and its configuration merged
  loading   Triton loads the model and warms it up
  warming   Triton has started, and isn't ready yet
  ready     it serves
  unready   it has served, and isn't ready now
  draining  it is going, and ends what it has begun
  failed    with the reason and the message of who knows

A script that waits uses kubectl wait --for=condition=Ready mdep/resnet50.

exit status: 0, or 2 where there is nothing to get: no such name, no access, no cluster.
"""


@click.command("get", epilog=_EPILOG)
@named(required=False)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="List those of all namespaces.")
@click.option("-w", "--watch", is_flag=True, help="Go on, and draw the tree anew when something changes.")
@click.option(
    "--for", "limit_s", type=DURATION, metavar="TIME", help="With -w: how long; until interrupted where it is left out."
)
@clustered
@formatted("table", "wide", "json", "yaml")
def main(  # noqa: PLR0917  # by keyword: click gives them so
    name: str | None, everywhere: bool, watch: bool, limit_s: float | None, place: Place, output: Output
) -> int:  # fmt: skip
    """List ModelDeployments, or show one of them with its revisions, pods, balancer and HPA, their states and reasons."""
    if watch and (name is None or output.is_data):
        raise InputError("-w shows one model as a tree: give its name, for example halcyon get resnet50 -w")
    if name is not None and everywhere:
        raise InputError(f"-A lists all models, and {name} is one; leave one of them out")
    cluster = Cluster(place)
    if watch and name is not None:
        return follow(cluster, name, output, limit_s)
    if name is None:
        _list(cluster, output, everywhere=everywhere)
    else:
        _show(cluster, name, output)
    return 0


def _list(cluster: Cluster, output: Output, *, everywhere: bool) -> None:
    from halcyon_cli.output import model_rows, tables  # noqa: PLC0415  # rich: a quarter of a second that wrong usage needn't wait for

    rows = model_rows.ordered([model_rows.row(model) for model in cluster.models(everywhere=everywhere)], "name")
    if output.is_data:
        output.data([row.to_dict() for row in rows])
    elif not rows:
        where = "the cluster" if everywhere else f"namespace {cluster.namespace}"
        emit(
            f"there is no ModelDeployment in {where}; kubectl apply -f makes one, for example manifests/examples/digits.yaml"
        )
    else:
        head, cells = model_rows.listed(rows, datetime.now(UTC), wide=output.form == "wide", everywhere=everywhere)
        emit(tables.lines(tables.table_page(head, cells), width=output.width, color=output.color))


def _show(cluster: Cluster, name: str, output: Output) -> None:
    from halcyon_cli.kube.inventory import look  # noqa: PLC0415
    from halcyon_cli.output import tables  # noqa: PLC0415  # rich, as above
    from halcyon_cli.output.tree import tree  # noqa: PLC0415

    told = tree(look(cluster, name))
    if output.is_data:
        output.data(told.to_dict())
    else:
        emit(tables.lines(tables.tree_page(told, datetime.now(UTC)), width=output.width, color=output.color))
