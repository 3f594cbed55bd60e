"""Payloads of a load: a bounded number of different requests, which are sent in turn.

Out of scope: reading files into tensors (`tensors`) and the bytes of a protocol (`protocols`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tritonclient.utils import triton_to_np_dtype

from halcyon_measure.errors import TensorError
from halcyon_measure.inputs.tensors import Array, InputFile, ModelInput, tensors

MAX_PAYLOADS = 64
MAX_BYTES = 256 * 2**20
"""Maximum total size of all payloads of one process, in bytes."""
MAX_ROWS = 4096
_ROWS = re.compile(r"(\d+)(?:\.\.(\d+))?")
_LETTERS = 16
_MAX_INTEGER = 100


@dataclass(frozen=True)
class Rows:
    """Number of rows of a request, from `least` to `most`. All numbers in this range are equally frequent."""

    least: int = 1
    most: int = 1

    @classmethod
    def parse(cls, text: str) -> Rows:
        """Parse a number of rows such as `8`, or a range such as `1..8`.

        Raises:
            TensorError: the text has neither form, or a number is out of range.
        """
        match = _ROWS.fullmatch(text.strip())
        least = int(match[1]) if match else 0
        most = int(match[2] or match[1]) if match else 0
        if not 1 <= least <= most <= MAX_ROWS:
            raise TensorError(f"rows is {text}; it must be 1 to {MAX_ROWS} or a range, for example 8 or 1..8")
        return cls(least, most)

    def __str__(self) -> str:
        return f"{self.least}" if self.least == self.most else f"{self.least}..{self.most}"


@dataclass(frozen=True)
class Payload:
    """Tensors of one request, by input name."""

    tensors: Mapping[str, Array]
    rows: int
    """Number of rows, the first dimension of the tensors; 1 if the model doesn't batch."""

    @property
    def size(self) -> int:
        """Size of the tensors in bytes."""
        return sum(array.nbytes for array in self.tensors.values())


def batches(inputs: Sequence[ModelInput]) -> bool:
    """Return True if the model batches: the first dimension of every input is the number of rows."""
    return bool(inputs) and all(model_input.shape and model_input.shape[0] == -1 for model_input in inputs)


def random_payloads(
    inputs: Sequence[ModelInput],
    *,
    rows: Rows,
    shapes: Mapping[str, tuple[int, ...]],
    seed: int,
) -> list[Payload]:
    """Return payloads with random values: floats from 0 to 1, integers from 0 to 99, strings of 16 letters.

    `shapes` contains the sizes of dimensions without the rows, for inputs whose metadata leaves them open. Optional
    inputs are omitted unless `shapes` contains them, because most are settings, for which random values make no sense.

    Raises:
        TensorError: a size is unknown, or the model accepts only one row.
    """
    _check_rows(inputs, rows)
    _check_names(inputs, shapes)
    rng = np.random.default_rng(seed)
    sizes = _sizes(rows, rng, MAX_PAYLOADS)
    # If all inputs are optional, a request still has to have some.
    sent = [
        model_input for model_input in inputs if not model_input.is_optional or model_input.name in shapes
    ] or inputs
    payloads: list[Payload] = []
    total = 0
    for count in sizes:
        tensor_shapes = {model_input.name: _shape(model_input, count, inputs, shapes) for model_input in sent}
        _check_size(sent, tensor_shapes)
        payloads.append(
            Payload(
                {model_input.name: _random(model_input, tensor_shapes[model_input.name], rng) for model_input in sent},
                count,
            )
        )
        total += payloads[-1].size
        if total > MAX_BYTES // 2:
            # Only whole rounds, if there is one: some numbers of rows would be missing.
            span = rows.most - rows.least + 1
            return payloads[: len(payloads) // span * span] or payloads
    return payloads


def file_payloads(
    samples: Sequence[Sequence[InputFile]],
    inputs: Sequence[ModelInput],
    *,
    rows: Rows,
    seed: int,
    pixel_scale: float | None = None,
) -> list[Payload]:
    """Return payloads from samples, each with the files of one request. A sample of one row is repeated to `rows` rows.

    There is one payload for each sample. With a range of rows, samples of one row are used several times, so that all
    numbers of rows are equally frequent.

    Raises:
        TensorError: a file doesn't fit its input, or the samples are larger than `MAX_BYTES`.
    """
    _check_rows(inputs, rows)
    span = rows.most - rows.least + 1
    sizes = _sizes(rows, np.random.default_rng(seed), -(-len(samples) // span) * span)
    payloads: list[Payload] = []
    has_single_row = False
    for index, count in enumerate(sizes):
        if index >= len(samples) and not has_single_row:
            break
        sample = samples[index % len(samples)]
        arrays = tensors(sample, inputs, pixel_scale=pixel_scale, optional=lambda: optional(inputs))
        if batches(inputs) and all(array.shape[0] == 1 for array in arrays.values()):
            has_single_row = True
            arrays = {name: np.repeat(array, count, axis=0) for name, array in arrays.items()}
        payloads.append(Payload(arrays, rows_of(arrays, inputs)))
        if (total := sum(payload.size for payload in payloads)) > MAX_BYTES:
            raise TensorError(
                f"the samples have {total / 2**20:.0f} MiB up to {sample[0].path}; at most {MAX_BYTES // 2**20} MiB are "
                "possible, for example a folder with fewer files"
            )
    return payloads


def optional(inputs: Sequence[ModelInput]) -> frozenset[str]:
    """Return the names of the inputs that a request may leave out."""
    return frozenset(model_input.name for model_input in inputs if model_input.is_optional)


def rows_of(arrays: Mapping[str, Array], inputs: Sequence[ModelInput]) -> int:
    """Return the number of rows of a request with these tensors."""
    return int(next(iter(arrays.values())).shape[0]) if batches(inputs) else 1


def _sizes(rows: Rows, rng: np.random.Generator, count: int) -> list[int]:
    """Return the numbers of rows for about `count` payloads: rounds that contain each number once, in random order."""
    span = rows.most - rows.least + 1
    # Only whole rounds: otherwise some sizes would be sent more often than others.
    order = rng.permutation(max(count // span, 1) * span).tolist()
    return [rows.least + n % span for n in sorted(order, key=lambda n: n // span)]


def _check_rows(inputs: Sequence[ModelInput], rows: Rows) -> None:
    if rows.most > 1 and not batches(inputs):
        fixed = next(
            (model_input for model_input in inputs if not model_input.shape or model_input.shape[0] != -1), None
        )
        reason = f"input {fixed.describe()} has no dimension of rows" if fixed else "the model has no inputs"
        raise TensorError(f"rows is {rows.most}, but {reason}; use --rows 1")


def _check_names(inputs: Sequence[ModelInput], shapes: Mapping[str, tuple[int, ...]]) -> None:
    names = {model_input.name for model_input in inputs}
    for name in shapes:
        if name not in names:
            raise TensorError(f"shape of {name}: the model has no such input; it has {', '.join(sorted(names))}")


def _shape(
    model_input: ModelInput, rows: int, inputs: Sequence[ModelInput], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[int, ...]:
    open_rows = batches(inputs)
    dims = model_input.shape[1:] if open_rows else model_input.shape
    shape = shapes.get(model_input.name)
    if shape is not None:
        if len(shape) != len(dims) or any(
            expected >= 0 and expected != actual for expected, actual in zip(dims, shape, strict=True)
        ):
            needed = ",".join("N" if dim < 0 else str(dim) for dim in dims) or "no size"
            example = ",".join("64" if dim < 0 else str(dim) for dim in dims)
            raise TensorError(
                f"shape of {model_input.name} is {','.join(map(str, shape))}, but {model_input.describe()} needs {needed}"
                f"{' after its rows (--rows)' if open_rows else ''}; "
                + (
                    f"for example --shape {model_input.name}={example}"
                    if dims
                    else f"leave --shape {model_input.name} out"
                )
            )
        dims = shape
    elif any(dim < 0 for dim in dims):
        example = ",".join("64" if dim < 0 else str(dim) for dim in dims)
        raise TensorError(
            f"input {model_input.describe()} has a dimension of any size; give one, for example --shape {model_input.name}={example}"
        )
    return (rows, *dims) if open_rows else tuple(dims)


def _check_size(inputs: Sequence[ModelInput], tensor_shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check that the tensors of a request aren't larger than `MAX_BYTES`, before memory is allocated."""
    sizes = {
        model_input.name: math.prod(tensor_shapes[model_input.name]) * _element_bytes(model_input.datatype)
        for model_input in inputs
    }
    if sum(sizes.values()) > MAX_BYTES:
        largest = max(inputs, key=lambda model_input: sizes[model_input.name])
        raise TensorError(
            f"a request has {sum(sizes.values()) / 2**20:.0f} MiB, of which input {largest.describe()} with the shape "
            f"{list(tensor_shapes[largest.name])} has most; at most {MAX_BYTES // 2**20} MiB are possible, for example --rows 1, "
            "or --shape with smaller sizes"
        )


def _element_bytes(datatype: str) -> int:
    if datatype == "BYTES":
        return _LETTERS
    kind: Any = triton_to_np_dtype(datatype)
    return 1 if kind is None else int(np.dtype(kind).itemsize)


def _random(model_input: ModelInput, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if model_input.datatype == "BYTES":
        letters = rng.integers(97, 123, (int(np.prod(shape)), _LETTERS), dtype=np.uint8)
        return np.array([row.tobytes() for row in letters], dtype=np.object_).reshape(shape)
    if model_input.datatype == "BOOL":
        return rng.integers(0, 2, shape).astype(np.bool_)
    kind: Any = np.float32 if model_input.datatype == "BF16" else triton_to_np_dtype(model_input.datatype)
    if kind is None:
        raise TensorError(
            f"input {model_input.describe()} has an unknown data type; give values, for example --input x.npy"
        )
    if np.dtype(kind).kind == "f":
        return rng.random(shape).astype(kind)
    return rng.integers(0, min(_MAX_INTEGER, int(np.iinfo(kind).max)), shape).astype(kind)
