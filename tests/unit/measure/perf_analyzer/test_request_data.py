"""The data file of perf_analyzer has the values that Halcyon's engine sends."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from halcyon_measure.errors import TensorError
from halcyon_measure.inputs.payloads import Payload
from halcyon_measure.inputs.tensors import ModelInput
from halcyon_measure.perf_analyzer import request_data

BATCHED = (ModelInput("x", "FP32", (-1, 2)), ModelInput("s", "BYTES", (-1, 1)))


def test_each_row_is_an_entry_with_the_same_values() -> None:
    values = np.array([[1.5, 2], [3, 4]], np.float32)
    strings = np.array([[b"a"], ["ü".encode()]], np.object_)
    text, count = request_data.text([Payload({"x": values, "s": strings}, 2)], BATCHED)
    entries = json.loads(text)["data"]
    assert count == 1
    assert [np.frombuffer(base64.b64decode(entry["x"]["b64"]), np.float32).tolist() for entry in entries] == [
        [1.5, 2.0],
        [3.0, 4.0],
    ]
    assert [entry["x"]["shape"] for entry in entries] == [[2], [2]]
    assert [entry["s"]["content"] for entry in entries] == [["a"], ["ü"]]


def test_tensor_without_rows_keeps_its_shape() -> None:
    text, _ = request_data.text([Payload({"x": np.zeros((3, 4), np.int32)}, 1)], (ModelInput("x", "INT32", (3, 4)),))
    assert json.loads(text)["data"][0]["x"]["shape"] == [3, 4]


def test_data_beyond_the_limit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_data, "MAX_BYTES", 20)
    payloads = [Payload({"x": np.zeros((1, 2), np.float32)}, 1) for _ in range(5)]
    assert request_data.text(payloads, BATCHED)[1] == 2


@pytest.mark.parametrize(
    ("values", "datatype", "message"),
    [(np.array([b"\xff"], np.object_), "BYTES", "isn't UTF-8"), (np.zeros(1, np.float32), "BF16", "is BF16")],
)
def test_value_that_perf_analyzer_cannot_send_is_an_error(
    values: np.ndarray[tuple[int], np.dtype[np.generic]], datatype: str, message: str
) -> None:
    with pytest.raises(TensorError, match=message):
        request_data.text([Payload({"x": values}, 1)], (ModelInput("x", datatype, (1,)),))


def test_payloads_with_different_rows_are_an_error() -> None:
    with pytest.raises(TensorError, match="requests of 1 to 3 rows"):
        request_data.common_rows([Payload({}, 1), Payload({}, 3)])
