"""`halcyon get [NAME] [-w]`: models as a list, or one model as a tree, once or continuously.

Out of scope: the contents (`model_rows`, `tree`), the layout (`tables`), and watching for changes (`watch`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import click

from halcyon_cli.arguments.options import (
    DURATION,
    Output,
    check_limit,
    cluster_options,
    emit,
    name_argument,
    output_options,
    selector_option,
)
from halcyon_cli.commands.watch import follow
from halcyon_cli.errors import InputError
from halcyon_cli.kube import client_messages
from halcyon_cli.kube.client import Cluster, Target

_EPILOG = """\
\b
examples:
  halcyon get
  halcyon get -A -o wide
  halcyon get -l team=vision -o name
  halcyon get resnet50
  halcyon get resnet50 -w --for 5m

\b
pod states:
  pending   not scheduled yet; Unschedulable: no node fits
  pulling   scheduled; images are pulled and volumes mounted
  fetching  the model is fetched, with the bytes of a download if you may
            read logs, and its configuration merged
  loading   Triton loads the model and warms it up
  warming   Triton has started and isn't ready yet
  ready     receives requests
  unready   was ready and isn't now, or a balancer that is not ready yet
  draining  is terminating and finishes its requests
  failed    with the reason and the original message

-o json, yaml and name print the objects, as kubectl does. -o report prints the rows or the tree as JSON. To wait in a script, use halcyon
status --watch.

exit status: 0, or 2 if there is nothing to show: no such name, no access, no cluster.
"""


@click.command("get", epilog=_EPILOG)
@name_argument(required=False)
@click.option("-A", "--all-namespaces", "all_namespaces", is_flag=True, help="List models in all namespaces.")
@click.option("-w", "--watch", is_flag=True, help="Keep running, and redraw the tree on every change.")
@click.option(
    "--for", "limit_s", type=DURATION, metavar="TIME", help="With -w: how long to watch. Default: until interrupted."
)
@cluster_options
@selector_option
@output_options("table", "wide", "name", "json", "yaml", "report")
def main(  # noqa: PLR0917  # click passes them by keyword
    name: str | None, all_namespaces: bool, watch: bool, limit_s: float | None, selector: str, target: Target, output: Output
) -> int:  # fmt: skip
    """List ModelDeployments, or show one with its revisions, pods, balancers and HPA."""
    if watch and name is None:
        raise InputError("-w shows one model as a tree; give its name, for example halcyon get resnet50 -w")
    if watch and (output.is_data or output.is_objects):
        raise InputError(f"-w shows a tree, which -o {output.form} isn't; omit one of them")
    check_limit(limit_s, watch=watch)
    if name is not None and all_namespaces:
        raise InputError(f"-A lists all models, and {name} names one; omit one of them")
    if name is not None and selector:
        raise InputError(f"-l selects models by labels, and {name} names one; omit one of them")
    cluster = Cluster(target)
    if output.is_objects:
        models = [cluster.model(name)] if name else cluster.models(all_namespaces=all_namespaces, selector=selector)
        output.objects(models, single=name is not None)
        return 0
    if watch and name is not None:
        return follow(cluster, name, output, limit_s)
    if name is None:
        _print_list(cluster, output, selector, all_namespaces=all_namespaces)
    else:
        _print_tree(cluster, name, output)
    return 0


def _print_list(cluster: Cluster, output: Output, selector: str, *, all_namespaces: bool) -> None:
    from halcyon_cli.output import model_rows, tables  # noqa: PLC0415  # rich takes 0.25 s to import: not for usage errors

    rows = model_rows.sorted_rows(
        [model_rows.build_row(model) for model in cluster.models(all_namespaces=all_namespaces, selector=selector)],
        "name",
    )
    if output.is_data:
        output.data([row.to_dict() for row in rows])
    elif not rows:
        emit(client_messages.no_models(namespace=None if all_namespaces else cluster.namespace, selector=selector))
    else:
        head, cells = model_rows.list_table(
            rows, datetime.now(UTC), wide=output.form == "wide", all_namespaces=all_namespaces
        )
        emit(tables.lines(tables.table_page(head, cells), width=output.width, color=output.color))


def _print_tree(cluster: Cluster, name: str, output: Output) -> None:
    from halcyon_cli.kube.downloads import Downloads  # noqa: PLC0415
    from halcyon_cli.kube.inventory import read_inventory  # noqa: PLC0415
    from halcyon_cli.output import tables  # noqa: PLC0415  # rich, as above
    from halcyon_cli.output.tree import build_tree  # noqa: PLC0415

    inventory = read_inventory(cluster, name)
    model_tree = build_tree(replace(inventory, downloads=Downloads(cluster).progress(inventory.servers)))
    if output.is_data:
        output.data(model_tree.to_dict())
    else:
        emit(
            tables.lines(
                tables.tree_page(model_tree, datetime.now(UTC), width=output.width),
                width=output.width,
                color=output.color,
            )
        )
