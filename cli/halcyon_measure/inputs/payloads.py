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
"""Maximum memory of all payloads of one process, in bytes."""
MAX_ROWS = 4096
_ROWS = re.compile(r"(\d+)(?:\.\.(\d+))?")
_LETTERS = 16
_MAX_INTEGER = 100


@dataclass(frozen=True)
class Rows:
    """Range of the number of rows of a request, from `least` to `most`. All numbers in it are equally frequent."""

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

    `shapes` has the sizes of the dimensions without the rows, for inputs whose metadata leaves them open. Optional
    inputs are left out unless they have a shape there, because most are settings, for which random values make no sense.

    Raises:
        TensorError: a size is unknown, or the model accepts only one row.
    """
    _check_rows(inputs, rows)
    _check_names(inputs, shapes)
    rng = np.random.default_rng(seed)
    sizes = _sizes(rows, rng)
    # If all inputs are optional, a request still has to have some.
    sent = [one for one in inputs if not one.is_optional or one.name in shapes] or inputs
    made: list[Payload] = []
    for count in sizes:
        sized = {one.name: _shape(one, count, inputs, shapes) for one in sent}
        _check_size(sent, sized)
        made.append(Payload({one.name: _random(one, sized[one.name], rng) for one in sent}, count))
        if sum(payload.size for payload in made) > MAX_BYTES // 2:
            break
    return made


def file_payloads(
    samples: Sequence[Sequence[InputFile]],
    inputs: Sequence[ModelInput],
    *,
    rows: Rows,
    seed: int,
    pixel_scale: float | None = None,
) -> list[Payload]:
    """Return a payload for each sample, the files of one request. A sample of one row is repeated to `rows` rows.

    Raises:
        TensorError: a file doesn't fit its input, or the samples are larger than `MAX_BYTES`.
    """
    _check_rows(inputs, rows)
    rng = np.random.default_rng(seed)
    sizes = _sizes(rows, rng)
    made: list[Payload] = []
    for index, sample in enumerate(samples):
        arrays = tensors(sample, inputs, pixel_scale=pixel_scale, optional=lambda: optional(inputs))
        if batches(inputs) and all(array.shape[0] == 1 for array in arrays.values()):
            count = sizes[index % len(sizes)]
            arrays = {name: np.repeat(array, count, axis=0) for name, array in arrays.items()}
        made.append(Payload(arrays, rows_of(arrays, inputs)))
        if (total := sum(payload.size for payload in made)) > MAX_BYTES:
            raise TensorError(
                f"the samples have {total / 2**20:.0f} MiB up to {sample[0].path}; at most {MAX_BYTES // 2**20} MiB are "
                "possible, for example a folder with fewer files"
            )
    return made


def optional(inputs: Sequence[ModelInput]) -> frozenset[str]:
    """Return the names of the inputs that a request may leave out."""
    return frozenset(one.name for one in inputs if one.is_optional)


def rows_of(arrays: Mapping[str, Array], inputs: Sequence[ModelInput]) -> int:
    """Return the number of rows of a request with these tensors."""
    return int(next(iter(arrays.values())).shape[0]) if batches(inputs) else 1


def _sizes(rows: Rows, rng: np.random.Generator) -> list[int]:
    """Return the number of rows of each payload, in random order."""
    span = rows.most - rows.least + 1
    count = max(MAX_PAYLOADS, span)
    # Only whole rounds: otherwise some sizes would be sent more often than others.
    sizes = [rows.least + n % span for n in range(max(count // span, 1) * span)]
    return [sizes[int(n)] for n in rng.permutation(len(sizes))]


def _check_rows(inputs: Sequence[ModelInput], rows: Rows) -> None:
    if rows.most > 1 and not batches(inputs):
        fixed = next((one for one in inputs if not one.shape or one.shape[0] != -1), None)
        reason = f"input {fixed.describe()} has no dimension of rows" if fixed else "the model has no inputs"
        raise TensorError(f"rows is {rows.most}, but {reason}; use --rows 1")


def _check_names(inputs: Sequence[ModelInput], shapes: Mapping[str, tuple[int, ...]]) -> None:
    known = {one.name for one in inputs}
    for name in shapes:
        if name not in known:
            raise TensorError(f"shape of {name}: the model has no such input; it has {', '.join(sorted(known))}")


def _shape(
    one: ModelInput, rows: int, inputs: Sequence[ModelInput], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[int, ...]:
    open_rows = batches(inputs)
    dims = one.shape[1:] if open_rows else one.shape
    given = shapes.get(one.name)
    if given is not None:
        if len(given) != len(dims) or any(want >= 0 and want != has for want, has in zip(dims, given, strict=True)):
            must = ",".join("N" if dim < 0 else str(dim) for dim in dims) or "no size"
            example = ",".join("64" if dim < 0 else str(dim) for dim in dims)
            raise TensorError(
                f"shape of {one.name} is {','.join(map(str, given))}, but {one.describe()} needs {must}"
                f"{' after its rows (--rows)' if open_rows else ''}; "
                + (f"for example --shape {one.name}={example}" if dims else f"leave --shape {one.name} out")
            )
        dims = given
    elif any(dim < 0 for dim in dims):
        example = ",".join("64" if dim < 0 else str(dim) for dim in dims)
        raise TensorError(
            f"input {one.describe()} has a dimension of any size; give one, for example --shape {one.name}={example}"
        )
    return (rows, *dims) if open_rows else tuple(dims)


def _check_size(inputs: Sequence[ModelInput], sized: Mapping[str, tuple[int, ...]]) -> None:
    """Check that the tensors of a request aren't larger than `MAX_BYTES`, before any memory is taken."""
    sizes = {one.name: math.prod(sized[one.name]) * _element_bytes(one.datatype) for one in inputs}
    if sum(sizes.values()) > MAX_BYTES:
        largest = max(inputs, key=lambda one: sizes[one.name])
        raise TensorError(
            f"a request has {sum(sizes.values()) / 2**20:.0f} MiB, of which input {largest.describe()} with the shape "
            f"{list(sized[largest.name])} has most; at most {MAX_BYTES // 2**20} MiB are possible, for example --rows 1, "
            "or --shape with smaller sizes"
        )


def _element_bytes(datatype: str) -> int:
    if datatype == "BYTES":
        return _LETTERS
    kind: Any = triton_to_np_dtype(datatype)
    return 1 if kind is None else int(np.dtype(kind).itemsize)


def _random(one: ModelInput, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if one.datatype == "BYTES":
        letters = rng.integers(97, 123, (int(np.prod(shape)), _LETTERS), dtype=np.uint8)
        return np.array([row.tobytes() for row in letters], dtype=np.object_).reshape(shape)
    if one.datatype == "BOOL":
        return rng.integers(0, 2, shape).astype(np.bool_)
    kind: Any = np.float32 if one.datatype == "BF16" else triton_to_np_dtype(one.datatype)
    if kind is None:
        raise TensorError(f"input {one.describe()} has an unknown data type; give values, for example --input x.npy")
    if np.dtype(kind).kind == "f":
        return rng.random(shape).astype(kind)
    return rng.integers(0, min(_MAX_INTEGER, int(np.iinfo(kind).max)), shape).astype(kind)
