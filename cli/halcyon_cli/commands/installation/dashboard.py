"""`halcyon dashboard`: opens the web dashboard through a port-forward to a pod of the operator."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
import webbrowser
from collections.abc import Mapping
from typing import Any

import click

from halcyon.kube import kinds
from halcyon_cli.arguments.options import cluster_options, emit, warn
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.infer.connection import open_tunnel
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster, Target
from halcyon_cli.kube.operator_pods import of_operators

_DEFAULT_PORT = 8090
_FLAG = re.compile(r"--dashboard(-port)?=(.+)")
_CHUNK = 2**16
_EPILOG = """\
\b
examples:
  halcyon dashboard
  halcyon dashboard --port 9000 --no-browser
  halcyon dashboard --model team/resnet50

The command runs until it is interrupted. It needs the verbs list on deployments and pods, and
create on pods/portforward, in the operator's namespace.

exit status: 0, or 2 if nothing can be shown: no operator, no dashboard, no access, no cluster.
"""


@click.command("dashboard", epilog=_EPILOG)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="Local port. Default: any free one."
)
@click.option("--model", metavar="NAMESPACE/NAME", help="Open the page of this model.")
@click.option("--no-browser", is_flag=True, help="Print the URL only.")
@cluster_options
def main(port: int, model: str | None, no_browser: bool, target: Target) -> int:
    """Open the dashboard in a browser, through a port-forward."""
    if model is not None and not re.fullmatch(r"[^/]+/[^/]+", model):
        raise InputError(f"--model is {model}; it must be NAMESPACE/NAME, for example team/resnet50")
    cluster, pod, remote_port, scheme = find(Cluster(target))
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise InputError(f"port {port} can't be used: {error.strerror}; for example --port 0") from None
    url = f"{scheme}://localhost:{listener.getsockname()[1]}/" + (f"#/{model}" if model else "")
    emit(f"{url}  (pod {cluster.namespace}/{pod}; end with Ctrl-C)")
    if not no_browser and not webbrowser.open(url):
        warn(target.command, "no browser was found; open the URL in one")
    with listener, contextlib.suppress(KeyboardInterrupt):
        serve(listener, cluster, pod, remote_port)
    return 0


def find(cluster: Cluster) -> tuple[Cluster, str, int, str]:
    """Return a client for the operator's namespace, a ready operator pod, and the port and scheme of the dashboard.

    Raises:
        ClusterError: there is no operator, none of its pods is ready, or the dashboard is off.
    """
    pods = of_operators(cluster, kinds.POD)
    if not pods:
        raise ClusterError(
            "no operator was found; if you may list its namespace only, give it with -n, for example -n halcyon-system"
        )
    ready = [pod for pod in pods if _is_ready(pod)]
    if not ready:
        raise ClusterError(
            f"no pod of the operator in namespace {pods[0]['metadata']['namespace']} is ready; kubectl get pods shows why"
        )
    settings = [flag for container in fields.mappings(fields.mapping(ready[0].get("spec")).get("containers")) for flag in map(_FLAG.fullmatch, map(str, container.get("args") or ())) if flag]  # fmt: skip
    listen = next((flag[2] for flag in settings if not flag[1]), "")
    if not listen:
        raise ClusterError("the operator has no dashboard; enable it with the chart value dashboard.enabled=true")
    remote = next((int(flag[2]) for flag in settings if flag[1]), _DEFAULT_PORT)
    meta = ready[0]["metadata"]
    return (
        cluster.in_namespace(str(meta["namespace"])),
        str(meta["name"]),
        remote,
        "http" if listen == "localhost" else "https",
    )


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = fields.mappings(fields.mapping(pod.get("status")).get("conditions"))
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def serve(listener: socket.socket, cluster: Cluster, pod: str, port: int) -> None:
    """Forward each connection of the listener to the pod's port until interrupted."""
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_forward, args=(client, cluster, pod, port), daemon=True).start()


def _forward(client: socket.socket, cluster: Cluster, pod: str, port: int) -> None:
    with client:
        try:
            tunnel = open_tunnel(cluster, pod, port)
        except ClusterError as error:
            warn(cluster.target.command, str(error))
            return
        with contextlib.closing(tunnel), contextlib.suppress(OSError):
            copy_both_ways(client, tunnel)


def copy_both_ways(first: socket.socket, second: socket.socket) -> None:
    """Copy data between two sockets in both directions, until one of them is closed."""
    while True:
        for ready in select.select((first, second), (), ())[0]:
            data = ready.recv(_CHUNK)
            if not data:
                return
            (second if ready is first else first).sendall(data)
