"""The inference request with which the agent tests a backend, built from a model's configuration. Pure.

The request has zeros in the inputs of the model's first warm-up request, or in the model's inputs. It fills a whole
batch, so that no client's request can be in the same batch. Out of scope: what its result proves (`backend_probe`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from halcyon.triton.client import parse_facts

MAX_PROBE_BYTES = 8 * 2**20
"""Maximum size of the tensors in a probe of a backend, in bytes. If a whole batch is larger, a single row is sent,
whose failure is weaker evidence that the backend is dead."""
MAX_PROBED_INSTANCES = 8
"""Maximum number of instances for which a pod gets probes of their own."""
_BYTES = {"BOOL": 1, "INT8": 1, "UINT8": 1, "INT16": 2, "UINT16": 2, "FP16": 2, "BF16": 2, "INT32": 4, "UINT32": 4}
_BYTES |= {"FP32": 4, "STRING": 4, "INT64": 8, "UINT64": 8, "FP64": 8}
"""Size of a zero value in bytes, by data type. For strings, it is the size of the length field of an empty string."""
_JSON_BYTES = 7
"""Maximum size of a zero value in a JSON list, in bytes."""


@dataclass(frozen=True)
class Probe:
    """Inference request that the agent sends to test a backend."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    is_alone: bool
    """Whether the probe fills its batch, so that no client's request can be in the same batch."""
    instances: int
    """Number of instances of the model in the pod."""
    rows: int = 1
    """Number of rows of the probe."""


class _Tensor(NamedTuple):
    """An input with zeros."""

    name: str
    datatype: str
    shape: list[int]
    size: int
    """Size in the request, in bytes. It is a maximum for JSON."""


def build(config: Mapping[str, Any], *, rows: int | None = None) -> Probe | None:
    """Build the probe of a model from its configuration, as Triton returns it.

    Return None if no probe can be built. `rows` is the number of rows in the probe of a model with batching. If it is
    None, the probe fills a whole batch.
    """
    most = int(config.get("max_batch_size") or 0)
    facts, has_sequences = parse_facts(config), "sequence_batching" in config
    if facts.decoupled and has_sequences:
        return None  # `generate_stream` has no sequences
    rows = max(1, min(most, _most_rows(config) if rows is None else min(rows, _most_rows(config))))
    tensors = _tensors(config, rows, in_json=facts.decoupled)
    if not tensors:
        return None
    if sum(tensor.size for tensor in tensors) > MAX_PROBE_BYTES:
        return None if rows == 1 else build(config, rows=1)
    path, headers, body = _stream_request(tensors) if facts.decoupled else _request(config, tensors)
    merges = most > 1 and (has_sequences or "dynamic_batching" in config)
    return Probe(
        path,
        headers,
        body,
        is_alone=not merges or rows == most,
        instances=min(facts.instances, MAX_PROBED_INSTANCES),
        rows=rows,
    )


def _most_rows(config: Mapping[str, Any]) -> int:
    """Return the largest number of rows that a probe may have.

    A sequence's request has one row. `generate_stream`, the endpoint of decoupled models, takes several rows of variable
    length for one.
    """
    varies = any(int(length) < 0 for tensor in config.get("input") or () for length in tensor.get("dims") or ())
    if "sequence_batching" in config or (parse_facts(config).decoupled and varies):
        return 1
    return int(config.get("max_batch_size") or 0)


def _tensors(config: Mapping[str, Any], rows: int, *, in_json: bool) -> list[_Tensor]:
    """Return the required inputs of a request with this number of rows; empty if one has an unknown data type."""
    tensors = []
    for name, datatype, dims in _inputs(config):
        if datatype not in _BYTES:
            return []
        shape = ([rows] if int(config.get("max_batch_size") or 0) else []) + [
            1 if length < 0 else length for length in dims
        ]
        size = prod(shape) * (_JSON_BYTES if in_json else _BYTES[datatype])
        tensors.append(_Tensor(name, "BYTES" if datatype == "STRING" else datatype, shape, size))
    return tensors


def _stream_request(tensors: list[_Tensor]) -> tuple[str, Mapping[str, str], bytes]:
    """Return the path, headers and body for a decoupled model, for which Triton rejects `infer`."""
    zero: dict[str, Any] = {"BYTES": "", "BOOL": False}
    zeros = {tensor.name: [zero.get(tensor.datatype, 0)] * prod(tensor.shape) for tensor in tensors}
    values = {name: listed if len(listed) > 1 else listed[0] for name, listed in zeros.items()}
    return "generate_stream", {}, json.dumps(values).encode()


def _request(config: Mapping[str, Any], tensors: list[_Tensor]) -> tuple[str, Mapping[str, str], bytes]:
    """Return the path, headers and body for a model that gives one response to each request."""
    inputs = [
        {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}
        for name, datatype, shape, size in tensors
    ]
    parameters: dict[str, Any] = {"binary_data_output": True}
    if "sequence_batching" in config:
        number: int | str = random.randrange(2**62, 2**63)  # noqa: S311 - only has to differ from clients' sequences
        # Only the id can be a text. Triton 2.51 accepts a text of 128 characters: it takes the zeros behind a shorter one for more texts.
        if "TYPE_STRING" in json.dumps(config["sequence_batching"].get("control_input")):
            number = f"{number:0128}"
        parameters |= {"sequence_id": number, "sequence_start": True, "sequence_end": True}
    head = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}
    return "infer", headers, head + bytes(sum(tensor.size for tensor in tensors))


def may_share_batches(config: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]], rows: int) -> bool:
    """Return whether a probe with this number of rows may be in one batch with clients' requests in another model.

    `config` is the configuration of the served model, and `others` are those of the pod's other models, by name. If the
    probe has enough rows, it fills each batch of the ensemble's direct steps. The number of rows that a Python model
    passes on is unknown.
    """
    steps = {step.get("model_name") for step in (config.get("ensemble_scheduling") or {}).get("step") or ()}
    for name, other in others.items():
        most = int(other.get("max_batch_size") or 0)
        merges = "sequence_batching" in other or (most > 1 and "dynamic_batching" in other)
        if merges and ("sequence_batching" in other or name not in steps or most > rows):
            return True
    return False


def _inputs(config: Mapping[str, Any]) -> list[tuple[str, str, list[int]]]:
    """Return the name, data type and dimensions of each required input.

    They come from the first warm-up request, limited to inputs of the model. Without a warm-up request, they are the
    model's inputs.
    """
    inputs = config.get("input") or ()
    warmups = [w.get("inputs") for w in config.get("model_warmup") or () if w.get("inputs")]
    names = {tensor["name"] for tensor in inputs}
    listed = [{"name": n, **tensor} for n, tensor in warmups[0].items() if n in names] if warmups else inputs
    return [
        (str(t["name"]), str(t.get("data_type")).removeprefix("TYPE_"), [int(length) for length in t.get("dims") or ()])
        for t in listed
        if not t.get("optional")
    ]
