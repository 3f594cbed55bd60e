"""One inference in KServe's v2 protocol, by Triton's own client, on a connection that times it. Not here: the connection (`wire`)."""

from __future__ import annotations

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
from halcyon_cli.infer.connection import HttpAnswer, Phases, Wire
from halcyon_cli.infer.tensors import Array, File, tensors, wanted

_LENGTH = "inference-header-content-length"
"""Header that tells where Triton's JSON ends and its binary part begins."""


class InferenceError(Failure):
    """The model, or the balancer before it, answers with an error."""


@dataclass(frozen=True)
class Inferred:
    """What a model has answered."""

    model: str
    version: str
    outputs: tuple[tuple[str, str, Array], ...]
    """(name, Triton's type, values)."""
    phases: Phases

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; values in a flat list, as the protocol has them."""
        return {
            "model": self.model,
            "version": self.version,
            "seconds": {**asdict(self.phases), "total": self.phases.total},
            "outputs": [
                {"name": name, "datatype": kind, "shape": list(array.shape), "data": _plain(array)}
                for name, kind, array in self.outputs
            ],
        }


def ask(
    wire: Wire,
    model: str,
    version: str | None,
    files: Sequence[tuple[str | None, str, bytes]],
    *,
    pixel_scale: float | None = None,
) -> Inferred:
    """Ask what the model takes, make tensors of (input, path, content), and send them; a model at zero is woken first.

    Raises:
        InputError: the files aren't what the model takes.
        NoAnswer: none came, or not in time.
        Refused: it was an error.
    """
    path = f"/v2/models/{quote(model)}" + (f"/versions/{quote(version)}" if version else "")
    described, metadata = _described(wire, path, model)
    found = tensors(
        [File(where, content, name) for name, where, content in files], wanted(metadata), pixel_scale=pixel_scale
    )
    inputs = []
    for one in wanted(metadata):
        tensor = triton.InferInput(one.name, list(found[one.name].shape), one.datatype)
        tensor.set_data_from_numpy(found[one.name])
        inputs.append(tensor)
    body, length = triton.InferenceServerClient.generate_request_body(inputs)
    headers = {"Content-Type": "application/octet-stream"} | ({_LENGTH: str(length)} if length is not None else {})
    answer = _good(wire.ask("POST", f"{path}/infer", bytes(body), headers), wire, model)
    told = int(answer.headers[_LENGTH]) if _LENGTH in answer.headers else None
    try:
        result = triton.InferenceServerClient.parse_response_body(answer.body, header_length=told)
        response = result.get_response()
        outputs = tuple((str(o["name"]), str(o["datatype"]), result.as_numpy(o["name"])) for o in response["outputs"])
    except (InferenceServerException, ValueError, KeyError, TypeError) as error:
        raise InferenceError(f"{wire.who} answers with no inference of KServe's v2 protocol: {error!r}") from None
    # The connection was made for the first request.
    phases = Phases(described.phases.connect, answer.phases.send, answer.phases.wait, answer.phases.receive)
    return Inferred(str(response.get("model_name", model)), str(response.get("model_version", "")), outputs, phases)


def _described(wire: Wire, path: str, model: str) -> tuple[HttpAnswer, Any]:
    first = wire.ask("GET", path)
    if first.status != HTTPStatus.SERVICE_UNAVAILABLE:
        return first, _json(_good(first, wire, model))
    # At zero a balancer says so at once, and starts nothing for it. An inference it holds until there is a pod, which refuses this one.
    woke = wire.ask("POST", f"{path}/infer", b"{}", {"Content-Type": "application/json"})
    if woke.status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
        _good(woke, wire, model)
    return first, _json(_good(wire.ask("GET", path), wire, model))


def _good(answer: HttpAnswer, wire: Wire, model: str) -> HttpAnswer:
    if answer.status < 400:
        return answer
    try:
        said = str(json.loads(answer.body)["error"])
    except (ValueError, KeyError, TypeError):
        said = answer.body[:200].decode(errors="replace").strip() or "nothing more"
    raise InferenceError(f"{model} through {wire.who} answers {answer.status}: {said}")


def _json(answer: HttpAnswer) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError:
        raise InferenceError(f"what answers is no Triton: {answer.body[:80]!r}") from None


def _plain(array: Array) -> list[Any]:
    values: list[Any] = np.asarray(array).ravel().tolist()
    return [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values]
