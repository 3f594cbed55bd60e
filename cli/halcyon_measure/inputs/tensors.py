"""Conversion of files to input tensors, using the model's metadata. Pure, except for decoding images.

Out of scope: sending the tensors (`protocols`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tritonclient.utils import serialize_byte_tensor, triton_to_np_dtype

from halcyon_measure.errors import TensorError
from halcyon_measure.inputs import array_file

Array = npt.NDArray[Any]
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
_EXACT = 2**53
"""Number up to which a 64-bit float can represent every integer."""
_CHANNELS = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class ModelInput:
    """An input of a model, from its metadata."""

    name: str
    datatype: str
    """Triton data type, for example FP32."""
    shape: tuple[int, ...]
    """Shape; -1 means any size. It includes the batch dimension if the model supports batching."""
    is_optional: bool = False
    """Whether a request may omit the input, according to the model's configuration."""

    def describe(self) -> str:
        """Return a description such as `pixels FP32[-1, 64]`."""
        return f"{self.name} {self.datatype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class InputFile:
    """File with values for an input. `name` is the name of the input, or None if the name isn't given."""

    path: str
    content: bytes
    name: str | None = None


def raw_content(array: Array, kind: str) -> bytes:
    """Return the values of a tensor in the binary form of KServe v2."""
    if kind == "BYTES":
        return bytes(serialize_byte_tensor(np.asarray(array, dtype=np.object_)).item()) if array.size else b""
    if kind == "BF16":
        # The upper half of each FP32, as Triton's own clients do it.
        return bytes((np.asarray(array, dtype="<f4").view("<u4") >> 16).astype("<u2").tobytes())
    return bytes(array.tobytes())


def binary_body(arrays: Mapping[str, Array], inputs: Sequence[ModelInput]) -> tuple[bytes, int]:
    """Return the body of a KServe v2 request with binary inputs and outputs, and the length of its JSON part."""
    contents = {
        model_input.name: raw_content(arrays[model_input.name], model_input.datatype)
        for model_input in inputs
        if model_input.name in arrays
    }
    described = [
        {
            "name": model_input.name,
            "shape": list(arrays[model_input.name].shape),
            "datatype": model_input.datatype,
            "parameters": {"binary_data_size": len(contents[model_input.name])},
        }
        for model_input in inputs
        if model_input.name in arrays
    ]
    document = json.dumps({"inputs": described, "parameters": {"binary_data_output": True}}).encode()
    return b"".join((document, *contents.values())), len(document)


def model_inputs(metadata: Mapping[str, Any]) -> tuple[ModelInput, ...]:
    """Return the model's inputs from Triton's model metadata."""
    return tuple(
        ModelInput(str(entry["name"]), str(entry["datatype"]), tuple(map(int, entry["shape"])))
        for entry in metadata["inputs"]
    )


def tensors(
    files: Sequence[InputFile],
    inputs: Sequence[ModelInput],
    *,
    pixel_scale: float | None = None,
    optional: Callable[[], Collection[str]] = frozenset,
) -> dict[str, Array]:
    """Return a tensor for every input, with its data type and shape. `pixel_scale` is the value of a white pixel.

    `optional` returns the names of the inputs that a request may leave out. It is called only if an input has no file.

    Raises:
        TensorError: a file doesn't fit; the message has the file, the input, and the actual and required values.
    """
    inputs_by_name = {model_input.name: model_input for model_input in inputs}
    arrays: dict[str, Array] = {}
    for file in files:
        for name, array in _read(file, inputs, pixel_scale).items():
            if name not in inputs_by_name:
                raise TensorError(f"{file.path}: the model has no input {name}; it has {_describe(inputs)}")
            if name in arrays:
                raise TensorError(f"{file.path}: input {name} is given twice")
            arrays[name] = fit(array, inputs_by_name[name], file.path)
    missing = [model_input for model_input in inputs if model_input.name not in arrays]
    left_out = optional() if missing else ()
    if missing := [model_input for model_input in missing if model_input.name not in left_out]:
        example = f"--input {missing[0].name}=FILE.npy"
        raise TensorError(f"no file for {_describe(missing)}; for example {example}")
    return arrays


def _read(file: InputFile, inputs: Sequence[ModelInput], pixel_scale: float | None) -> Mapping[str, Array]:
    suffix = file.path[file.path.rfind(".") :].lower()
    if suffix == ".json":
        return _json(file, inputs)
    if suffix not in {".npy", ".npz", *IMAGE_SUFFIXES}:
        raise TensorError(
            f"{file.path}: unknown file type; use .npy, .npz, .json or an image ({', '.join(IMAGE_SUFFIXES)})"
        )
    if suffix in IMAGE_SUFFIXES:
        model_input = _single_input(file, inputs)
        return {model_input.name: _image(file, model_input, pixel_scale)}
    try:
        arrays = array_file.arrays(io.BytesIO(file.content))
    except ValueError as error:
        raise TensorError(f"{file.path}: not a NumPy array: {error}; numpy.save('x.npy', array) writes one") from None
    return {_single_input(file, inputs).name: arrays[""]} if [*arrays] == [""] else arrays


def _json(file: InputFile, inputs: Sequence[ModelInput]) -> Mapping[str, Array]:
    """Parse a KServe v2 request, an object with values by input name, or the values of the only input."""
    try:
        document = json.loads(file.content)
    except (ValueError, RecursionError) as error:
        raise TensorError(f"{file.path}: invalid JSON: {error}") from None
    if is_request(document, inputs):
        try:
            return {
                str(tensor["name"]): _array(tensor["data"], file).reshape(tensor["shape"])
                for tensor in document["inputs"]
            }
        except (KeyError, TypeError, ValueError) as error:
            raise TensorError(
                f"{file.path}: inputs contains no valid tensor ({error!r}); a tensor is for example "
                '{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0, 1]}'
            ) from None
    if isinstance(document, dict):
        return {str(name): _array(values, file) for name, values in document.items()}
    return {_single_input(file, inputs).name: _array(document, file)}


def is_request(document: Any, inputs: Sequence[ModelInput]) -> bool:
    """Return whether a JSON value is a KServe v2 request, and not an object with values by input name.

    Both may have a field `inputs` with a list, because a model may have an input with this name.
    """
    listed = document.get("inputs") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        return False
    is_named_so = any(model_input.name == "inputs" for model_input in inputs)
    return not is_named_so or (bool(listed) and all(isinstance(tensor, dict) for tensor in listed))


def array_of(values: Any) -> Array:
    """Return values, for example from JSON, as an array, without loss of digits of integers or of zero bytes in texts.

    NumPy converts integers to floats if they are above 2^63 or mixed with floats. It removes zero bytes at the end of
    texts and bytes.

    Raises:
        ValueError: lists in the values have different lengths.
    """
    array = np.asarray(values)
    if array.dtype.kind in "SU" and not isinstance(values, np.ndarray):
        exact = np.array(values, dtype=object)
        return (
            exact
            if any(value[-1:] in {"\0", b"\0"} for value in exact.flat if isinstance(value, str | bytes))
            else array
        )
    if array.dtype != np.float64 or isinstance(values, np.ndarray) or not np.any(np.abs(array) >= _EXACT):
        return array
    exact = np.array(values, dtype=object)
    if any(isinstance(value, int) for value in exact.flat) and all(float(value).is_integer() for value in exact.flat):
        integers = [int(value) for value in exact.flat]
        for kind in (np.int64, np.uint64):
            with suppress(OverflowError):
                return np.array(integers, kind).reshape(exact.shape)
    return array


def _array(values: Any, file: InputFile) -> Array:
    try:
        return array_of(values)
    except ValueError:
        raise TensorError(f"{file.path}: its rows have different lengths; all need the same number of values") from None


def _single_input(file: InputFile, inputs: Sequence[ModelInput]) -> ModelInput:
    """Return the only input of the model, for a file that names no input."""
    if file.name is not None:
        for model_input in inputs:
            if model_input.name == file.name:
                return model_input
        raise TensorError(f"{file.path}: the model has no input {file.name}; it has {_describe(inputs) or 'none'}")
    if not inputs:
        raise TensorError(f"{file.path}: the server's metadata of the model has no inputs, so it fits none")
    if len(inputs) != 1:
        raise TensorError(
            f"{file.path}: the model has {len(inputs)} inputs ({_describe(inputs)}); name one, for example --input {inputs[0].name}={file.path}"
        )
    return inputs[0]


def _image(file: InputFile, model_input: ModelInput, pixel_scale: float | None) -> Array:
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  # only for images

    dims = (
        model_input.shape[1:]
        if len(model_input.shape) in {3, 4} and model_input.shape[0] in {-1, 1}
        else model_input.shape
    )
    if len(dims) == 2 and min(dims) > 0:
        (height, width), channels, first = dims, 1, None
    elif len(dims) == 3 and dims[0] in _CHANNELS:
        (channels, height, width), first = dims, True
    elif len(dims) == 3 and dims[2] in _CHANNELS:
        (height, width, channels), first = dims, False
    else:
        raise TensorError(
            f"{file.path}: an image doesn't fit {model_input.describe()}; convert it with NumPy, and pass a file.npy"
        )
    try:
        image = Image.open(io.BytesIO(file.content)).convert(_CHANNELS[channels])
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise TensorError(f"{file.path}: not a readable image: {error}") from None
    size = (image.width if width < 0 else width, image.height if height < 0 else height)
    pixels: Array = np.asarray(image.resize(size), dtype=np.float64)
    if first is not None:
        pixels = pixels.reshape(size[1], size[0], channels)
        pixels = pixels.transpose(2, 0, 1) if first else pixels
    white = (
        pixel_scale
        if pixel_scale is not None
        else 1.0
        if model_input.datatype in {"FP16", "FP32", "FP64", "BF16"}
        else 255.0
    )
    pixels = pixels * (white / 255.0)
    return pixels if model_input.datatype.startswith(("FP", "BF")) else np.rint(pixels)


def fit(array: Array, model_input: ModelInput, path: str) -> Array:
    """Convert an array to the input's type and shape. A single item becomes a batch of one if the model batches.

    A value without a dimension becomes an array with one element.

    Raises:
        TensorError: the array doesn't fit the input; the message begins with `path`.
    """
    array = array if array.ndim else array.reshape(1)
    if array.ndim == len(model_input.shape) - 1 and model_input.shape[0] in {-1, 1}:
        array = array[np.newaxis]
    if array.ndim != len(model_input.shape) or any(
        expected not in {-1, actual} for expected, actual in zip(model_input.shape, array.shape, strict=True)
    ):
        raise TensorError(f"{path}: its shape is {list(array.shape)}, but the model expects {model_input.describe()}")
    if model_input.datatype == "BYTES":
        if array.dtype == object and any(value is None for value in array.ravel()):
            # As a text it would be the word None.
            raise TensorError(f"{path}: it has a null, and {model_input.describe()} needs a text for each value")
        try:
            values = [_bytes(value) for value in array.ravel()]
        except UnicodeEncodeError as error:
            # JSON can have half of a character, as in "\\ud800".
            raise TensorError(
                f"{path}: {error.object[error.start]!a} in it is half of a character, so no text"
            ) from None
        return np.array(values, dtype=np.object_).reshape(array.shape)
    return _numbers(array, model_input, path)


def _numbers(array: Array, model_input: ModelInput, path: str) -> Array:
    if array.dtype == object and all(type(value) in {int, float} for value in array.flat):
        with suppress(OverflowError):
            array = array.astype(np.float64)  # an integer above 2^64, as JavaScript writes 1e20
    kind = triton_to_np_dtype(model_input.datatype)
    if kind is None or array.dtype.kind not in "biuf":
        raise TensorError(
            f"{path}: its values are of type {array.dtype}, but the model expects {model_input.describe()}"
        )
    if array.dtype == kind:
        return array
    with np.errstate(all="ignore"):
        cast: Array = array.astype(kind)
    # Floats may lose digits in a smaller type, but an integer must keep its value.
    if np.dtype(kind).kind in "biu" and not np.array_equal(cast, array):
        raise TensorError(
            f"{path}: not every value is an integer in the range of {model_input.datatype}, which {model_input.describe()} requires"
        )
    if np.dtype(kind).kind == "f" and np.any(np.isinf(cast) & np.isfinite(array)):
        largest = np.abs(array[np.isfinite(array)]).max()
        raise TensorError(
            f"{path}: {largest:g} is above the largest {model_input.datatype}, {np.finfo(kind).max:g}; "
            f"{model_input.describe()} would get infinity"
        )
    return cast


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _describe(inputs: Sequence[ModelInput]) -> str:
    return ", ".join(model_input.describe() for model_input in inputs)
