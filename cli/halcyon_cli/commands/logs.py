"""`halcyon logs NAME`: shows logs of one component of a model's pods, once or continuously.

Out of scope: the requests (`kube.client`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.arguments.options import DURATION, cluster_options, emit, name_argument, warn
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster, Target

COMPONENTS: Mapping[str, tuple[str, str]] = {
    "triton": (names.SERVER, names.TRITON),
    "fetch": (names.SERVER, names.FETCHER),
    "agent": (names.BALANCER, "agent"),
    "haproxy": (names.BALANCER, "haproxy"),
}
"""Components by the value of the option -c, as (component label of the pods, name of the container)."""
MAX_FOLLOWED = 20
"""Maximum number of logs that are followed at the same time. Each log is a connection to the API server."""
_EPILOG = """\
\b
examples:
  halcyon logs resnet50
  halcyon logs resnet50 -c haproxy -f
  halcyon logs resnet50 -c triton --previous --pod resnet50-a-6c9f7-x2x5q

Lines of several pods begin with the name of the pod. triton and fetch run in the model pods,
agent and haproxy in the balancer's.

exit status: 0, or 2 if nothing can be read: no such name, no pod, no access, no cluster.
"""


@click.command("logs", epilog=_EPILOG)
@name_argument()
@click.option("-c", "--container", "component", type=click.Choice(list(COMPONENTS)), default="triton", help="Container. Default: triton.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines until interrupted.")
@click.option(
    "-p", "--previous", is_flag=True, help="Logs of the containers' previous runs, for example after a crash."
)
@click.option("--tail", "lines", type=click.IntRange(0, 1_000_000), default=100, metavar="N", help="Lines from the end of each log. Default: 100.")  # fmt: skip
@click.option("--since", "since_s", type=DURATION, metavar="TIME", help="Only lines of the last TIME, for example 10m.")
@click.option("--pod", "pod_name", metavar="NAME", help="Only this pod.")
@cluster_options
def main(  # noqa: PLR0917  # click passes them by keyword
    name: str, component: str, follow: bool, previous: bool, lines: int, since_s: float | None, pod_name: str | None, target: Target
) -> int:  # fmt: skip
    """Print the logs of a model's pods."""
    if follow and previous:
        raise InputError("-f follows running containers, and -p shows ended ones; omit one of them")
    cluster = Cluster(target)
    cluster.model(name)
    label, container = COMPONENTS[component]
    labels = f"{names.OWNER_LABEL}={name},{names.COMPONENT_LABEL}={label}"
    pods = sorted(str(pod["metadata"]["name"]) for pod in cluster.items(kinds.POD, selector=labels) or ())
    if pod_name is not None:
        if pod_name not in pods:
            raise InputError(f"{name} has no pod {pod_name} with {component}; it has {', '.join(pods) or 'none'}")
        pods = [pod_name]
    if not pods:
        raise ClusterError(f"{name} has no pod with {component} now; halcyon get {name} shows why")
    query: dict[str, str] = {"tailLines": str(lines)} | ({"sinceSeconds": f"{max(since_s, 1):.0f}"} if since_s else {})
    prefixed = len(pods) > 1
    if follow:
        return _follow(cluster, pods, container, query, prefixed=prefixed)
    log_count = 0
    for pod in pods:
        text = cluster.log(pod, container, lines=lines, previous=previous, since_s=since_s)
        if text is None:
            warn(target.command, f"pod {pod}: {container} has no {'previous ' if previous else ''}log")
            continue
        log_count += 1
        if text:
            emit("\n".join(_prefixed(text.rstrip("\n").splitlines(), pod if prefixed else "")))
    if not log_count:
        raise ClusterError(f"no {'previous ' if previous else ''}log of {container} in {len(pods)} pods of {name}")
    return 0


def _prefixed(lines: Sequence[str], pod: str) -> Iterator[str]:
    return (f"[{pod}] {line}" if pod else line for line in lines)


def _follow(cluster: Cluster, pods: Sequence[str], container: str, query: Mapping[str, str], *, prefixed: bool) -> int:
    """Print new lines of the logs of at most `MAX_FOLLOWED` pods, until every container has stopped.

    Also stop if the output is a pipe that its reader has closed.
    """
    if len(pods) > MAX_FOLLOWED:
        command, count = cluster.target.command, len(pods)
        warn(command, f"follows the logs of {MAX_FOLLOWED} of {count} pods; for another pod: --pod NAME")
        pods = pods[:MAX_FOLLOWED]
    lines: queue.Queue[tuple[str, str | None, Any]] = queue.Queue()

    def read(pod: str) -> None:
        try:
            for line in cluster.follow_log(pod, container, query):
                lines.put((pod, line, None))
        except ClusterError as error:
            lines.put((pod, None, error))
        else:
            lines.put((pod, None, None))

    for pod in pods:
        threading.Thread(target=read, args=(pod,), daemon=True).start()
    open_logs, has_reader = len(pods), True
    while open_logs and has_reader:
        pod, line, error = lines.get()
        if line is not None:
            has_reader = emit(next(_prefixed([line], pod if prefixed else "")))
            continue
        open_logs -= 1
        if error is not None:
            warn(cluster.target.command, f"pod {pod}: {fields.text(str(error)) or 'the log has ended'}")
    return 0
