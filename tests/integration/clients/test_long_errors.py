"""Errors of a model with long messages, from real Triton servers through the real HAProxy 3.0, compared with those of Triton itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import numpy as np
import pytest
import tritonclient.grpc.aio as triton_grpc
import tritonclient.http.aio as triton_http
from tritonclient.utils import InferenceServerException

from benchmarks.dataplane import tritons, ways
from benchmarks.right.client_models import balancer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.dataplane.tritons import Triton

pytestmark = pytest.mark.more

_CONFIG = """backend: "python"
input [ { name: "length" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
_MODEL = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.response(int(pb_utils.get_input_tensor_by_name(r, "length").as_numpy()[0])) for r in requests]

    def response(self, length):
        if length:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("e" * length))
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", np.ones(1, np.int32))])
"""


@dataclass(frozen=True)
class Failing:
    """A model that fails with a message of as many letters as its input requests, and succeeds for 0."""

    name: str = "failing"

    @property
    def files(self) -> dict[str, str]:
        return {"config.pbtxt": _CONFIG, "1/model.py": _MODEL}


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Triton]]:
    with tritons.running([Failing(), Failing()]) as started:
        yield started


async def outcome(address: str, protocol: str, length: int) -> tuple[str, int]:
    """The status and the length of the message of an error; the status is empty after a success."""
    module = triton_http if protocol == "http" else triton_grpc
    async with module.InferenceServerClient(address) as client:
        tensor = module.InferInput("length", [1], "INT32")
        tensor.set_data_from_numpy(np.array([length], np.int32))
        try:
            await client.infer("failing", [tensor])
        except InferenceServerException as error:
            return str(error.status()), len(error.message())
    return "", 0


@pytest.mark.parametrize(
    # gRPC's clients reject metadata between 8 and 16 KiB at random, also without balancers.
    ("protocol", "lengths"),
    [("http", (100, 20_000, 200_000)), ("grpc", (100, 6000, 20_000))],
)
async def test_a_long_error_reaches_the_client_as_triton_sends_it(
    servers: list[Triton], protocol: str, lengths: tuple[int, ...]
) -> None:
    direct = f"{servers[0].address}:{tritons.HTTP_PORT}" if protocol == "http" else servers[0].grpc
    async with balancer(servers, ways.plan("failing")) as balanced:
        through = balanced.http if protocol == "http" else balanced.grpc
        for length in lengths:
            (status, shown), (expected, full_length) = [
                await outcome(address, protocol, length) for address in (through, direct)
            ]
            assert (status, abs(shown - full_length) < 10) == (expected, True), length
        assert (await balanced.haproxy.runtime.read()).retried == 0


async def test_a_grpc_error_beyond_a_buffer_costs_no_server(servers: list[Triton]) -> None:
    """docs/limits.md has this: the status is UNAVAILABLE, and a second server may execute the request."""
    async with balancer(servers, ways.plan("failing")) as balanced:
        for _ in range(4):
            status, _ = await outcome(balanced.grpc, "grpc", 200_000)
            assert status == str(grpc.StatusCode.UNAVAILABLE)
            assert await outcome(balanced.grpc, "grpc", 0) == ("", 0)
        assert (await balanced.haproxy.runtime.read()).retried <= 4
