"""`halcyon infer`: files become tensors that the model takes. Not here: a request (tests/integration/cli/test_infer.py)."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from halcyon_cli.errors import InputError
from halcyon_cli.infer.connection import ModelConnection, Phases
from halcyon_cli.infer.request import InferenceResult
from halcyon_measure.errors import TensorError
from halcyon_measure.inputs.tensors import Array, InputFile, ModelInput, tensors

PIXELS = ModelInput("pixels", "FP32", (-1, 64))
PICTURE = ModelInput("image", "FP32", (-1, 3, 2, 4))
TEXT = ModelInput("text", "BYTES", (-1, 1))


def npy(array: Array, path: str = "x.npy", name: str | None = None) -> InputFile:
    out = io.BytesIO()
    np.save(out, array)
    return InputFile(path, out.getvalue(), name)


def as_json(value: Any, name: str | None = None) -> InputFile:
    return InputFile("x.json", json.dumps(value).encode(), name)


def picture(size: tuple[int, int] = (8, 8), color: str = "red") -> InputFile:
    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, "PNG")
    return InputFile("x.PNG", out.getvalue())


def test_a_row_becomes_a_batch_of_one_of_the_required_type() -> None:
    array = tensors([npy(np.arange(64))], [PIXELS])["pixels"]

    assert (array.shape, array.dtype) == ((1, 64), np.float32)


@pytest.mark.parametrize(
    "file",
    [
        as_json([[1] * 64, [2] * 64]),
        as_json({"pixels": [[1] * 64, [2] * 64]}),
        as_json({"inputs": [{"name": "pixels", "shape": [2, 64], "datatype": "FP32", "data": [1] * 64 + [2] * 64}]}),
    ],
)
def test_json_in_each_of_its_forms_is_the_same(file: InputFile) -> None:
    assert tensors([file], [PIXELS])["pixels"].sum(axis=1).tolist() == [64, 128]


def test_json_values_of_an_input_with_the_name_inputs() -> None:
    model_input = ModelInput("inputs", "FP32", (-1, 2))
    request = {"inputs": [{"name": "inputs", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
    for value in ({"inputs": [[1, 2]]}, request):
        assert tensors([as_json(value)], [model_input])["inputs"].tolist() == [[1.0, 2.0]]


def test_a_response_in_json_has_only_values_of_json() -> None:
    outputs = (
        ("y", "FP32", np.array([[1.5, np.nan], [np.inf, -np.inf]], np.float32)),
        ("n", "INT64", np.array([2**53 + 1])),
        ("t", "BYTES", np.array(["é".encode(), b"\xff\x00"], object)),
    )
    document = InferenceResult("m", "1", outputs, Phases(0.1, 0.1, 0.1, 0.1)).to_dict()
    text = json.dumps(document, allow_nan=False)
    assert [output["data"] for output in json.loads(text)["outputs"]] == [
        [1.5, "NaN", "Infinity", "-Infinity"],
        [2**53 + 1],
        ["é", "/wA="],
    ]


def test_an_archive_gives_each_input_its_array() -> None:
    out = io.BytesIO()
    np.savez(out, a=np.zeros((1, 2)), b=np.ones((1, 3)))
    arrays = tensors(
        [InputFile("x.npz", out.getvalue())], [ModelInput("a", "FP32", (-1, 2)), ModelInput("b", "INT64", (-1, 3))]
    )

    assert arrays["b"].dtype == np.int64
    assert arrays["b"].tolist() == [[1, 1, 1]]


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
    array = tensors([picture()], [ModelInput("image", kind, shape)], pixel_scale=scale)["image"]
    pixels = array.reshape(array.shape[-3:])
    first = pixels[:, 0, 0] if shape[-1] != 3 else pixels[0, 0, :]

    assert first.tolist() == pytest.approx(red)
    assert array.ndim == len(shape)


@pytest.mark.parametrize(
    ("files", "inputs", "message"),
    [
        ([npy(np.zeros((2, 3)))], [PIXELS], "x.npy: its shape is [2, 3], but the model expects pixels FP32[-1, 64]"),
        ([npy(np.full((1, 1), 0.5))], [ModelInput("n", "INT32", (-1, 1))], "not every value is an integer in the range of INT32"),
        ([npy(np.full((1, 1), 300))], [ModelInput("n", "UINT8", (-1, 1))], "not every value is an integer in the range of UINT8"),
        ([as_json([["a"]])], [ModelInput("n", "FP32", (-1, 1))], "its values are of type"),
        ([as_json([[1], [1, 2]])], [PIXELS], "its rows have different lengths"),
        ([as_json({"inputs": [{"name": "x"}]})], [PIXELS], "inputs contains no valid tensor"),
        ([as_json({"x": [1]})], [PIXELS], "the model has no input x; it has pixels FP32[-1, 64]"),
        ([as_json([1], name="x")], [PIXELS], "the model has no input x"),
        ([as_json([1])], [PIXELS, TEXT], "the model has 2 inputs (pixels FP32[-1, 64], text BYTES[-1, 1]); name one, for example --input pixels=x.json"),
        ([as_json({"text": ["a"]})], [PIXELS, TEXT], "no file for pixels FP32[-1, 64]; for example --input pixels=FILE.npy"),
        ([as_json([0] * 64), as_json([0] * 64)], [PIXELS], "input pixels is given twice"),
        ([InputFile("x.json", b"{")], [PIXELS], "invalid JSON"),
        ([InputFile("x.npy", b"{")], [PIXELS], "not a NumPy array"),
        ([npy(np.array([{}], dtype=object))], [PIXELS], "not a NumPy array"),
        ([InputFile("x.png", b"{")], [PICTURE], "not a readable image"),
        ([picture()], [PIXELS], "an image doesn't fit pixels FP32[-1, 64]"),
        ([InputFile("x.txt", b"")], [PIXELS], "unknown file type"),
    ],
)  # fmt: skip
def test_an_unsendable_input_is_named_with_the_possible_ones(
    files: list[InputFile], inputs: list[ModelInput], message: str
) -> None:
    with pytest.raises(TensorError) as caught:
        tensors(files, inputs)

    assert message in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "//"])
def test_a_malformed_address_is_named(url: str) -> None:
    with pytest.raises(InputError, match="must be a URL"):
        ModelConnection.to_url(url, timeout_s=1)
