"""Conversion of rows to the tensors of a request, and of an answer to the outputs of its rows. Pure.

Out of scope: functions of the user (`functions`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halcyon_batch.errors import RowError
from halcyon_batch.input_data import Sample
from halcyon_measure.inputs.payloads import Payload
from halcyon_measure.inputs.tensors import Array, InputFile, ModelInput, array_of, fit, is_request, tensors

RowTensors = Mapping[str, Array]
"""Tensors of one row by input name. If the model supports batching, their first dimension is 1."""


@dataclass(frozen=True)
class BatchModel:
    """Inputs of a model, which the rows of a data set must fit."""

    inputs: tuple[ModelInput, ...]
    is_batched: bool
    """Whether the first dimension of the inputs is the number of rows."""
    optional: frozenset[str] = frozenset()
    """Names of the inputs that a row may omit."""


def row_tensors(sample: Sample, model: BatchModel) -> RowTensors:
    """Return the tensors of a row if the user has no function `prepare`.

    Raises:
        TensorError, RowError, OSError: the row doesn't fit the model's inputs.
    """
    if isinstance(sample.value, str):
        file = InputFile(sample.value, Path(sample.value).read_bytes())
        return _single(tensors([file], model.inputs, optional=lambda: model.optional), model)
    return fitted(value_of(sample), model)


def value_of(sample: Sample) -> Any:
    """Return a row in the form for the user's function: the path of a file, arrays by name, or a line's JSON value.

    Raises:
        RowError: the line isn't JSON.
    """
    if not isinstance(sample.value, bytes):
        arrays = sample.value
        return arrays[""] if isinstance(arrays, dict) and [*arrays] == [""] else arrays
    try:
        return json.loads(sample.value)
    except (ValueError, RecursionError) as error:
        raise RowError(f"not JSON: {error}") from None


def fitted(value: Any, model: BatchModel) -> RowTensors:
    """Return the tensors of a row from its values, and check that they fit the model.

    The values are given by input name, as the value of the only input, or as a request in the form of KServe v2.

    Raises:
        TensorError, RowError: the values don't fit the model's inputs.
    """
    inputs = model.inputs
    if is_request(value, inputs):
        try:
            value = {
                str(tensor["name"]): array_of(tensor["data"]).reshape(tensor["shape"]) for tensor in value["inputs"]
            }
        except (KeyError, TypeError, ValueError) as error:
            raise RowError(f"inputs has no valid tensor: {error!r}") from None
    if not isinstance(value, dict):
        if len(inputs) != 1:
            names = ", ".join(model_input.name for model_input in inputs)
            raise RowError(
                f'it has no names, and the model has the inputs {names}; for example {{"{inputs[0].name}": [...]}}'
            )
        value = {inputs[0].name: value}
    inputs_by_name = {model_input.name: model_input for model_input in inputs}
    if value.keys() - inputs_by_name.keys() or inputs_by_name.keys() - value.keys() - model.optional:
        raise RowError(
            f"it has {', '.join(map(str, value)) or 'nothing'}; the model's inputs are {', '.join(inputs_by_name)}"
        )
    arrays = {}
    for name, values in value.items():
        try:
            array = array_of(values)
        except ValueError:
            raise RowError(f"input {name}: its lists have different lengths") from None
        if array.dtype == object and any(element is None for element in array.flat):
            # As a text it would be the word None.
            raise RowError(f"input {name} has a null; each value of a row must be present")
        arrays[name] = fit(array, inputs_by_name[name], f"input {name}")
    return _single(arrays, model)


def _single(arrays: RowTensors, model: BatchModel) -> RowTensors:
    if model.is_batched:
        for name, array in arrays.items():
            if array.shape[0] != 1:
                raise RowError(
                    f"input {name} has {array.shape[0]} rows; each row of the data set is one row of the model"
                )
    return arrays


def shape_of(row: RowTensors) -> tuple[Any, ...]:
    """Return a key of a row. Rows can be in the same request if their keys are equal."""
    return tuple((name, array.shape[1:]) for name, array in sorted(row.items()))


def payload(rows: Sequence[RowTensors]) -> Payload:
    """Return the request body for rows that have the same shape.

    More than one row is allowed only if the model supports batching.
    """
    if len(rows) == 1:
        return Payload(rows[0], 1)
    return Payload({name: np.concatenate([row[name] for row in rows]) for name in rows[0]}, len(rows))


def split(outputs: Mapping[str, Array], rows: int) -> list[Mapping[str, Array]]:
    """Return the outputs of each row in a request, with a first dimension of 1.

    If the request has only one row, its outputs are returned unchanged.

    Raises:
        RowError: an output has another number of rows than the request.
    """
    if rows == 1:
        return [outputs]
    for name, array in outputs.items():
        if not array.ndim or array.shape[0] != rows:
            raise RowError(f"output {name} has the shape {list(array.shape)} for a request of {rows} rows")
    return [{name: array[n : n + 1] for name, array in outputs.items()} for n in range(rows)]
