"""Input data of perf_analyzer: the payloads of a load in its JSON format. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from halcyon_measure.errors import TensorError
from halcyon_measure.inputs.payloads import Payload, batches
from halcyon_measure.inputs.tensors import Array, ModelInput, raw_content

MAX_BYTES = 32 << 20
"""Maximum size of the tensors in the data file, in bytes."""


def text(payloads: Sequence[Payload], inputs: Sequence[ModelInput]) -> tuple[str, int]:
    """Return the JSON text, and the number of payloads that it contains: as many as `MAX_BYTES` allows, but at least one.

    perf_analyzer makes a request of several rows from as many entries. So each row of a payload is an entry.

    Raises:
        TensorError: perf_analyzer can't send a value.
    """
    datatypes = {model_input.name: model_input.datatype for model_input in inputs}
    entries: list[dict[str, Any]] = []
    total = count = 0
    for payload in payloads:
        total += payload.size
        if count and total > MAX_BYTES:
            break
        count += 1
        rows = range(payload.rows) if batches(inputs) else [None]
        entries += [
            {
                name: _tensor(name, array if row is None else array[row], datatypes[name])
                for name, array in payload.tensors.items()
            }
            for row in rows
        ]
    return json.dumps({"data": entries}), count


def common_rows(payloads: Sequence[Payload]) -> int:
    """Return the number of rows of each payload.

    Raises:
        TensorError: the payloads have different numbers of rows.
    """
    numbers = sorted({payload.rows for payload in payloads})
    if len(numbers) > 1:
        raise TensorError(
            f"--engine perf_analyzer: the inputs have requests of {numbers[0]} to {numbers[-1]} rows, and perf_analyzer sends the "
            "same number of rows in each request; give inputs with one number of rows, or leave --engine out"
        )
    return numbers[0]


def _tensor(name: str, array: Array, datatype: str) -> dict[str, Any]:
    """Return one tensor without the dimension of the rows."""
    values = np.asarray(array)
    shape = {"shape": list(values.shape)} if values.shape else {}
    if datatype == "BF16":
        raise TensorError(f"input {name} is BF16, which perf_analyzer can't send; leave --engine out")
    if datatype == "BYTES":
        return {"content": [_string(name, value) for value in values.reshape(-1).tolist()], **shape}
    return {"b64": base64.b64encode(raw_content(np.ascontiguousarray(values), datatype)).decode(), **shape}


def _string(name: str, value: Any) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        raise TensorError(
            f"input {name} has a string that isn't UTF-8, which perf_analyzer can't send; leave --engine out"
        ) from None
