"""Rows as tensors: every form of a row that fits the model, and why others don't."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from halcyon_batch.errors import RowError
from halcyon_batch.input_data import Sample
from halcyon_batch.row_tensors import BatchModel, payload, row_tensors, shape_of, split, value_of
from halcyon_measure.errors import TensorError
from halcyon_measure.inputs.tensors import ModelInput

SINGLE_INPUT = BatchModel((ModelInput("x", "FP32", (-1, 3)),), is_batched=True)
TWO_INPUTS = BatchModel((ModelInput("a", "INT32", (-1, 2)), ModelInput("b", "BYTES", (-1, 1))), is_batched=True)
UNBATCHED = BatchModel((ModelInput("x", "FP32", (-1,)),), is_batched=False)


@pytest.mark.parametrize(
    "value",
    [
        {"x": np.array([1, 2, 3])},
        {"": np.array([1.0, 2, 3])},
        b"[1, 2, 3]",
        b"[[1, 2, 3]]",
        b'{"x": [1, 2, 3]}',
        b'{"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}',
    ],
)
def test_every_form_of_a_row_gives_the_same_tensor(value: Any) -> None:
    tensor = row_tensors(Sample(0, value), SINGLE_INPUT)["x"]
    assert (tensor.dtype.name, tensor.tolist()) == ("float32", [[1.0, 2.0, 3.0]])
    if not (isinstance(value, bytes) and b"[[" in value) and not (isinstance(value, bytes) and b"inputs" in value):
        assert row_tensors(Sample(0, value), UNBATCHED)["x"].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("value", "inputs", "message"),
    [
        (b"{", SINGLE_INPUT, "not JSON: "),
        (b"[1, 2]", SINGLE_INPUT, "input x: its shape is [1, 2], but the model expects x FP32[-1, 3]"),
        (
            b"[[1, 2, 3], [4, 5, 6]]",
            SINGLE_INPUT,
            "input x has 2 rows; each row of the data set is one row of the model",
        ),
        (b"[[1], [2, 3]]", SINGLE_INPUT, "input x: its lists have different lengths"),
        (b'["a", "b", "c"]', SINGLE_INPUT, "input x: its values are of type"),
        (b"[1, 2]", TWO_INPUTS, 'it has no names, and the model has the inputs a, b; for example {"a": [...]}'),
        (b'{"a": [1, 2], "c": ["x"]}', TWO_INPUTS, "it has a, c; the model's inputs are a, b"),
        (b'{"a": [1, 2.5], "b": ["x"]}', TWO_INPUTS, "not every value is an integer in the range of INT32"),
        (b'{"inputs": [{"name": "x"}]}', SINGLE_INPUT, "inputs has no valid tensor"),
        (b'{"a": [1, 2], "b": ["\\ud800"]}', TWO_INPUTS, "input b: '\\ud800' in it is half of a character, so no text"),
    ],
)
def test_a_row_that_does_not_fit_names_the_input_and_the_reason(value: bytes, inputs: Any, message: str) -> None:
    with pytest.raises((RowError, TensorError)) as caught:
        row_tensors(Sample(0, value), inputs)
    assert message in str(caught.value)


@pytest.mark.parametrize("value", [b'{"a": 7, "b": "t"}', {"a": np.int64(7), "b": np.str_("t")}, {"a": 7, "b": b"t"}])
def test_a_value_without_a_list_is_an_array_with_one_element(value: Any) -> None:
    inputs = ModelInput("a", "INT32", (-1, 1)), ModelInput("b", "BYTES", (-1, 1))
    tensors = row_tensors(Sample(0, value), BatchModel(inputs, is_batched=True))
    assert (tensors["a"].tolist(), tensors["b"].tolist()) == ([[7]], [[b"t"]])
    with pytest.raises(TensorError, match=r"input x: its shape is \[1, 1\], but the model expects x FP32\[-1, 3\]"):
        row_tensors(Sample(0, b"7"), SINGLE_INPUT)


@pytest.mark.parametrize(
    "value", [b'["a\\u0000"]', b'[["a\\u0000"]]', b'"a\\u0000"', {"b": b"a\0"}, {"b": [[b"a\0"]]}, {"b": "a\0"}]
)
def test_texts_and_bytes_keep_zero_bytes_at_their_end(value: Any) -> None:
    model = BatchModel((ModelInput("b", "BYTES", (-1, 1)),), is_batched=True)
    assert row_tensors(Sample(0, value), model)["b"].tolist() == [[b"a\0"]]


@pytest.mark.parametrize(
    "value",
    [
        b'{"inputs": [1, 2, 3]}',
        b'{"inputs": [[1, 2, 3]]}',
        b'{"inputs": [{"name": "inputs", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}',
    ],
)
def test_model_may_have_an_input_with_the_name_inputs(value: bytes) -> None:
    model = BatchModel((ModelInput("inputs", "FP32", (-1, 3)),), is_batched=True)
    assert row_tensors(Sample(0, value), model)["inputs"].tolist() == [[1.0, 2.0, 3.0]]


def test_a_row_may_leave_out_an_optional_input() -> None:
    model = BatchModel(TWO_INPUTS.inputs, is_batched=True, optional=frozenset({"b"}))
    assert row_tensors(Sample(0, b'{"a": [1, 2]}'), model).keys() == {"a"}
    assert row_tensors(Sample(0, b'{"a": [1, 2], "b": ["x"]}'), model).keys() == {"a", "b"}
    for row in (b'{"b": ["x"]}', b'{"a": [1, 2], "c": ["x"]}'):
        with pytest.raises(RowError, match="the model's inputs are a, b"):
            row_tensors(Sample(0, row), model)


def test_rows_of_one_request_come_back_in_their_order() -> None:
    rows = [row_tensors(Sample(n, {"x": np.full(3, n)}), SINGLE_INPUT) for n in range(4)]
    request = payload(rows)
    assert (request.rows, request.tensors["x"][:, 0].tolist()) == (4, [0.0, 1.0, 2.0, 3.0])
    assert [outputs["y"].tolist() for outputs in split({"y": request.tensors["x"] * 2}, 4)] == [
        [[n * 2.0] * 3] for n in range(4)
    ]
    assert split({"y": np.zeros(5)}, 1)[0]["y"].shape == (5,)
    with pytest.raises(RowError, match=r"output y has the shape \[3\] for a request of 4 rows"):
        split({"y": np.zeros(3)}, 4)


def test_rows_of_different_shapes_need_requests_of_their_own() -> None:
    model = BatchModel((ModelInput("x", "FP32", (-1, -1)),), is_batched=True)
    short, long = (row_tensors(Sample(0, {"x": np.zeros(n)}), model) for n in (3, 4))
    assert shape_of(short) != shape_of(long)


def test_a_line_that_is_nested_too_deeply_is_one_failed_row() -> None:
    with pytest.raises(RowError, match="not JSON"):
        value_of(Sample(0, b"[" * 200_000))
