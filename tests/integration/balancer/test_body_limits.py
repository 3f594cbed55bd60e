"""Requests that are too large, on the real HAProxy 3.0: refused before a pod sees them, and counted as nobody's demand."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
import pytest

from halcyon.balancer.config.retries import MAX_BYTES
from tests.integration.balanced import PLAN, Balanced, new_balanced, raw
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_ins import SERVICE, close

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.more

MOST = 100_000
BOUNDED = replace(PLAN, max_request_bytes=MOST)
PATH = "/v2/models/m/infer"


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as instance:
        await instance.start()
        yield instance


async def post(
    balanced: Balanced, head: str, body: bytes, *, method: str = "POST", path: str = PATH
) -> tuple[int, str]:
    request = f"{method} {path} HTTP/1.1\r\nHost: x\r\nUser-Agent: t\r\n{head}\r\n\r\n".encode() + body
    status, headers, answer = await raw(balanced.haproxy.ports.http, request)
    if status == 200:
        return status, ""
    assert headers["content-type"] == "application/json"
    return status, json.loads(answer)["error"]


def chunked(*sizes: int) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (size, b"x" * size) for size in sizes) + b"0\r\n\r\n"


async def grpc_status(channel: grpc.aio.Channel, size: int, method: str = "ModelInfer") -> str:
    try:
        await channel.unary_unary(SERVICE + method)(b"x" * size, timeout=10 * PATIENCE)
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name} {error.details()}"
    return "OK"


TOO_LARGE = f"the request is larger than {MOST} bytes, the limit for model m"
UNSAID = f"a body of {MAX_BYTES} bytes or more requires Content-Length"


@pytest.mark.parametrize("sequences", [False, True])
async def test_a_body_declared_too_large_is_rejected_before_it_arrives(balanced: Balanced, *, sequences: bool) -> None:
    await balanced.begin(replace(BOUNDED, sequences=sequences))
    assert await post(balanced, f"Content-Length: {MOST}", b"x" * MOST) == (200, "")
    # Nothing of these bodies is ever sent.
    for length in (MOST + 1, 2**31, 2**40):
        assert await post(balanced, f"Content-Length: {length}", b"") == (413, TOO_LARGE)
    assert await post(balanced, f"Content-Length: {MOST + 1}", b"", method="GET", path="/v2") == (413, TOO_LARGE)
    async with balanced.channel as channel:
        assert await grpc_status(channel, MOST) == "OK"
        assert await grpc_status(channel, MOST + 1) == f"RESOURCE_EXHAUSTED {TOO_LARGE}"
        assert await grpc_status(channel, 3_000_000) == f"RESOURCE_EXHAUSTED {TOO_LARGE}"
        assert await grpc_status(channel, MOST + 1, "ServerReady") == f"RESOURCE_EXHAUSTED {TOO_LARGE}"
        # The channel serves on.
        assert await grpc_status(channel, 10) == "OK"
    [pod] = balanced.pods
    assert (pod.http_count, pod.grpc_count) == (1, 2)
    reading = await balanced.haproxy.runtime.read()
    assert (reading.rejected, reading.errors) == (0, 0)


@pytest.mark.parametrize("sequences", [False, True])
async def test_a_body_without_a_length_may_fill_the_first_buffer(balanced: Balanced, *, sequences: bool) -> None:
    await balanced.begin(replace(BOUNDED, sequences=sequences))
    plain = "Transfer-Encoding: chunked"
    assert await post(balanced, plain, chunked(MAX_BYTES + 10_000)) == (411, UNSAID)
    assert await post(balanced, plain, chunked(*[2000] * 20)) == (411, UNSAID)
    assert await post(balanced, plain, chunked(*[2000] * 20), method="GET", path="/v2") == (411, UNSAID)
    # One who never comes to an end is told when it is too much.
    assert await post(balanced, plain, chunked(MAX_BYTES)[:-5]) == (411, UNSAID)
    assert balanced.pods[0].http_count == 0


@pytest.mark.parametrize("head", [5_000, 7_500, 12_000, 20_000, 29_000])
async def test_long_headers_hide_no_body_that_is_too_large(balanced: Balanced, head: int) -> None:
    """They leave less of the buffer for the body than HAProxy waits for."""
    await balanced.begin(BOUNDED)
    long = "X-Token: " + "t" * head
    status, _ = await post(balanced, f"{long}\r\nTransfer-Encoding: chunked", chunked(*[2000] * (MOST // 1000)))
    assert status == 411
    assert await post(balanced, f"{long}\r\nContent-Length: {MOST + 1}", b"") == (413, TOO_LARGE)
    assert await post(balanced, f"{long}\r\nContent-Length: {MOST}", b"x" * MOST) == (200, "")
    assert await post(balanced, long, b"", method="GET", path="/v2") == (200, "")
    assert balanced.pods[0].http_count == 2


@pytest.mark.parametrize("head", [5_000, 7_500, 12_000, 20_000])
async def test_long_metadata_hides_no_message_that_is_too_large(balanced: Balanced, head: int) -> None:
    await balanced.begin(BOUNDED)
    metadata = (("token", "t" * head),)
    async with balanced.channel as channel:
        infer = channel.unary_unary(SERVICE + "ModelInfer")
        with pytest.raises(grpc.aio.AioRpcError, match=TOO_LARGE):
            await infer(b"x" * (MOST + 1), metadata=metadata, timeout=10 * PATIENCE)
    assert balanced.pods[0].grpc_count == 0


async def test_a_limit_below_what_is_seen_at_once_holds_for_every_body(balanced: Balanced) -> None:
    await balanced.begin(replace(BOUNDED, max_request_bytes=1024))
    why = "the request is larger than 1024 bytes, the limit for model m"
    assert await post(balanced, "Content-Length: 1024", b"x" * 1024) == (200, "")
    assert await post(balanced, "Content-Length: 1025", b"x" * 1025) == (413, why)
    assert await post(balanced, "Transfer-Encoding: chunked", chunked(1000, 25)) == (413, why)
    async with balanced.channel as channel:
        assert await grpc_status(channel, 1024) == "OK"
        assert await grpc_status(channel, 1025) == f"RESOURCE_EXHAUSTED {why}"


async def test_a_stream_is_not_counted_to_its_end(balanced: Balanced) -> None:
    await balanced.begin(BOUNDED)
    async with balanced.channel as channel:
        for sizes in ([60_000] * 5, [MOST - 10_000] * 2):
            call = channel.stream_stream(SERVICE + "ModelStreamInfer")(
                iter([b"x" * size for size in sizes]), timeout=10 * PATIENCE
            )
            assert len([answer async for answer in call]) == len(sizes)


async def test_without_a_limit_a_body_without_length_passes(balanced: Balanced) -> None:
    class Any200:
        """A pod that reads whatever comes."""

        def __init__(self) -> None:
            self.bytes = 0

        async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):
                self.bytes = len(await reader.readuntil(b"0\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()

    seen = Any200()
    [pod] = balanced.pods
    await pod.stop()
    server = await asyncio.start_server(seen, pod.address, pod.http_port, limit=2**20)
    try:
        await balanced.begin(PLAN)
        assert await post(balanced, "Transfer-Encoding: chunked", chunked(MOST)) == (200, "")
        assert seen.bytes > MOST
    finally:
        await close(server)
        await pod.start()
