"""`halcyon infer NAME --input FILE`: sends one request to a model, and shows the duration of each phase.

The request goes to a balancer pod through the API server, as with kubectl port-forward, so the user needs no network
access to the model. Out of scope: the conversion of files (`infer.tensors`) and the connection (`infer.connection`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from halcyon.kube import kinds
from halcyon.render import names
from halcyon_cli.arguments.options import (
    DURATION,
    AmountParam,
    Output,
    cluster_options,
    emit,
    name_argument,
    output_options,
    warn,
)
from halcyon_cli.bench.options.server import request_headers
from halcyon_cli.errors import ClusterError, InputError
from halcyon_cli.kube import fields
from halcyon_cli.kube.client import Cluster, Target

WAIT_S = 60.0
_MAX_BYTES = 256 * 2**20
_VALUES = 8
"""Maximum number of values of each output tensor that are shown."""
_EPILOG = """\
\b
examples:
  halcyon infer resnet50 --input cat.jpg
  halcyon infer digits --input pixels=digit.npy -o json
  halcyon infer digits --input request.json --url http://127.0.0.1:8000
  halcyon infer digits --input digit.npy --api-key-file key.txt

\b
inputs:
  x.npy, x.npz   NumPy arrays; in an .npz, named as the inputs
  x.json         values of the only input, or by input, or a KServe v2 request
  an image       resized to the input's size; pixels from 0 to 1 for floats,
                 to 255 for integers, or to --pixel-scale

A single item becomes a batch of one if the model supports batching. With -o json or yaml, NaN and
infinities of an output are the strings NaN, Infinity and -Infinity, and bytes that are no text are base64.

\b
exit status:
  0  the model responded
  1  the response is an error, or late
  2  no request was sent: usage error, invalid file, no such name, no pod,
     no access, no cluster
"""


@click.command("infer", epilog=_EPILOG)
@name_argument()
@click.option(
    "--input",
    "inputs",
    required=True,
    multiple=True,
    metavar="[INPUT=]FILE",
    help="File to send. Repeat for a model with several inputs.",
)
@click.option("--version", "version", metavar="N", help="Version of the model. Default: chosen by Triton.")
@click.option(
    "--url", metavar="URL", help="URL to send the request to, instead of a balancer pod through the API server."
)
@click.option(
    "--wait",
    "wait_s",
    type=DURATION,
    default=WAIT_S,
    metavar="TIME",
    help=f"Timeout for the response. Default: {WAIT_S:.0f}s. A model at zero starts a pod first.",
)
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with an API key, sent as Authorization: Bearer, if the model has API keys.",
)
@click.option(
    "--pixel-scale",
    type=AmountParam(min=0, min_open=True),
    metavar="N",
    help="Value of a white pixel, if the input is an image.",
)
@cluster_options
@output_options("table", "json", "yaml")
def main(  # noqa: PLR0917  # click passes them by keyword
    name: str, inputs: Sequence[str], version: str | None, url: str | None, wait_s: float, api_key_file: Path | None, pixel_scale: float | None, target: Target, output: Output
) -> int:  # fmt: skip
    """Send one request to a model, and show its response and the duration of each phase."""
    from halcyon_cli.infer import request  # noqa: PLC0415  # NumPy and Triton's client take a second to import: not for usage errors
    from halcyon_cli.infer.connection import ModelConnection, NoResponse  # noqa: PLC0415

    files = [_file(argument) for argument in inputs]
    headers = dict(request_headers((), api_key_file))
    cluster = Cluster(target)
    model = cluster.model(name)
    if url is None:
        pod = _pod(cluster, name)
        has_tls = "tls" in fields.mapping(fields.mapping(model.get("spec")).get("traffic"))
        connection = ModelConnection.to_pod(cluster, pod, names.HTTP_PORT, timeout_s=wait_s, encrypted=has_tls)
    else:
        connection = ModelConnection.to_url(url, timeout_s=wait_s)
    connection.headers.update(headers)
    with connection.closing():
        try:
            result = request.infer(connection, _served(model, name), version, files, pixel_scale=pixel_scale)
        except (NoResponse, request.InferenceError) as error:
            warn("infer", str(error))
            return 1
    document = result.to_dict() | {"through": connection.peer}
    if output.is_data:
        output.data(document)
    else:
        emit(_page(document, output))
    return 0


def _file(argument: str) -> tuple[str | None, str, bytes]:
    """Parse [INPUT=]FILE into (input, path, content).

    If a file exists whose name is the whole text, including `INPUT=`, the text is the path.
    """
    name, sign, path = argument.partition("=")
    if not sign or Path(argument).exists():
        name, path = "", argument
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: can't read it: {error.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise InputError(f"{path}: larger than {_MAX_BYTES // 2**20} MiB")
    return name or None, path, content


def _served(model: Mapping[str, Any], name: str) -> str:
    """Return the name of the model in requests."""
    spec, status = (fields.mapping(fields.mapping(model.get(part)).get("model")) for part in ("spec", "status"))
    return fields.text(status.get("name")) or fields.text(spec.get("name")) or name


def _pod(cluster: Cluster, name: str) -> str:
    """Return the name of a pod that accepts requests: a balancer pod, or a model pod if the model has no balancers."""
    for component in (names.BALANCER, names.SERVER):
        selector = ",".join(f"{key}={value}" for key, value in names.selector(name, component).items())
        pods = cluster.items(kinds.POD, selector=selector) or []
        ready = sorted(str(pod["metadata"]["name"]) for pod in pods if _is_ready(pod))
        if ready:
            return ready[0]
        if pods:
            raise ClusterError(
                f"none of the {len(pods)} {component} pods of {name} is ready; for the reason: halcyon get {name}"
            )
    raise ClusterError(f"{name} has no pods; for the reason: halcyon get {name}")


def _is_ready(pod: Mapping[str, Any]) -> bool:
    from halcyon_cli.kube.pod_stage import stage  # noqa: PLC0415

    return stage(pod).state == "ready"


def _page(result: Mapping[str, Any], output: Output) -> str:
    from halcyon_cli.output import tables  # noqa: PLC0415  # rich, for the table

    version = f" version {result['version']}" if result["version"] else ""
    head = f"{result['model']}{version} through {result['through']}"
    phases = result["seconds"]
    widest = max(map(len, phases))
    lines = [f"  {phase:<{widest}}  {1000 * seconds:>9.2f} ms" for phase, seconds in phases.items()]
    rows = [
        [output_tensor["name"], f"{output_tensor['datatype']}{output_tensor['shape']}", _values(output_tensor)]
        for output_tensor in result["outputs"]
    ]
    table = tables.lines(tables.table_page(("OUTPUT", "TYPE", "VALUES"), rows), width=output.width, color=output.color)
    return "\n".join([head, *lines, "", table])


def _values(tensor: Mapping[str, Any]) -> str:
    data = tensor["data"]
    texts = [f"{value:.6g}" if isinstance(value, float) else json.dumps(value) for value in data[:_VALUES]]
    if tensor["datatype"] != "BYTES":
        texts = [value.strip('"') for value in texts]  # NaN and infinities
    return " ".join(texts) + (f" and {len(data) - _VALUES} more" if len(data) > _VALUES else "")
