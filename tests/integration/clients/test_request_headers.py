"""Requests of clients with unusual headers and protocols, at real Triton servers behind the real HAProxy 3.0.

docs/quality/field-reports.md has the reports of such clients.
"""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from benchmarks.dataplane import tritons, ways
from benchmarks.right.client_models import balancer
from tests.integration.crowd import fields_of, frame, preface
from tests.integration.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from benchmarks.dataplane.tritons import Triton
    from benchmarks.right.client_models import Balancer

pytestmark = pytest.mark.more

INFER: Final = "/v2/models/labels/infer"
_SERVICE: Final = "/inference.GRPCInferenceService/"
_HEADERS, _DATA, _RESET, _END_STREAM, _END_HEADERS = 1, 0, 3, 1, 4
_VALUES: Final = np.arange(3, dtype=np.float32).reshape(1, 3)
_CONFIG = """backend: "python"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] label_filename: "labels.txt" } ]
"""
_MODEL = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", values)]) for values in inputs]
"""


@dataclass(frozen=True)
class Labels:
    """A model that returns its input, with labels for classes."""

    name: str = "labels"

    @property
    def files(self) -> dict[str, str]:
        """Return the files of the model as path -> content."""
        return {"config.pbtxt": _CONFIG, "1/model.py": _MODEL, "labels.txt": "cat\ndog\nbird\n"}


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Triton]]:
    with tritons.running([Labels()]) as started:
        yield started


@asynccontextmanager
async def counted(servers: list[Triton], *, requests: int, failed: int = 0) -> AsyncIterator[Balancer]:
    """Yield a balancer, and check then how many requests and failures of servers it has counted."""
    async with balancer(servers, replace(ways.plan("labels"), max_request_bytes=2**30)) as balanced:
        yield balanced
        reading = await balanced.haproxy.runtime.read()
        assert (reading.requests, reading.errors, reading.latency["a"].failed) == (requests, 0, failed)


def http_inputs(values: np.ndarray[Any, Any], *, binary: bool = True) -> list[httpclient.InferInput]:
    tensor = httpclient.InferInput("x", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values, binary_data=binary)
    return [tensor]


def grpc_inputs(values: np.ndarray[Any, Any]) -> list[grpcclient.InferInput]:
    tensor = grpcclient.InferInput("x", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    return [tensor]


def connected(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=10 * PATIENCE)


def over_http(address: str, head: str, *, end: bytes = b"}") -> bytes:
    """Send a request, with a body unless it is a GET, and return the response with its headers, up to `end`."""
    body, length = b"", ""
    if not head.startswith("GET "):
        tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [0, 1, 2]}
        body = json.dumps({"inputs": [tensor]}).encode()
        length = f"Content-Length: {len(body)}\r\n"
    lines = f"{head}\r\nHost: m\r\n{length}\r\n"
    with connected(address) as connection:
        connection.sendall(lines.encode() + body)
        response = b""
        while not response.endswith((end, end + b"\n")) and (part := connection.recv(65536)):
            response += part
        return response


def over_grpc(address: str, more: dict[bytes, bytes | None] | None = None, method: str = "ModelInfer") -> bytes:
    """Send a call with these header fields, and return the frames with the response. A field of None is left out."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": (method if method.startswith("/") else _SERVICE + method).encode(),
        b":authority": b"m",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    } | (more or {})
    request = service_pb2.ModelInferRequest(model_name="labels")
    tensor = request.inputs.add(name="x", datatype="FP32", shape=[1, 3])
    tensor.contents.fp32_contents.extend([0, 1, 2])
    content = request.SerializeToString()
    block = fields_of({name: value for name, value in fields.items() if value is not None}, kind=0)
    message = b"\0" + len(content).to_bytes(4, "big") + content
    with connected(address) as connection, connection.makefile("rb") as received:
        connection.sendall(preface() + frame(_HEADERS, _END_HEADERS, 1, block) + frame(_DATA, _END_STREAM, 1, message))
        frames = b""
        while len(head := received.read(9)) == 9:
            payload = received.read(int.from_bytes(head[:3], "big"))
            if head[3] in {_HEADERS, _DATA, _RESET}:
                frames += head + payload
            if head[3] == _RESET or (head[3] in {_HEADERS, _DATA} and head[4] & _END_STREAM):
                break
        return frames


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_compressed_requests_and_responses_pass_over_both_protocols(servers: list[Triton], coding: str) -> None:
    async with counted(servers, requests=3) as balanced:

        def calls() -> None:
            with httpclient.InferenceServerClient(balanced.http) as client:
                algorithms = {"request_compression_algorithm": coding, "response_compression_algorithm": coding}
                answer = client.infer("labels", http_inputs(_VALUES), **algorithms)
                assert answer.as_numpy("y").tolist() == _VALUES.tolist()
            with grpcclient.InferenceServerClient(balanced.grpc) as client:
                answer = client.infer("labels", grpc_inputs(_VALUES), compression_algorithm=coding)
                assert answer.as_numpy("y").tolist() == _VALUES.tolist()
            response = over_http(balanced.http, f"POST {INFER} HTTP/1.0\r\nAccept-Encoding: {coding}, br")
            assert f"content-encoding: {coding}".encode() in response

        await asyncio.to_thread(calls)


@pytest.mark.parametrize("coding", ["br", "zstd", "UTF-8", "gzip, gzip", "aws-chunked", ""])
async def test_codings_that_triton_lacks_are_no_failures(servers: list[Triton], coding: str) -> None:
    async with counted(servers, requests=0) as balanced:
        response = await asyncio.to_thread(
            over_http, balanced.http, f"POST {INFER} HTTP/1.1\r\nContent-Encoding: {coding}"
        )
    assert response.startswith(b"HTTP/1.1 415 ")
    assert b"accept-encoding: gzip, deflate\r\n" in response
    assert response.endswith(b'{"error":"Content-Encoding must be gzip, deflate or identity"}')


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({b"content-type": b"application/json"}, b"415"),
        ({b"content-type": b"application/grpc-web+proto"}, b"415"),
        ({b"grpc-encoding": b"zstd"}, b"grpc-status\x0212"),
        ({b"grpc-timeout": b"5"}, b"grpc-status\x013"),
        ({b"grpc-timeout": b"0.5S"}, b"grpc-status\x013"),
        ({b"x-user-bin": b"!!!"}, b"grpc-status\x013"),
        ({b"x-user-bin": b"A"}, b"grpc-status\x013"),
        ({b"x-user-bin": b"AB"}, b"grpc-status\x013"),
        ({b"a-bin": b"A", b"b-bin": b"AAAA"}, b"grpc-status\x013"),
    ],
    ids=[
        "JSON",
        "gRPC-Web",
        "an unknown coding",
        "a deadline without a unit",
        "a deadline with a fraction",
        "metadata with other characters",
        "metadata of one character",
        "metadata with bits beyond the last byte",
        "the first of two metadata entries",
    ],
)
async def test_calls_that_triton_would_reset_are_rejected(
    servers: list[Triton], fields: dict[bytes, bytes | None], expected: bytes
) -> None:
    async with counted(servers, requests=0) as balanced:
        frames = await asyncio.to_thread(over_grpc, balanced.grpc, fields)
    assert expected in frames


@pytest.mark.parametrize(
    "fields",
    [
        {b"te": None},
        {b"content-type": None},
        {b"content-type": b"application/grpc+proto"},
        {b"content-type": b"application/grpc;charset=utf-8"},
        {b"grpc-encoding": b"identity"},
        {b"grpc-timeout": b"20000000u"},
        {b"grpc-timeout": b"99999999H"},
        {b"x-user": "José".encode()},
        {b"x-user-bin": b"AA=="},
        {b"x-user-bin": b"AAA"},
        {b"x-user-bin": b""},
        {b"x-user-bin": b"+/+/" * 1500},
        {b"x-note": b"a-bin: A", b"x-bin-note": b"!"},
        {b"grpc-previous-rpc-attempts": b"2"},
        {b"grpc-previous-rpc-attempts": b"-1"},
        {b"grpc-previous-rpc-attempts": b"99999999999"},
        {b"grpc-internal-encoding-request": b"1"},
    ],
    ids=lambda fields: (
        b" ".join(b" ".join(item)[:40] for item in fields.items()).decode()
        if None not in fields.values()
        else f"no {[*fields]}"
    ),
)
async def test_calls_with_unusual_headers_are_answered(
    servers: list[Triton], fields: dict[bytes, bytes | None]
) -> None:
    async with counted(servers, requests=1) as balanced:
        frames = await asyncio.to_thread(over_grpc, balanced.grpc, fields)
    assert b"grpc-status\x010" in frames


@pytest.mark.parametrize("kept", ["close", "keep-alive"])
async def test_an_http_1_0_client_gets_its_response(servers: list[Triton], kept: str) -> None:
    async with counted(servers, requests=1) as balanced:
        response = await asyncio.to_thread(
            over_http, balanced.http, f"POST {INFER} HTTP/1.0\r\nConnection: {kept}\r\nX-Probe: ab"
        )
    assert response.startswith(b"HTTP/1.0 200 OK\r\n")
    assert (b"connection: keep-alive" in response) is (kept == "keep-alive")


@pytest.mark.parametrize("kept", ["close", "keep-alive"])
async def test_health_checks_of_http_1_0_clients_end_with_their_response(servers: list[Triton], kept: str) -> None:
    """Triton's response has no length, so a client that reads to the end waited for its timeout."""
    async with counted(servers, requests=0) as balanced:
        for path in ("/v2/health/ready", "/v2/health/live", "/v2/models/labels/ready"):
            head = f"GET {path} HTTP/1.0\r\nConnection: {kept}"
            response = await asyncio.to_thread(over_http, balanced.http, head, end=b"\r\n\r\n")
            assert response.split()[1] == b"200", path
            assert b"content-length: 0\r\n" in response, path


async def test_classes_have_their_labels(servers: list[Triton]) -> None:
    async with counted(servers, requests=2) as balanced:

        def calls() -> list[list[list[bytes]]]:
            with httpclient.InferenceServerClient(balanced.http) as client:
                output = httpclient.InferRequestedOutput("y", class_count=2)
                first = client.infer("labels", http_inputs(_VALUES), outputs=[output]).as_numpy("y")
            with grpcclient.InferenceServerClient(balanced.grpc) as client:
                output = grpcclient.InferRequestedOutput("y", class_count=2)
                second = client.infer("labels", grpc_inputs(_VALUES), outputs=[output]).as_numpy("y")
            return [first.tolist(), second.tolist()]

        assert await asyncio.to_thread(calls) == [[[b"2.000000:2:bird", b"1.000000:1:dog"]]] * 2


async def test_empty_and_large_tensors_pass(servers: list[Triton]) -> None:
    async with counted(servers, requests=5) as balanced:

        def calls() -> None:
            with httpclient.InferenceServerClient(balanced.http) as client:
                for binary in (True, False):
                    empty = client.infer("labels", http_inputs(_VALUES[:, :0], binary=binary))
                    assert empty.as_numpy("y").shape == (1, 0)
            with grpcclient.InferenceServerClient(balanced.grpc) as client:
                # gRPC's default limit for a message is 4 MiB.
                for length in (0, 3, 2 * 2**20):
                    values = np.ones((1, length), np.float32)
                    assert client.infer("labels", grpc_inputs(values)).as_numpy("y").shape == (1, length)

        await asyncio.to_thread(calls)


async def test_names_that_are_not_served_are_no_failures(servers: list[Triton]) -> None:
    async with counted(servers, requests=4) as balanced:

        def calls() -> list[str]:
            statuses = []
            with (
                httpclient.InferenceServerClient(balanced.http) as client,
                grpcclient.InferenceServerClient(balanced.grpc) as channel,
            ):
                for infer, inputs in ((client.infer, http_inputs(_VALUES)), (channel.infer, grpc_inputs(_VALUES))):
                    for name, version in (("labels", "9"), ("other", "")):
                        with pytest.raises(InferenceServerException) as error:
                            infer(name, inputs, model_version=version)
                        statuses.append(error.value.status())
            response = over_http(balanced.http, f"POST {INFER} HTTP/1.1\r\nInference-Header-Content-Length: 9999")
            assert b"inference header size should be in range" in response
            return [*statuses, response.decode().split()[1]]

        # The balancer itself rejects the path of another model.
        assert await asyncio.to_thread(calls) == ["404", "404", *["StatusCode.NOT_FOUND"] * 2, "400"]


@pytest.mark.parametrize("count", [0, 1])
async def test_unknown_methods_are_unimplemented_with_and_without_pods(servers: list[Triton], count: int) -> None:
    methods = (
        "/AWS.ALB/healthcheck",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    )
    async with balancer(servers[:count], ways.plan("labels")) as balanced:
        for method in methods:
            frames = await asyncio.to_thread(over_grpc, balanced.grpc, None, method)
            assert b"grpc-status\x0212" in frames, method
        assert (await balanced.haproxy.runtime.read()).requests == 0


async def test_health_checks_metadata_and_scrapes_are_no_requests(servers: list[Triton]) -> None:
    async with counted(servers, requests=0) as balanced:

        def reads() -> None:
            with httpclient.InferenceServerClient(balanced.http) as client:
                assert client.is_server_ready()
                assert client.get_model_metadata("labels")["name"] == "labels"
                assert client.get_model_config("labels")["max_batch_size"] == 8
                assert client.get_inference_statistics("labels")["model_stats"]
            with grpcclient.InferenceServerClient(balanced.grpc) as client:
                assert client.is_server_ready()
                assert client.get_model_metadata("labels").name == "labels"
            with grpc.insecure_channel(balanced.grpc) as channel:
                # The response's field `status` is SERVING.
                assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"") == b"\x08\x01"
            port = balanced.haproxy.ports.metrics
            assert b" 200 OK\r\n" in over_http(f"127.0.0.1:{port}", "GET /metrics HTTP/1.0")

        await asyncio.to_thread(reads)


async def test_a_preflight_of_a_browser_is_rejected(servers: list[Triton]) -> None:
    async with counted(servers, requests=0) as balanced:
        head = f"OPTIONS {INFER} HTTP/1.1\r\nOrigin: http://a\r\nAccess-Control-Request-Method: POST"
        response = await asyncio.to_thread(over_http, balanced.http, head)
    assert response.startswith(b"HTTP/1.1 405 ")
    assert b"access-control" not in response


async def test_a_grpc_client_of_the_http_port_gets_an_error_at_once(servers: list[Triton]) -> None:
    async with counted(servers, requests=0) as balanced:

        def call() -> str:
            with (
                grpcclient.InferenceServerClient(balanced.http) as client,
                pytest.raises(InferenceServerException) as error,
            ):
                client.infer("labels", grpc_inputs(_VALUES), client_timeout=10 * PATIENCE)
            return str(error.value.status())

        assert await asyncio.to_thread(call) == "StatusCode.UNIMPLEMENTED"
