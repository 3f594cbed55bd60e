"""One inference with the KServe v2 protocol, using Triton's client. Out of scope: the connection (`connection`)."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import numpy as np
from tritonclient import http as triton
from tritonclient.utils import InferenceServerException

from halcyon_cli.errors import Failure
from halcyon_cli.infer.connection import HttpResponse, ModelConnection, Phases
from halcyon_measure.inputs.tensors import Array, InputFile, binary_body, model_inputs, tensors

_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Names for the float values that JSON doesn't support (NaN and infinities)."""
_LENGTH = "inference-header-content-length"
"""Name of the header with the length of the JSON part, which precedes the binary data in Triton's protocol."""


class InferenceError(Failure):
    """The model or its balancer responded with an error."""


@dataclass(frozen=True)
class InferenceResult:
    """Successful response of a model."""

    model: str
    version: str
    outputs: tuple[tuple[str, str, Array], ...]
    """Output tensors, as (name, Triton data type, values)."""
    phases: Phases

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of the response, with the values as a flat list, as in the protocol."""
        return {
            "model": self.model,
            "version": self.version,
            "seconds": {**asdict(self.phases), "total": self.phases.total},
            "outputs": [
                {"name": name, "datatype": kind, "shape": list(array.shape), "data": _plain(array)}
                for name, kind, array in self.outputs
            ],
        }


def infer(
    connection: ModelConnection,
    model: str,
    version: str | None,
    files: Sequence[tuple[str | None, str, bytes]],
    *,
    pixel_scale: float | None = None,
) -> InferenceResult:
    """Convert files, given as (input, path, content), to the model's input tensors, send them, and return the result.

    If the model is scaled to zero, the request starts a pod.

    Raises:
        TensorError: the files don't fit the model's inputs.
        NoResponse: no response arrived in time.
        InferenceError: the response is an error.
    """
    path = f"/v2/models/{quote(model)}" + (f"/versions/{quote(version)}" if version else "")
    metadata_response, metadata = _read_metadata(connection, path, model)
    arrays = tensors(
        [InputFile(file, content, name) for name, file, content in files],
        model_inputs(metadata),
        pixel_scale=pixel_scale,
        optional=lambda: _optional_inputs(connection, path),
    )
    body, length = binary_body(arrays, model_inputs(metadata))
    headers = {"Content-Type": "application/octet-stream", _LENGTH: str(length)}
    response = _checked(connection.request("POST", f"{path}/infer", body, headers), connection, model)
    header_length = int(response.headers[_LENGTH]) if _LENGTH in response.headers else None
    try:
        result = triton.InferenceServerClient.parse_response_body(response.body, header_length=header_length)
        document = result.get_response()
        outputs = tuple((str(o["name"]), str(o["datatype"]), result.as_numpy(o["name"])) for o in document["outputs"])
    except (InferenceServerException, ValueError, KeyError, TypeError) as error:
        raise InferenceError(f"{connection.peer} did not respond in the KServe v2 protocol: {error!r}") from None
    # The first request opened the connection, so its connect time is used.
    phases = Phases(
        metadata_response.phases.connect, response.phases.send, response.phases.wait, response.phases.receive
    )
    return InferenceResult(
        str(document.get("model_name", model)), str(document.get("model_version", "")), outputs, phases
    )


def _read_metadata(connection: ModelConnection, path: str, model: str) -> tuple[HttpResponse, Any]:
    first_response = connection.request("GET", path)
    if first_response.status != HTTPStatus.SERVICE_UNAVAILABLE:
        return first_response, _json(_checked(first_response, connection, model))
    # While a model is at zero, its balancer responds to metadata requests with 503 and starts no pod. An inference
    # request starts one: the balancer holds it until a pod is ready, and the pod rejects it because it is invalid.
    wake_response = connection.request("POST", f"{path}/infer", b"{}", {"Content-Type": "application/json"})
    if wake_response.status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
        _checked(wake_response, connection, model)
    return first_response, _json(_checked(connection.request("GET", path), connection, model))


def _optional_inputs(connection: ModelConnection, path: str) -> frozenset[str]:
    """Return the names of the inputs that a request may omit, from Triton's configuration of the model.

    The model's metadata doesn't contain this. The result is empty if the server doesn't show the configuration.
    """
    response = connection.request("GET", f"{path}/config")
    config = _json(response) if response.status == HTTPStatus.OK else {}
    return frozenset(str(tensor["name"]) for tensor in config.get("input", ()) if tensor.get("optional"))


def _checked(response: HttpResponse, connection: ModelConnection, model: str) -> HttpResponse:
    if response.status < 400:
        return response
    try:
        message = str(json.loads(response.body)["error"])
    except (ValueError, KeyError, TypeError):
        message = response.body[:200].decode(errors="replace").strip() or "no message"
    if response.status == HTTPStatus.UNAUTHORIZED:
        message += "; for example --api-key-file FILE"
    raise InferenceError(f"{model} through {connection.peer} responds with {response.status}: {message}")


def _json(response: HttpResponse) -> Any:
    try:
        return json.loads(response.body)
    except ValueError:
        raise InferenceError(f"not a response of Triton: {response.body[:80]!r}") from None


def _plain(array: Array) -> list[Any]:
    """Return the values of a tensor for JSON: NaN and infinities by name, and bytes that aren't text as base64."""
    values: list[Any] = np.asarray(array).ravel().tolist()
    return [
        _text(value)
        if isinstance(value, bytes)
        else _NAMES.get(str(value), value)
        if isinstance(value, float)
        else value
        for value in values
    ]


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
