"""Clients 50 ms away, and their keepalive pings, on real Triton servers and the real HAProxy 3.0."""

from __future__ import annotations

import asyncio
import socket
import statistics
import struct
import time
from contextlib import ExitStack
from queue import SimpleQueue

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.grpc import service_pb2

from benchmarks.dataplane import tritons
from benchmarks.relay import far
from benchmarks.right.client_models import Events, Wide, balancer
from halcyon.render import server_start
from tests.integration.crowd import call, preface
from tests.integration.waiting import PATIENCE

pytestmark = pytest.mark.more

ROUND_TRIP_S = 0.05


def times_s(address: str, values: int) -> list[float]:
    """Return how long each of five requests takes, after a first one."""
    tensor = grpcclient.InferInput("x", [1, values], "FP32")
    tensor.set_data_from_numpy(np.ones((1, values), np.float32))
    took_s = []
    with grpcclient.InferenceServerClient(address) as client:
        for _ in range(6):
            began = time.monotonic()
            client.infer("wide", [tensor])
            took_s.append(time.monotonic() - began)
    return took_s[1:]


@pytest.mark.parametrize(("sent", "answered"), [(150_000, 1), (1_000_000, 1), (1, 1_000_000)])
async def test_a_far_client_takes_at_most_twice_the_direct_time(sent: int, answered: int) -> None:
    with tritons.running([Wide(outputs=answered)]) as servers:
        async with balancer(servers) as balanced:
            with ExitStack() as stack:
                addresses = [
                    stack.enter_context(far(to, round_trip_s=ROUND_TRIP_S)) for to in (servers[0].grpc, balanced.grpc)
                ]
                directly, through = [
                    statistics.median(await asyncio.to_thread(times_s, address, sent)) for address in addresses
                ]
    assert directly >= ROUND_TRIP_S
    assert through <= 2 * directly * PATIENCE


PINGS = grpcclient.KeepAliveOptions(
    keepalive_time_ms=6_000,
    keepalive_timeout_ms=5_000,
    keepalive_permit_without_calls=True,
    http2_max_pings_without_data=0,
)


def pinged(address: str) -> None:
    """Send pings during a request of 26 s, then on an idle channel."""
    with grpcclient.InferenceServerClient(address, keepalive_options=PINGS) as client:
        answers: SimpleQueue[bytes | Exception] = SimpleQueue()
        client.start_stream(lambda result, error: answers.put(error or result.as_numpy("word")[0]))
        tensor = grpcclient.InferInput("x", [2], "FP32")
        tensor.set_data_from_numpy(np.array([1, 26], np.float32))
        client.async_stream_infer("events", [tensor])
        assert isinstance(answers.get(timeout=40 * PATIENCE), bytes)
        client.stop_stream()
        time.sleep(20)
        assert client.is_server_live()


@pytest.mark.parametrize("mode", ["Balancer", "Direct"])
async def test_pings_break_no_request_and_no_idle_channel(mode: str) -> None:
    # By default, Triton closes a channel at the third ping, with ENHANCE_YOUR_CALM, so after 18 s here.
    arguments = server_start.direct_clients(drain_s=90) if mode == "Direct" else ()
    with tritons.running([Events()], arguments=arguments) as servers:
        async with balancer(servers) as balanced:
            await asyncio.to_thread(pinged, servers[0].grpc if mode == "Direct" else balanced.grpc)


def slow_reader(address: str) -> socket.socket:
    """Request a response of 4 MB on a connection of its own, and read none of it."""
    host, _, port = address.rpartition(":")
    body = service_pb2.ModelInferRequest(model_name="wide", raw_input_contents=[bytes(4)])
    body.inputs.add(name="x", datatype="FP32").shape.extend([1, 1])
    text = body.SerializeToString()
    connection = socket.create_connection((host, int(port)))
    connection.sendall(preface() + call(1, "ModelInfer", b"\0" + struct.pack(">I", len(text)) + text, complete=True))
    return connection


def live_s(address: str) -> float:
    """Return the longest time of five read requests."""
    took = []
    with grpcclient.InferenceServerClient(address) as client:
        for _ in range(5):
            began = time.monotonic()
            assert client.is_server_live(client_timeout=10)
            took.append(time.monotonic() - began)
    return max(took)


async def test_a_client_that_reads_slowly_stops_no_other_client() -> None:
    with tritons.running([Wide(outputs=1_000_000)]) as servers:
        async with balancer(servers) as balanced:
            await asyncio.to_thread(live_s, balanced.grpc)
            with slow_reader(balanced.grpc), slow_reader(balanced.grpc):
                # Their responses have filled HAProxy's buffers by then.
                await asyncio.sleep(1)
                assert await asyncio.to_thread(live_s, balanced.grpc) < 0.5 * PATIENCE
