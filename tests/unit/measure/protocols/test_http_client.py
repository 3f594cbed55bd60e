"""Responses without an error status that are no answers of the protocol: redirects, pages, errors with status 200."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from halcyon_measure.errors import TensorError
from halcyon_measure.inputs.payloads import Payload, Rows, random_payloads
from halcyon_measure.inputs.tensors import ModelInput, raw_content
from halcyon_measure.protocols import target
from halcyon_measure.protocols.http_client import encode, problem, retry_after_s
from halcyon_measure.protocols.target import Target

ANSWER = b'{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[1.0]}]}'


def parsed(api: Any = "kserve") -> Target:
    return target.parse("http://127.0.0.1:8000", api=api, transport=None, encoding=None, model="m")


@pytest.mark.parametrize(
    ("status", "body", "header", "words"),
    [
        (302, b"", None, "302: a redirect to https://login.example/auth"),
        (200, b"<html>please log in</html>", None, "200: no outputs in the answer: <html>please log in</html>"),
        (200, b'{"error": "out of memory"}', None, "200: no outputs in the answer: out of memory"),
        (204, b"", None, "204: no outputs in the answer: no message"),
        (200, ANSWER, 10_000, "cut off: Inference-Header-Content-Length is 10000, and the body has 86 bytes"),
        (200, b'{"model_name":"m","outputs": []}', None, "200: no outputs in the answer"),
        (200, b'{"a":1}"outputs"', 7, "200: no outputs in the answer"),
    ],
)
def test_a_response_without_outputs_is_no_answer(status: int, body: bytes, header: int | None, words: str) -> None:
    to = replace(parsed(), outputs=(ModelInput("y", "FP32", (-1, 1)),))
    message = problem(to, status, body, header=header, location="https://login.example/auth")
    assert words in message


@pytest.mark.parametrize(
    ("api", "body", "header"),
    [
        ("kserve", ANSWER, None),
        ("kserve", ANSWER + b"\x00\x00\x80\x3f", len(ANSWER)),
        ("tfserving", b'{"outputs": [[1.0]]}', None),
        ("tfserving", b'{"predictions": [[1.0]]}', None),
        ("post", b"<html>a cat</html>", None),
        ("post", b"", None),
    ],
)
def test_an_answer_of_each_api_is_accepted(api: str, body: bytes, header: int | None) -> None:
    assert problem(parsed(api), 200, body, header=header) == ""


def test_answer_of_a_model_without_outputs_needs_none() -> None:
    assert problem(parsed(), 200, b'{"model_name":"m","outputs":[]}') == ""


def test_a_redirect_of_a_plain_post_is_no_answer() -> None:
    assert "308: a redirect to /predict/" in problem(parsed("post"), 308, b"", location="/predict/")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 0.0), ("5", 5.0), ("99999999999", 600.0), ("-1", 0.0), ("1e9", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0)],
)
def test_a_wait_that_a_server_demands_has_an_end(text: str, seconds: float) -> None:
    assert retry_after_s(text) == seconds


@pytest.mark.parametrize("kind", ["BOOL", "UINT8", "INT64", "FP16", "FP32", "BF16", "BYTES"])
def test_binary_request_has_every_data_type(kind: str) -> None:
    inputs = (ModelInput("x", kind, (-1, 3)), ModelInput("y", "INT32", (-1, 1)))
    (payload, *_) = random_payloads(inputs, rows=Rows(2, 2), shapes={}, seed=1)
    request = encode(replace(parsed(), inputs=inputs), payload)
    assert request.header_length is not None
    document = json.loads(request.body[: request.header_length])
    sizes = [tensor["parameters"]["binary_data_size"] for tensor in document["inputs"]]
    content = raw_content(payload.tensors["x"], kind)
    assert sizes == [len(content), 8]
    assert request.body[request.header_length :] == content + payload.tensors["y"].tobytes()
    assert [(tensor["name"], tensor["datatype"], tensor["shape"]) for tensor in document["inputs"]] == [
        ("x", kind, [2, 3]), ("y", "INT32", [2, 1]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("BF16", np.ones((1, 1), np.float32), "input x is of BF16, which has no form in JSON; use --encoding binary"),
        ("FP16", np.ones((1, 1), np.float16), "input x is of FP16"),
        ("BYTES", np.array([[b"\xff"]], np.object_), "input x has bytes that are no UTF-8"),
    ],
)
def test_value_without_a_form_in_json_is_an_error(kind: str, value: Any, message: str) -> None:
    to = replace(parsed(), inputs=(ModelInput("x", kind, (-1, 1)),), encoding="json")
    with pytest.raises(TensorError, match=message):
        encode(to, Payload({"x": value}, 1))


def test_json_request_has_plain_values() -> None:
    to = replace(parsed(), inputs=(ModelInput("x", "BYTES", (-1, 2)),), encoding="json")
    request = encode(to, Payload({"x": np.array([[b"a", b"b"]], np.object_)}, 1))
    assert json.loads(request.body) == {
        "inputs": [{"name": "x", "shape": [1, 2], "datatype": "BYTES", "data": ["a", "b"]}]
    }
