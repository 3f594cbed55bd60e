"""Streams of a decoupled model, `generate_stream` and ModelStreamInfer, from real Triton servers through the real HAProxy 3.0."""

from __future__ import annotations

import asyncio
import socket
import statistics
import struct
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.grpc import service_pb2

from benchmarks.dataplane import tritons, ways
from benchmarks.right.client_models import Balancer, Events, balancer, endpoint
from benchmarks.right.streams import METHOD, Stream, over_grpc, over_http
from tests.integration.crowd import fields_of, frame, preface
from tests.integration.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from benchmarks.dataplane.tritons import Triton

pytestmark = pytest.mark.more

PLAN = replace(ways.plan("events"), drain_ms=2000)
PROTOCOLS = ["http", "grpc"]


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Triton]]:
    with tritons.running([Events(), Events()]) as started:
        yield started


@asynccontextmanager
async def streams(
    address: str, protocol: str, count: int, *, events: int, pause_s: float
) -> AsyncIterator[list[asyncio.Task[Stream]]]:
    """Yield `count` running streams; gRPC streams share a channel."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        coroutines = [
            over_http(address, events, pause_s) if protocol == "http" else over_grpc(channel, events, pause_s)
            for _ in range(count)
        ]
        yield [asyncio.create_task(stream) for stream in coroutines]


async def ended(address: str, protocol: str, count: int, *, events: int, pause_s: float) -> list[Stream]:
    async with streams(address, protocol, count, events=events, pause_s=pause_s) as running:
        return await asyncio.gather(*running)


def address_of(balanced: Balancer, protocol: str) -> str:
    return balanced.http if protocol == "http" else balanced.grpc


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_events_pass_at_once_and_headers_with_the_first(servers: list[Triton], protocol: str) -> None:
    direct = f"{servers[0].address}:{tritons.HTTP_PORT}" if protocol == "http" else servers[0].grpc
    async with balancer(servers[:1], PLAN) as balanced:
        directly, through = [
            await ended(address, protocol, 8, events=20, pause_s=0.1)
            for address in (direct, address_of(balanced, protocol))
        ]
        reading = await balanced.haproxy.runtime.read()
    assert reading.first_events is not None
    # All of them waited for the first event, 0.1 s, and none as long as for the second.
    assert (reading.first_events.answered, reading.first_events.slower[6]) == (8, 8)
    assert reading.first_events.total_ms < 8 * 200 * PATIENCE
    assert reading.clients is not None
    assert reading.clients.answered == 8
    medians_ms = []
    for finished in (directly, through):
        assert [(stream.end, len(stream.delays_ms)) for stream in finished] == [("whole", 20)] * 8
        assert all(0.1 <= stream.first_s < 1 for stream in finished)
        # The latency of clients that balancers count ends with the headers, so it is the time to the first event.
        assert all(stream.first_s - stream.headers_s < 0.05 for stream in finished if protocol == "http")
        medians_ms.append(statistics.median(delay for stream in finished for delay in stream.delays_ms))
    assert medians_ms[1] <= medians_ms[0] + 5 * PATIENCE


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_drain_ends_after_streams_and_clients_detect_a_cut(servers: list[Triton], protocol: str) -> None:
    async with balancer(servers[:1], PLAN) as balanced:
        address = address_of(balanced, protocol)
        async with (
            streams(address, protocol, 4, events=10, pause_s=0.1) as short,
            streams(address, protocol, 4, events=100, pause_s=0.1) as long,
        ):
            await asyncio.sleep(0.5)
            leaving = (endpoint(servers[0], terminating=True), endpoint(servers[1]))
            while not all(task.done() for task in (*short, *long)):
                await balanced.controller.run_pass(leaving)
                await asyncio.sleep(0.05)
            assert [(stream.end, len(stream.delays_ms)) for stream in await asyncio.gather(*short)] == [
                ("whole", 10)
            ] * 4
            cut = await asyncio.gather(*long)
        assert [stream.end for stream in cut] == ["cut"] * 4, cut
        assert all(15 < len(stream.delays_ms) < 60 for stream in cut)
        # New streams go to the other server.
        [fresh] = await ended(address, protocol, 1, events=1, pause_s=0.01)
        assert fresh.end == "whole"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_rollout_and_a_canary_cut_no_stream(servers: list[Triton], protocol: str) -> None:
    old, new = servers
    async with balancer([old], PLAN) as balanced:
        async with streams(address_of(balanced, protocol), protocol, 8, events=15, pause_s=0.1) as running:
            await asyncio.sleep(0.4)
            # A canary adds the other slot, which reloads HAProxy; then its weight changes, and the old pod leaves.
            for weights in ((90, 10), (0, 100)):
                slots = tuple(
                    replace(PLAN.slots[0], name=n, service=f"m-server-{n}", weight=w)
                    for n, w in zip("ab", weights, strict=True)
                )
                balanced.controller.accept(replace(PLAN, slots=slots))
                await balanced.controller.run_pass((endpoint(old), endpoint(new, "b")))
            for _ in range(3):
                await balanced.controller.run_pass((endpoint(old, terminating=True), endpoint(new, "b")))
            ended = await asyncio.gather(*running)
        assert balanced.controller.reloads >= 1
    assert [(stream.end, len(stream.delays_ms)) for stream in ended] == [("whole", 15)] * 8, ended


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_killed_server_ends_its_streams_as_cut(protocol: str) -> None:
    with tritons.running([Events()]) as servers:
        async with (
            balancer(servers, PLAN) as balanced,
            streams(address_of(balanced, protocol), protocol, 4, events=100, pause_s=0.05) as running,
        ):
            await asyncio.sleep(0.6)
            await asyncio.to_thread(servers[0].kill)
            ended = await asyncio.wait_for(asyncio.gather(*running), 20 * PATIENCE)
    assert [stream.end for stream in ended] == ["cut"] * 4, ended
    assert all(stream.delays_ms for stream in ended)


def message(count: int, model: str = "events") -> bytes:
    """Return a request for `count` events as gRPC sends it."""
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="x", datatype="FP32", shape=[2])
    request.raw_input_contents.append(struct.pack("<ff", count, 0.01))
    return bytes(request.SerializeToString())


def ending(address: str, messages: list[bytes], metadata: str, *, waits: bool) -> tuple[int, str, str]:
    """Return the number of responses, the status and the message of a stream. Its client ends it, or waits for its end."""
    rest = threading.Event()

    def sent() -> Iterator[bytes]:
        yield from messages
        if waits:
            rest.wait(20 * PATIENCE)

    with grpc.insecure_channel(address) as channel:
        call = channel.stream_stream(METHOD)(sent(), timeout=15 * PATIENCE, metadata=[("m", metadata)])
        count = 0
        try:
            count = sum(1 for _ in call)
        except grpc.RpcError:
            pass  # its status is compared
        finally:
            rest.set()
        return count, call.code().name, call.details()


@pytest.mark.parametrize(
    ("messages", "metadata", "waits", "expected"),
    [
        ([], "", False, (0, "OK", "")),
        ([message(0)], "", False, (0, "OK", "")),
        ([message(2)], "", False, (2, "OK", "")),
        ([message(2, "other")], "", False, (1, "OK", "")),
        ([b"\xff\xff"], "", False, (0, "OK", "")),
        ([b"\xff\xff"], "", True, (0, "OK", "")),
        ([message(2)], "m" * 17_000, False, (0, "RESOURCE_EXHAUSTED", "received metadata size exceeds hard limit")),
        ([message(2)], "m" * 17_000, True, (0, "RESOURCE_EXHAUSTED", "received metadata size exceeds hard limit")),
    ],
    ids=[
        "no message",
        "no response",
        "responses",
        "an error in a message",
        "a malformed message",
        "a malformed message of a client that waits",
        "long metadata",
        "long metadata of a client that waits",
    ],
)
async def test_streams_end_with_the_status_of_their_server(
    servers: list[Triton], messages: list[bytes], metadata: str, waits: bool, expected: tuple[int, str, str]
) -> None:
    async with balancer(servers[:1], PLAN) as balanced:
        for address in (servers[0].grpc, balanced.grpc):
            count, status, text = await asyncio.to_thread(ending, address, messages, metadata, waits=waits)
            assert (count, status, text[: len(expected[2])]) == expected, address
        reading = await balanced.haproxy.runtime.read()
        assert (reading.requests, reading.errors, reading.broken, reading.inflight) == (1, 0, 0, 0)


async def test_an_end_without_a_response_is_in_headers_with_content_type(servers: list[Triton]) -> None:
    """Clients in Go require the content type, and all clients the end of the stream in these headers."""

    def frames_of(address: str) -> list[tuple[int, int, bytes]]:
        host, port = address.split(":")
        fields = {
            b":method": b"POST",
            b":scheme": b"http",
            b":path": METHOD.encode(),
            b":authority": b"m",
            b"content-type": b"application/grpc",
            b"te": b"trailers",
        }
        with socket.create_connection((host, int(port)), timeout=20 * PATIENCE) as connection:
            # The frame of the headers has the flags END_STREAM and END_HEADERS.
            connection.sendall(preface() + frame(1, 5, 1, fields_of(fields, kind=0)))
            received = connection.makefile("rb")
            frames: list[tuple[int, int, bytes]] = []
            while not frames or not frames[-1][1] & 1:
                head = received.read(9)
                payload = received.read(int.from_bytes(head[:3], "big"))
                if int.from_bytes(head[5:], "big") == 1:
                    frames.append((head[3], head[4], payload))
            return frames

    async with balancer(servers[:1], PLAN) as balanced:
        [(kind, flags, payload)] = await asyncio.to_thread(frames_of, balanced.grpc)
        assert (kind, flags & 1) == (1, 1)
        assert b"application/grpc" in payload
        assert b"grpc-status\x010" in payload


async def test_the_final_response_of_each_request_reaches_its_client(servers: list[Triton]) -> None:
    def call(address: str) -> dict[str, list[tuple[bool, int]]]:
        responses: dict[str, list[tuple[bool, int]]] = {"a": [], "b": []}
        ends = threading.Semaphore(0)

        def received(result: Any, error: Any) -> None:
            assert error is None
            response = result.get_response()
            is_final = response.parameters["triton_final_response"].bool_param
            responses[response.id].append((is_final, len(response.outputs)))
            if is_final:
                ends.release()

        with grpcclient.InferenceServerClient(address) as client:
            client.start_stream(received)
            for number in responses:
                tensor = grpcclient.InferInput("x", [2], "FP32")
                tensor.set_data_from_numpy(np.array([2, 0.01], np.float32))
                client.async_stream_infer("events", [tensor], request_id=number, enable_empty_final_response=True)
            for _ in responses:
                assert ends.acquire(timeout=20 * PATIENCE)
            client.stop_stream()
        return responses

    async with balancer(servers, PLAN) as balanced:
        expected = [(False, 1), (False, 1), (True, 0)]
        assert await asyncio.to_thread(call, balanced.grpc) == {"a": expected, "b": expected}
