"""`halcyon status NAME [--watch]`: shows whether a model's current spec is served, with an exit status for scripts.

Out of scope: the rules (`halcyon_cli.rollout.progress`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.arguments.options import (
    DURATION,
    Output,
    check_limit,
    cluster_options,
    emit,
    name_argument,
    output_options,
    warn,
)
from halcyon_cli.commands.outage_notice import OutageNotice
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import batches, fields
from halcyon_cli.kube.client import Cluster, NoSuchModelError, Target
from halcyon_cli.kube.downloads import Downloads
from halcyon_cli.rollout.progress import Progress, progress, with_downloads

POLL_INTERVAL_S = 1.0
_EPILOG = """\
\b
examples:
  halcyon status resnet50
  kubectl apply -f resnet50.yaml && halcyon status resnet50 --watch --for 20m

Batches of the model that have not ended are shown, too.

With --watch, the command waits as kubectl rollout status does: until the current spec
is served, its rollout has failed, or the time has passed. While pods download the
model, the line has their bytes, if you may read logs.

\b
exit status:
  0  the current spec is served
  1  it isn't: rejected, failed, rolled back, or not served yet
  2  nothing to show: no such name, no access, no cluster
"""


@click.command("status", epilog=_EPILOG)
@name_argument()
@click.option("-w", "--watch", is_flag=True, help="Wait until the rollout has ended, and print its progress.")
@click.option("--for", "limit_s", type=DURATION, metavar="TIME", help="With -w: how long to wait. Default: no limit.")
@cluster_options
@output_options("table", "json", "yaml")
def main(name: str, watch: bool, limit_s: float | None, target: Target, output: Output) -> int:
    """Show whether the current spec of a model is served."""
    check_limit(limit_s, watch=watch)
    cluster = Cluster(target)
    downloads = Downloads(cluster)

    def read() -> Progress:
        model = cluster.model(name)
        return with_downloads(progress(model), downloads.progress(_fetching(cluster, name, model)).values())

    current = read()
    if watch:
        current = follow(read, current, limit_s, None if output.is_data else emit)
    if output.is_data:
        output.data(current.to_dict())
    elif not watch:
        emit(current.text)
        for _, text in batches.unended_of_model(cluster, name):
            emit(text)
    if current.phase == "Waiting" and watch:
        warn(target.command, f"not served within {limit_s:.0f} s; for the likely causes: halcyon diagnose {name}")
    return 0 if current.phase == "Served" else 1


def _fetching(cluster: Cluster, name: str, model: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the server pods of a model if, by its status, a pod is fetching the model; otherwise an empty list."""
    counts = fields.mapping(fields.mapping(model.get("status")).get("pods"))
    if not fields.count(counts.get("fetching")):
        return ()
    labels = f"{names.OWNER_LABEL}={name},{names.COMPONENT_LABEL}={names.SERVER}"
    try:
        return cluster.items(kinds.POD, selector=labels) or ()
    except ClusterError:  # without permission to list pods, the progress stays unknown
        return ()


def follow(
    read: Callable[[], Progress],
    first: Progress,
    limit_s: float | None,
    show: Callable[[str], object] | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Progress:
    """Poll until the rollout ends or the time limit is reached; show each change, and return the last progress.

    A failed request counts as no change, because the API server may restart during a long rollout. A long outage is
    reported on stderr.
    """
    current, started, last_text = first, clock(), ""
    outage = OutageNotice("status", clock)
    while True:
        if show is not None and current.text != last_text:
            last_text = current.text
            show(last_text)
        if current.phase != "Waiting" or (limit_s is not None and clock() - started >= limit_s):
            return current
        pause(POLL_INTERVAL_S)
        try:
            current = read()
        except ClusterError as error:
            if isinstance(error, NoSuchModelError):
                raise
            outage.request_failed(error)
        else:
            outage.request_succeeded()
