"""Metadata of models by protocol."""

from __future__ import annotations

import json
from http.client import BadStatusLine, HTTPConnection, HTTPResponse
from typing import Any

import pytest

from halcyon_measure.errors import TargetError
from halcyon_measure.protocols import connect
from halcyon_measure.protocols.target import Target, parse

SIGNATURE = {"x": {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}, {"size": "4"}]}}}
METADATA = {"metadata": {"signature_def": {"signature_def": {"serving_default": {"inputs": SIGNATURE}}}}}


@pytest.mark.parametrize(
    ("version", "path"), [("", "/v1/models/m/metadata"), ("2", "/v1/models/m/versions/2/metadata")]
)
def test_metadata_of_tensorflow_serving_is_that_of_the_version(
    version: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []

    def exchange(_: Target, __: str, path: str, ___: Any = None) -> tuple[int, bytes]:
        paths.append(path)
        return 200, json.dumps(METADATA).encode()

    monkeypatch.setattr(connect, "exchange", exchange)
    target = parse("http://h:8501", api="tfserving", transport=None, encoding=None, model="m", version=version)
    assert connect.described(target).inputs[0].shape == (-1, 4)
    assert paths == [path]


def test_server_that_is_no_http_server_has_a_readable_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def respond(_: HTTPConnection) -> HTTPResponse:
        raise BadStatusLine("\x00\x00\x18\x04")  # the first bytes of a gRPC port

    monkeypatch.setattr(HTTPConnection, "connect", lambda _: None)
    monkeypatch.setattr(HTTPConnection, "request", lambda *_, **__: None)
    monkeypatch.setattr(HTTPConnection, "getresponse", respond)
    target = parse("http://h:8001", api="kserve", transport=None, encoding=None, model="m")
    with pytest.raises(TargetError, match=r"if it is a gRPC port: --url grpc://h:8001") as error:
        connect.exchange(target, "GET", "/v2")
    assert str(error.value).isprintable()
