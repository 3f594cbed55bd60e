"""`halcyon infer`: files become tensors that the model takes. Not here: a request (tests/integration/cli/test_infer.py)."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from halcyon.cli.errors import InputError
from halcyon.cli.infer.connection import Wire
from halcyon.cli.infer.tensors import Array, File, Wanted, tensors

PIXELS = Wanted("pixels", "FP32", (-1, 64))
PICTURE = Wanted("image", "FP32", (-1, 3, 2, 4))
TEXT = Wanted("text", "BYTES", (-1, 1))


def npy(array: Array, path: str = "x.npy", name: str | None = None) -> File:
    out = io.BytesIO()
    np.save(out, array)
    return File(path, out.getvalue(), name)


def as_json(value: Any, name: str | None = None) -> File:
    return File("x.json", json.dumps(value).encode(), name)


def picture(size: tuple[int, int] = (8, 8), color: str = "red") -> File:
    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, "PNG")
    return File("x.PNG", out.getvalue())


def test_a_row_becomes_a_batch_of_one_of_the_required_type() -> None:
    found = tensors([npy(np.arange(64))], [PIXELS])["pixels"]

    assert (found.shape, found.dtype) == ((1, 64), np.float32)


@pytest.mark.parametrize(
    "file",
    [
        as_json([[1] * 64, [2] * 64]),
        as_json({"pixels": [[1] * 64, [2] * 64]}),
        as_json({"inputs": [{"name": "pixels", "shape": [2, 64], "datatype": "FP32", "data": [1] * 64 + [2] * 64}]}),
    ],
)
def test_json_in_each_of_its_forms_is_the_same(file: File) -> None:
    assert tensors([file], [PIXELS])["pixels"].sum(axis=1).tolist() == [64, 128]


def test_an_archive_gives_each_input_its_array() -> None:
    out = io.BytesIO()
    np.savez(out, a=np.zeros((1, 2)), b=np.ones((1, 3)))
    found = tensors([File("x.npz", out.getvalue())], [Wanted("a", "FP32", (-1, 2)), Wanted("b", "INT64", (-1, 3))])

    assert found["b"].dtype == np.int64
    assert found["b"].tolist() == [[1, 1, 1]]


def test_texts_become_bytes() -> None:
    assert tensors([as_json(["grüße"])], [TEXT])["text"].tolist() == [["grüße".encode()]]


@pytest.mark.parametrize(
    ("shape", "kind", "scale", "red"),
    [
        ((-1, 3, 2, 4), "FP32", None, [1.0, 0.0, 0.0]),
        ((-1, 2, 4, 3), "FP32", None, [1.0, 0.0, 0.0]),
        ((3, 2, 4), "UINT8", None, [255, 0, 0]),
        ((-1, 3, 2, 4), "FP32", 16.0, [16.0, 0.0, 0.0]),
        ((-1, 3, -1, -1), "FP32", None, [1.0, 0.0, 0.0]),
    ],
)
def test_a_picture_becomes_what_the_input_takes(
    shape: tuple[int, ...], kind: str, scale: float | None, red: list[float]
) -> None:
    found = tensors([picture()], [Wanted("image", kind, shape)], pixel_scale=scale)["image"]
    pixels = found.reshape(found.shape[-3:])
    first = pixels[:, 0, 0] if shape[-1] != 3 else pixels[0, 0, :]

    assert first.tolist() == pytest.approx(red)
    assert found.ndim == len(shape)


@pytest.mark.parametrize(
    ("files", "inputs", "said"),
    [
        ([npy(np.zeros((2, 3)))], [PIXELS], "x.npy: its shape is [2, 3], and the model takes pixels FP32[-1, 64]"),
        ([npy(np.full((1, 1), 0.5))], [Wanted("n", "INT32", (-1, 1))], "not every value is a whole number that INT32 can hold"),
        ([npy(np.full((1, 1), 300))], [Wanted("n", "UINT8", (-1, 1))], "not every value is a whole number that UINT8 can hold"),
        ([as_json([["a"]])], [Wanted("n", "FP32", (-1, 1))], "its values are of type"),
        ([as_json([[1], [1, 2]])], [PIXELS], "its rows are of different lengths"),
        ([as_json({"inputs": [{"name": "x"}]})], [PIXELS], "inputs holds no tensors"),
        ([as_json({"x": [1]})], [PIXELS], "the model has no input x; it has pixels FP32[-1, 64]"),
        ([as_json([1], name="x")], [PIXELS], "the model has no input x"),
        ([as_json([1])], [PIXELS, TEXT], "the model has 2 inputs (pixels FP32[-1, 64], text BYTES[-1, 1]); say which, for example --input pixels=x.json"),
        ([as_json({"text": ["a"]})], [PIXELS, TEXT], "nothing is given for pixels FP32[-1, 64]; for example --input pixels=FILE.npy"),
        ([as_json([0] * 64), as_json([0] * 64)], [PIXELS], "input pixels is given twice"),
        ([File("x.json", b"{")], [PIXELS], "not JSON"),
        ([File("x.npy", b"{")], [PIXELS], "no array of numpy's"),
        ([npy(np.array([{}], dtype=object))], [PIXELS], "no array of numpy's"),
        ([File("x.png", b"{")], [PICTURE], "no picture that can be read"),
        ([picture()], [PIXELS], "a picture is no tensor for pixels FP32[-1, 64]"),
        ([File("x.txt", b"")], [PIXELS], "its name has to end in"),
    ],
)  # fmt: skip
def test_an_unsendable_input_is_named_with_the_possible_ones(
    files: list[File], inputs: list[Wanted], said: str
) -> None:
    with pytest.raises(InputError) as caught:
        tensors(files, inputs)

    assert said in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "//"])
def test_a_malformed_address_is_named(url: str) -> None:
    with pytest.raises(InputError, match="must be an address"):
        Wire.to_url(url, timeout_s=1)
