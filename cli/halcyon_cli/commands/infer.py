"""`halcyon infer NAME --input FILE`: one request to a model, and where its time went.

It goes to a balancer's pod through the API server, as kubectl port-forward does, so nothing has to be reachable from here. Not here: how
files become tensors (`tensors`), and the connection (`wire`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.arguments.options import DURATION, Output, clustered, emit, formatted, named, warn
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster, Place

WAIT_S = 60.0
_MAX_BYTES = 256 * 2**20
_VALUES = 8
"""Values of an output that are shown."""
_EPILOG = """\
\b
examples:
  halcyon infer resnet50 --input cat.jpg
  halcyon infer digits --input pixels=digit.npy -o json
  halcyon infer digits --input request.json --url http://127.0.0.1:8000

\b
inputs:
  x.npy, x.npz   arrays of numpy's; those of an .npz by the names of the inputs
  x.json         values of the only input, or an object of values by input, or a request of KServe's v2 protocol
  a picture      resized to what the input takes; pixels from 0 to 1 for floats, to 255 for whole numbers, or to --pixel-scale

A row becomes a batch of one where the model takes batches.

\b
exit status:
  0  answered
  1  the model answers with an error, or not in time
  2  nothing was asked: wrong usage, a file that can't be used, no such name, no pod is ready, no access, no cluster
"""


@click.command("infer", epilog=_EPILOG)
@named()
@click.option(
    "--input",
    "inputs",
    required=True,
    multiple=True,
    metavar="[INPUT=]FILE",
    help="What to send; for a model with several inputs, once for each.",
)
@click.option(
    "--version", "version", metavar="N", help="Which version of the model; Triton's choice where it is left out."
)
@click.option("--url", metavar="URL", help="Where to send it, instead of through the API server to a balancer's pod.")
@click.option(
    "--wait",
    "wait_s",
    type=DURATION,
    default=WAIT_S,
    metavar="TIME",
    help=f"Longest time for the answer; {WAIT_S:.0f}s where it is left out. A model at zero starts a pod first.",
)
@click.option(
    "--pixel-scale",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Value of a white pixel, where the input is a picture.",
)
@clustered
@formatted("table", "json", "yaml")
def main(  # noqa: PLR0917  # click gives them by keyword
    name: str, inputs: Sequence[str], version: str | None, url: str | None, wait_s: float, pixel_scale: float | None, place: Place, output: Output
) -> int:  # fmt: skip
    """Send one request to a model, and tell what it answers and where the time went."""
    from halcyon_cli.infer import request  # noqa: PLC0415  # numpy and Triton's client: a second that wrong usage needn't wait for
    from halcyon_cli.infer.connection import NoAnswer, Wire  # noqa: PLC0415

    files = [_file(given) for given in inputs]
    cluster = Cluster(place)
    model = cluster.model(name)
    if url is None:
        pod = _pod(cluster, name)
        wire = Wire.to_pod(cluster, pod, names.HTTP_PORT, timeout_s=wait_s)
    else:
        wire = Wire.to_url(url, timeout_s=wait_s)
    with wire.closing():
        try:
            answer = request.ask(wire, _served(model, name), version, files, pixel_scale=pixel_scale)
        except (NoAnswer, request.InferenceError) as error:
            warn("infer", str(error))
            return 1
    told = answer.to_dict() | {"through": wire.who}
    if output.is_data:
        output.data(told)
    else:
        emit(_page(told, output))
    return 0


def _file(given: str) -> tuple[str | None, str, bytes]:
    """(input, path, content) of [INPUT=]FILE; a file whose own name has a = in it is taken as it is."""
    name, sign, path = given.partition("=")
    if not sign or Path(given).exists():
        name, path = "", given
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise InputError(f"{path}: is larger than {_MAX_BYTES // 2**20} MiB")
    return name or None, path, content


def _served(model: Mapping[str, Any], name: str) -> str:
    """The name that requests bear."""
    spec, status = (fields.mapping(fields.mapping(model.get(part)).get("model")) for part in ("spec", "status"))
    return fields.text(status.get("name")) or fields.text(spec.get("name")) or name


def _pod(cluster: Cluster, name: str) -> str:
    """A pod that takes requests: a balancer's, or a server's where the model has no balancer."""
    for component in (names.BALANCER, names.SERVER):
        selector = ",".join(f"{key}={value}" for key, value in names.selector(name, component).items())
        found = cluster.items(kinds.POD, selector=selector) or []
        ready = sorted(str(pod["metadata"]["name"]) for pod in found if _is_ready(pod))
        if ready:
            return ready[0]
        if found:
            raise ClusterError(
                f"none of the {len(found)} {component} pods of {name} is ready; halcyon get {name} shows why"
            )
    raise ClusterError(f"{name} has no pods; halcyon get {name} shows why")


def _is_ready(pod: Mapping[str, Any]) -> bool:
    from halcyon_cli.kube.pod_stage import stage  # noqa: PLC0415

    return stage(pod).state == "ready"


def _page(told: Mapping[str, Any], output: Output) -> str:
    from halcyon_cli.output import tables  # noqa: PLC0415  # rich, for the table

    version = f" version {told['version']}" if told["version"] else ""
    head = f"{told['model']}{version} through {told['through']}"
    phases = told["seconds"]
    widest = max(map(len, phases))
    lines = [f"  {phase:<{widest}}  {1000 * seconds:>9.2f} ms" for phase, seconds in phases.items()]
    rows = [[one["name"], f"{one['datatype']}{one['shape']}", _values(one["data"])] for one in told["outputs"]]
    table = tables.lines(tables.table_page(("OUTPUT", "TYPE", "VALUES"), rows), width=output.width, color=output.color)
    return "\n".join([head, *lines, "", table])


def _values(data: Sequence[Any]) -> str:
    shown = [f"{value:.6g}" if isinstance(value, float) else json.dumps(value) for value in data[:_VALUES]]
    return " ".join(shown) + (f" and {len(data) - _VALUES} more" if len(data) > _VALUES else "")
