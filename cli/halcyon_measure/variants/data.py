"""Rows on which variants are compared and calibrated, read from .npz files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halcyon_measure.errors import ModelError
from halcyon_measure.inputs import array_file
from halcyon_measure.results.sections.static import TensorShape

Arrays = Mapping[str, np.ndarray[Any, Any]]
LABELS = "labels"
MIN_CALIBRATION_ROWS = 10
"""Minimum number of rows for calibration, which determines the ranges of activations."""
MAX_CALIBRATION_ROWS = 256
_DTYPES: Mapping[str, str] = {
    "FP32": "float32", "FP16": "float16", "FP64": "float64", "BOOL": "bool",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
}  # fmt: skip


@dataclass(frozen=True)
class LabelledRows:
    """Rows of the model's inputs by name, with one label per row if labels are given."""

    inputs: Arrays
    labels: np.ndarray[Any, Any] | None
    all: Arrays
    """All arrays of the file, for the user's scoring function."""

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def part(self, begin: int, end: int | None) -> LabelledRows:
        """Return the rows from `begin` up to, but not including, `end`."""
        rows = len(self)
        arrays = {
            name: array[begin:end] if array.ndim and len(array) == rows else array for name, array in self.all.items()
        }
        labels = None if self.labels is None else self.labels[begin:end]
        return LabelledRows({name: arrays[name] for name in self.inputs}, labels, arrays)


def read(path: Path, shapes: Sequence[TensorShape], *, labels: str = "") -> LabelledRows:
    """Read the rows of a file.

    `labels` is the name of the array with the labels. If it is empty, the array `LABELS` is used if the file has it.

    Raises:
        ModelError: the file isn't an .npz file, or an array doesn't fit the model.
    """
    try:
        arrays = array_file.arrays(path)
    except ValueError as error:
        raise ModelError(
            f"{path}: not an .npz file: {error}; numpy.savez('val.npz', NAME=array, labels=array) writes one"
        ) from None
    inputs = {shape.name: _fitting(path, shape, arrays) for shape in shapes}
    rows = {len(array) for array in inputs.values()}
    if len(rows) != 1 or not min(rows):
        counts = ", ".join(f"{name} {len(array)}" for name, array in inputs.items())
        raise ModelError(f"{path}: its inputs must have the same number of rows, at least one; they have {counts}")
    return LabelledRows(inputs, _labels(path, arrays, labels, next(iter(rows))), arrays)


def split(path: Path, rows: LabelledRows, calibration: LabelledRows | None) -> tuple[LabelledRows, LabelledRows]:
    """Return the rows for the comparison and the rows for calibration.

    If there is no calibration file, a quarter of the rows is used for calibration.

    Raises:
        ModelError: there are too few rows for comparison or calibration.
    """
    if calibration is not None:
        if len(calibration) < MIN_CALIBRATION_ROWS:
            raise ModelError(_too_few_rows(path, len(calibration)))
        return rows, calibration.part(0, MAX_CALIBRATION_ROWS)
    count = min(len(rows) // 4, MAX_CALIBRATION_ROWS)
    if count < MIN_CALIBRATION_ROWS:
        raise ModelError(
            f"{path}: a quarter of its {len(rows)} rows would calibrate, {count}; it must be at least {MIN_CALIBRATION_ROWS}: "
            f"give {4 * MIN_CALIBRATION_ROWS} rows, or others by --calibration train.npz"
        )
    return rows.part(count, None), rows.part(0, count)


def _too_few_rows(path: Path, count: int) -> str:
    rows = "1 row" if count == 1 else f"{count} rows"
    return f"{path}: it has {rows} to calibrate with; at least {MIN_CALIBRATION_ROWS} are needed, for example 100"


def _fitting(path: Path, shape: TensorShape, arrays: Arrays) -> np.ndarray[Any, Any]:
    array = arrays.get(shape.name)
    if array is None:
        raise ModelError(
            f"{path}: no array {shape.name}, which is an input of the model; it has {', '.join(arrays) or 'none'}"
        )
    if not shape.shape:
        raise ModelError(
            f"{path}: input {shape.name} of the model is a single number without rows; variants of it aren't made. Export "
            f"the model with rows of {shape.name}, for example of the shape [batch, 1]"
        )
    dtype = _DTYPES.get(shape.datatype)
    if dtype is None:
        raise ModelError(f"{path}: input {shape.name} has the type {shape.datatype}; variants of it aren't made")
    expected = f"{dtype} [{', '.join(shape.shape)}]"
    fits = array.ndim == len(shape.shape) and all(
        not size.isdigit() or int(size) == length for size, length in zip(shape.shape[1:], array.shape[1:], strict=True)
    )
    if not fits or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ModelError(
            f"{path}: array {shape.name} is {array.dtype} {list(array.shape)}; the model's input is {expected}"
        )
    return array.astype(dtype)


def _labels(path: Path, arrays: Arrays, name: str, rows: int) -> np.ndarray[Any, Any] | None:
    labels = arrays.get(name or LABELS)
    if labels is None:
        if name:
            raise ModelError(f"{path}: no array {name} with labels; it has {', '.join(arrays)}")
        return None
    labels = labels.squeeze(axis=-1) if labels.ndim == 2 and labels.shape[-1] == 1 else labels
    if labels.shape != (rows,) or not np.issubdtype(labels.dtype, np.integer):
        raise ModelError(
            f"{path}: array {name or LABELS} is {labels.dtype} {list(labels.shape)}; labels must be {rows} whole numbers, one for a row"
        )
    return labels
