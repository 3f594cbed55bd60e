"""Files -> tensors that a model takes, by what the model says of its inputs. Pure but for the parsing of pictures.

Not here: how they are sent (`infer`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tritonclient.utils import triton_to_np_dtype

from halcyon_cli.errors import InputError

Array = npt.NDArray[Any]
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
_CHANNELS = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class Wanted:
    """An input as the model has it."""

    name: str
    datatype: str
    """Triton's, for example FP32."""
    shape: tuple[int, ...]
    """-1 where any size will do; with the rows of a batch in front, where the model takes batches."""

    def say(self) -> str:
        """For example `pixels FP32[-1, 64]`."""
        return f"{self.name} {self.datatype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class File:
    """A file that was given as an input; `name` of the input where it was given."""

    path: str
    content: bytes
    name: str | None = None


def wanted(metadata: Mapping[str, Any]) -> tuple[Wanted, ...]:
    """The inputs, from Triton's metadata of a model."""
    return tuple(
        Wanted(str(one["name"]), str(one["datatype"]), tuple(map(int, one["shape"]))) for one in metadata["inputs"]
    )


def tensors(files: Sequence[File], inputs: Sequence[Wanted], *, pixel_scale: float | None = None) -> dict[str, Array]:
    """A tensor for every input, of its type and shape. `pixel_scale` is the value of a white pixel.

    Raises:
        InputError: naming the file, the input, what it is and what it has to be.
    """
    known = {one.name: one for one in inputs}
    found: dict[str, Array] = {}
    for file in files:
        for name, array in _read(file, inputs, pixel_scale).items():
            if name not in known:
                raise InputError(f"{file.path}: the model has no input {name}; it has {_said(inputs)}")
            if name in found:
                raise InputError(f"{file.path}: input {name} is given twice")
            found[name] = _fitted(array, known[name], file.path)
    if lacking := [one for one in inputs if one.name not in found]:
        example = f"--input {lacking[0].name}=FILE.npy"
        raise InputError(f"nothing is given for {_said(lacking)}; for example {example}")
    return found


def _read(file: File, inputs: Sequence[Wanted], pixel_scale: float | None) -> Mapping[str, Array]:
    suffix = file.path[file.path.rfind(".") :].lower()
    if suffix == ".json":
        return _json(file, inputs)
    if suffix not in {".npy", ".npz", *PICTURES}:
        raise InputError(
            f"{file.path}: its name has to end in .npy, .npz, .json, or as a picture's does ({', '.join(PICTURES)})"
        )
    if suffix in PICTURES:
        one = _only(file, inputs)
        return {one.name: _picture(file, one, pixel_scale)}
    try:
        loaded = np.load(io.BytesIO(file.content), allow_pickle=False)
        # An archive is read where it is looked into.
        arrays = {name: loaded[name] for name in loaded.files} if suffix == ".npz" else {"": loaded}
    except (ValueError, OSError, EOFError, AttributeError) as error:
        raise InputError(f"{file.path}: no array of numpy's: {error}; numpy.save('x.npy', array) writes one") from None
    return arrays if suffix == ".npz" else {_only(file, inputs).name: arrays[""]}


def _json(file: File, inputs: Sequence[Wanted]) -> Mapping[str, Array]:
    """A request of KServe's v2 protocol, an object of values by input, or the values of the only one."""
    try:
        document = json.loads(file.content)
    except ValueError as error:
        raise InputError(f"{file.path}: not JSON: {error}") from None
    if isinstance(document, dict) and isinstance(document.get("inputs"), list):
        try:
            return {str(one["name"]): _array(one["data"], file).reshape(one["shape"]) for one in document["inputs"]}
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{file.path}: inputs holds no tensors ({error!r}); one is for example "
                '{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0, 1]}'
            ) from None
    if isinstance(document, dict):
        return {str(name): _array(values, file) for name, values in document.items()}
    return {_only(file, inputs).name: _array(document, file)}


def _array(values: Any, file: File) -> Array:
    try:
        return np.array(values)
    except ValueError:
        raise InputError(f"{file.path}: its rows are of different lengths; each needs as many values") from None


def _only(file: File, inputs: Sequence[Wanted]) -> Wanted:
    """The input that a file without names is for."""
    if file.name is not None:
        for one in inputs:
            if one.name == file.name:
                return one
        raise InputError(f"{file.path}: the model has no input {file.name}; it has {_said(inputs)}")
    if len(inputs) != 1:
        raise InputError(
            f"{file.path}: the model has {len(inputs)} inputs ({_said(inputs)}); say which, for example --input {inputs[0].name}={file.path}"
        )
    return inputs[0]


def _picture(file: File, one: Wanted, pixel_scale: float | None) -> Array:
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  # only for pictures

    dims = one.shape[1:] if len(one.shape) in {3, 4} and one.shape[0] in {-1, 1} else one.shape
    if len(dims) == 2 and min(dims) > 0:
        (height, width), channels, first = dims, 1, None
    elif len(dims) == 3 and dims[0] in _CHANNELS:
        (channels, height, width), first = dims, True
    elif len(dims) == 3 and dims[2] in _CHANNELS:
        (height, width, channels), first = dims, False
    else:
        raise InputError(
            f"{file.path}: a picture is no tensor for {one.say()}; make one of it with numpy, and give a file.npy"
        )
    try:
        picture = Image.open(io.BytesIO(file.content)).convert(_CHANNELS[channels])
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{file.path}: no picture that can be read: {error}") from None
    size = (picture.width if width < 0 else width, picture.height if height < 0 else height)
    pixels: Array = np.asarray(picture.resize(size), dtype=np.float64)
    if first is not None:
        pixels = pixels.reshape(size[1], size[0], channels)
        pixels = pixels.transpose(2, 0, 1) if first else pixels
    white = (
        pixel_scale if pixel_scale is not None else 1.0 if one.datatype in {"FP16", "FP32", "FP64", "BF16"} else 255.0
    )
    pixels = pixels * (white / 255.0)
    return pixels if one.datatype.startswith(("FP", "BF")) else np.rint(pixels)


def _fitted(array: Array, one: Wanted, path: str) -> Array:
    """Of the input's type and shape; a row becomes a batch of one where the model takes batches."""
    if array.ndim == len(one.shape) - 1 and one.shape[0] in {-1, 1}:
        array = array[np.newaxis]
    if array.ndim != len(one.shape) or any(
        want not in {-1, have} for want, have in zip(one.shape, array.shape, strict=True)
    ):
        raise InputError(f"{path}: its shape is {list(array.shape)}, and the model takes {one.say()}")
    if one.datatype == "BYTES":
        return np.array([_bytes(value) for value in array.ravel()], dtype=np.object_).reshape(array.shape)
    kind = triton_to_np_dtype(one.datatype)
    if kind is None or array.dtype.kind not in "biuf":
        raise InputError(f"{path}: its values are of type {array.dtype}, and the model takes {one.say()}")
    with np.errstate(all="ignore"):
        cast: Array = array.astype(kind)
    # Floats lose digits on the way to a smaller type; a whole number must stay what it is.
    if np.dtype(kind).kind in "biu" and not np.array_equal(cast, array):
        raise InputError(
            f"{path}: not every value is a whole number that {one.datatype} can hold, which {one.say()} wants"
        )
    return cast


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _said(inputs: Sequence[Wanted]) -> str:
    return ", ".join(one.say() for one in inputs)
