"""Forms of requests and responses that other serving systems break, at real Triton servers behind the real HAProxy 3.0.

docs/quality/field-reports.md has the reports.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from benchmarks.dataplane import tritons, ways
from benchmarks.right.client_models import balancer
from halcyon.triton import probe_request
from halcyon_cli.infer.connection import ModelConnection
from halcyon_cli.infer.request import infer
from tests.integration.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.dataplane.tritons import Triton
    from benchmarks.right.client_models import Balancer

pytestmark = pytest.mark.more

_INPUT: Final = 'input [ { name: "x" data_type: TYPE_KIND dims: [ -1 ] } ]'
_OUTPUT: Final = 'output [ { name: "y" data_type: TYPE_KIND dims: [ -1 ] } ]'
_ECHO: Final = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "x") for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", x.to_dlpack())]) for x in inputs]
"""
_ECHO_TEXT: Final = _ECHO.replace('Tensor.from_dlpack("y", x.to_dlpack())', 'Tensor("y", x.as_numpy())')
_SEQUENCES: Final = """sequence_batching {
  control_input [ { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ]
}"""
_SHORT_QUEUE: Final = "dynamic_batching { default_queue_policy { max_queue_size: 1 } }"
_SLEEP: Final = _ECHO_TEXT.replace("        inputs", "        time.sleep(2)\n        inputs").replace(
    "import", "import time\n\nimport", 1
)
_ERRORS: Final = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        texts = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy()[0, 0].decode() for request in requests]
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError(text)) for text in texts]
"""
_HEADERS: Final = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("y", np.array([[request.parameters()]], object))])
            for request in requests
        ]
"""


@dataclass(frozen=True)
class Model:
    """A Python model with one input `x` and one output `y` of any length."""

    name: str
    datatype: str = "STRING"
    more: str = ""
    """Further lines of config.pbtxt."""
    code: str = _ECHO_TEXT

    @property
    def files(self) -> Mapping[str, str]:
        """Return the files of the model as path -> content."""
        lines = ['backend: "python"', "max_batch_size: 4", _INPUT, _OUTPUT, self.more]
        config = "\n".join(lines).replace("KIND", self.datatype)
        return {"config.pbtxt": config, "1/model.py": self.code}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Triton]]:
    models = [
        Model("texts"),
        Model("errors", code=_ERRORS),
        Model("numbers", "FP32", code=_ECHO),
        Model("half", "FP16", code=_ECHO),
        Model("brain", "BF16", code=_ECHO),
        Model("memory", more=_SEQUENCES),
        Model("short", more=_SHORT_QUEUE, code=_SLEEP),
        Model("headers", code=_HEADERS),
    ]
    forwarded = [f"--{protocol}-header-forward-pattern=(?i)^(x-tenant)$" for protocol in ("http", "grpc")]
    with tritons.running(models, arguments=forwarded) as started:
        yield {triton.model: triton for triton in started}


def post(address: str, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
    """Send a POST request, and return the status and the JSON document of the response."""
    with ModelConnection.to_url(f"http://{address}", timeout_s=20 * PATIENCE).closing() as connection:
        response = connection.request("POST", path, body, headers or {})
        # Binary outputs follow the document.
        return response.status, json.JSONDecoder().raw_decode(response.body.decode())[0]


def text_request(datatype: str = "BYTES", data: Any = ("a",)) -> bytes:
    return json.dumps({"inputs": [{"name": "x", "shape": [1, 1], "datatype": datatype, "data": data}]}).encode()


async def counts(balanced: Balancer) -> tuple[int, int, int]:
    """Return the numbers of requests, of lost requests and of failed responses."""
    reading = await balanced.haproxy.runtime.read()
    return reading.requests, reading.errors, reading.latency["a"].failed


@pytest.mark.parametrize(
    ("ending", "body"),
    [
        ("infer", b""),
        ("infer", b"{"),
        ("infer", b"{}"),
        ("infer", b"null"),
        ("infer", b"[" * 20_000),
        ("infer", b'{"x": "a"}'),
        ("infer", b'{"inputs": {}}'),
        ("infer", text_request("STRING", [{"b64": "AAAA"}])),
        ("infer", text_request(data=[{"b64": "AAAA"}])),
        ("infer", text_request(data={"b64": "AAAA"})),
        ("infer", text_request(data=[1])),
        ("infer", text_request(data=None)),
        ("infer", text_request(data=["a", "b"])),
        ("infer", text_request()[:-1] + b', "id": 5}'),
        ("infer", text_request()[:-1] + b', "parameters": 1}'),
        ("infer", text_request()[:-1] + b', "outputs": [{"name": "y", "parameters": {"classification": "a"}}]}'),
        ("infer", b'{"inputs": [{"name": "x", "shape": [-1, 1], "datatype": "BYTES", "data": []}]}'),
        ("generate", b""),
        ("generate", b"[]"),
        ("generate", b'{"x": {"a": 1}}'),
        ("generate", b'{"x": "a", "parameters": 1}'),
        ("generate_stream", b"{"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[-90:].decode(),
)
async def test_malformed_json_is_the_clients_error(servers: dict[str, Triton], ending: str, body: bytes) -> None:
    """Triton's own status of most of them is 500."""
    async with balancer([servers["texts"]]) as balanced:
        status, document = await asyncio.to_thread(post, balanced.http, f"/v2/models/texts/{ending}", body)
        assert status == 400, document
        assert document["error"]
        status, document = await asyncio.to_thread(post, balanced.http, "/v2/models/texts/infer", text_request())
        assert (status, document["outputs"][0]["data"]) == (200, ["a"])
        assert await counts(balanced) == (2, 0, 0)


@pytest.mark.parametrize("data", [[1], [1, 2, 3], [1, "a"], [1, None]])
async def test_values_that_do_not_fit_their_shape_are_the_clients_error(
    servers: dict[str, Triton], data: list[Any]
) -> None:
    body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": data}]}
    async with balancer([servers["numbers"]]) as balanced:
        path = "/v2/models/numbers/infer"
        status, document = await asyncio.to_thread(post, balanced.http, path, json.dumps(body).encode())
        assert status == 400, document
        assert await counts(balanced) == (1, 0, 0)


async def test_a_malformed_grpc_message_is_the_clients_error(servers: dict[str, Triton]) -> None:
    async with balancer([servers["texts"]]) as balanced:

        def call() -> tuple[str, str]:
            with grpc.insecure_channel(balanced.grpc) as channel, pytest.raises(grpc.RpcError) as error:
                channel.unary_unary(tritons.METHOD)(b"\xff" * 3, timeout=20 * PATIENCE)
            return error.value.code().name, error.value.details()

        assert await asyncio.to_thread(call) == ("INVALID_ARGUMENT", "Unable to parse request")
        assert await counts(balanced) == (1, 0, 0)


@pytest.mark.parametrize("words", ["Unable to parse the image", "attempt to access JSON", "a" * 100_000])
async def test_errors_of_a_model_keep_their_status(servers: dict[str, Triton], words: str) -> None:
    async with balancer([servers["errors"]]) as balanced:
        path = "/v2/models/errors/infer"
        status, document = await asyncio.to_thread(post, balanced.http, path, text_request(data=[words]))
        assert (status, document["error"]) == (500, words)
        assert await counts(balanced) == (1, 0, 1)


@pytest.mark.parametrize("model", ["half", "brain"])
async def test_half_precision_passes_and_the_command_line_sends_it(servers: dict[str, Triton], model: str) -> None:
    """Triton has no JSON form of these types, so the probe and `halcyon infer` send bytes."""
    values = np.array([[0.5, -2.0, 1024.0]], np.float32)

    def call() -> None:
        with ModelConnection.to_url(f"http://{balanced.http}", timeout_s=20 * PATIENCE).closing() as connection:
            result = infer(connection, model, None, [("x", "x.json", json.dumps(values.tolist()).encode())])
            assert result.outputs[0][2].astype(np.float32).tolist() == values.tolist()
            assert result.to_dict()["outputs"][0]["data"] == values.ravel().tolist()
        with httpclient.InferenceServerClient(balanced.http) as client:
            probe = probe_request.build(client.get_model_config(model))
        assert probe is not None
        assert post(balanced.http, f"/v2/models/{model}/{probe.path}", probe.body, probe.headers)[0] == 200

    async with balancer([servers[model]]) as balanced:
        await asyncio.to_thread(call)
        assert await counts(balanced) == (2, 0, 0)


@pytest.mark.parametrize("coding", [None, "gzip"])
async def test_errors_of_a_model_over_grpc_count_as_failures(servers: dict[str, Triton], coding: str | None) -> None:
    """Triton sends the status in the headers; HAProxy can't read trailers."""
    async with balancer([servers["errors"]]) as balanced:

        def call() -> None:
            with grpcclient.InferenceServerClient(balanced.grpc) as client:
                tensor = grpcclient.InferInput("x", [1, 1], "BYTES")
                tensor.set_data_from_numpy(np.array([[b"no"]], object))
                with pytest.raises(InferenceServerException, match="INTERNAL"):
                    client.infer("errors", [tensor], compression_algorithm=coding)

        await asyncio.to_thread(call)
        assert await counts(balanced) == (1, 0, 1)


async def test_paths_in_other_spellings_are_the_clients_error(servers: dict[str, Triton]) -> None:
    paths = {
        "/v2/models/texts/versions/1/infer": 200,
        "/v2/models/texts/infer?x=1": 200,
        "/v2/models/texts/versions/-1/infer": 404,
        "/v2/models/texts/versions/latest/infer": 404,
        "/v2/models/texts/versions//infer": 404,
        "/v2/models/texts/versions/99999999999999999999/infer": 404,
        "/v2/models/texts/infer/": 404,
        "/v2/models/te%78ts/infer": 404,
        "//v2/models/texts/infer": 404,
        "/triton/v2/models/texts/infer": 404,
    }
    async with balancer([servers["texts"]]) as balanced:
        for path, expected in paths.items():
            status, document = await asyncio.to_thread(post, balanced.http, path, text_request())
            assert status == expected, (path, document)
            if status == 200:
                assert document["model_version"] == "1"
            else:
                assert document["error"], path
        assert await counts(balanced) == (2, 0, 0)


async def test_forwarded_headers_reach_the_model_on_infer_alone(servers: dict[str, Triton]) -> None:
    """docs/guides/server-settings.md says so."""
    async with balancer([servers["headers"]]) as balanced:
        tenant = {"X-Tenant": "a"}
        path = "/v2/models/headers/"
        for headers, ending, body, expected in (
            (tenant, "infer", text_request(), '{"x-tenant":"a"}'),
            ({}, "infer", text_request(), "{}"),
            (tenant, "generate", b'{"x": "a"}', "{}"),
        ):
            status, document = await asyncio.to_thread(post, balanced.http, path + ending, body, headers)
            assert status == 200, document
            text = document["y"] if ending == "generate" else document["outputs"][0]["data"][0]
            assert text.replace(" ", "") == expected, (ending, headers)


async def test_a_sequence_without_its_start_is_the_clients_error(servers: dict[str, Triton]) -> None:
    """As after the loss of the pod that had the sequence."""
    plan = replace(ways.plan("memory"), sequences=True)
    async with balancer([servers["memory"]], plan) as balanced:

        def call() -> list[str]:
            statuses = []
            for module, address in ((httpclient, balanced.http), (grpcclient, balanced.grpc)):
                with module.InferenceServerClient(address) as client:
                    tensor = module.InferInput("x", [1, 1], "BYTES")
                    tensor.set_data_from_numpy(np.array([[b"a"]], object))
                    with pytest.raises(InferenceServerException, match="START flag") as error:
                        client.infer("memory", [tensor], sequence_id=7)
                    statuses.append(error.value.status())
            return statuses

        assert await asyncio.to_thread(call) == ["400", "StatusCode.INVALID_ARGUMENT"]
        assert await counts(balanced) == (2, 0, 0)


async def test_a_full_queue_of_triton_is_no_lost_request(servers: dict[str, Triton]) -> None:
    async with balancer([servers["short"]]) as balanced:
        requests = [
            asyncio.to_thread(post, balanced.http, "/v2/models/short/infer", text_request(data=[str(number)]))
            for number in range(12)
        ]
        statuses = sorted(status for status, _ in await asyncio.gather(*requests))
        reading = await balanced.haproxy.runtime.read()
        assert set(statuses) == {200, 503}
        assert reading.unavailable == statuses.count(503)
        assert (reading.requests, reading.errors, reading.rejected) == (12, 0, 0)
        assert reading.retried == 0
