"""Times and shares of one client at the real HAProxy 3.0, without its agent: handshakes, unread responses, resets and streams."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from halcyon.balancer.config import client_limits, haproxy_cfg
from halcyon.balancer.config.memory_budget import MAX_STREAMS
from halcyon.balancer.config.model import TlsFiles
from halcyon.balancer.runtime.controller import HaproxyController
from tests.integration import crowd
from tests.integration.balanced import PLAN, Balanced, infer, is_, new_balanced, raw, until
from tests.integration.certificates import pair
from tests.integration.crowd import Crowd, frame
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_ins import SERVICE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.more

POST = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: m\r\nContent-Length: 1\r\n%s\r\nx"
LARGE = {
    "http": POST % b"answer-bytes: 12000000\r\n",
    "grpc": crowd.preface(window=0)
    + crowd.call(1, "ModelInfer", crowd.message(1), complete=True, more={b"answer-bytes": b"400000"}),
}
"""Requests whose responses don't fit into all buffers on the way to a client that reads nothing."""
_RST_STREAM, _WINDOW_UPDATE = 3, 8


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    with crowd.files(8_000):
        async with new_balanced() as instance:
            await instance.start()
            yield instance


@pytest.mark.parametrize("protocol", LARGE)
async def test_a_response_that_is_not_read_ends_after_its_timeout(
    balanced: Balanced, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_limits, "_UNREAD_MS", 1000)
    await balanced.begin(replace(PLAN, max_connections=1, queue_timeout_ms=30_000))
    ports = balanced.haproxy.ports
    unread = Crowd("127.0.0.9", getattr(ports, protocol))
    try:
        await asyncio.to_thread(unread.come, 1, LARGE[protocol])
        await asyncio.sleep(0.3)
        async with asyncio.timeout(5 * PATIENCE):
            if protocol == "http":
                assert (await raw(ports.http, POST % b""))[0] == 200
            else:
                async with balanced.channel as channel:
                    assert await infer(channel)
    finally:
        unread.go()


async def test_a_handshake_that_never_ends_is_ended(balanced: Balanced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(haproxy_cfg, "_HANDSHAKE_MS", 1000)
    haproxy, served = balanced.haproxy, pair()
    (haproxy.directory / "certificate.pem").write_text(served.crt + served.key)
    listen = replace(haproxy.listen, tls=TlsFiles("certificate.pem"))
    balanced.pilot = HaproxyController(haproxy.runtime, haproxy.config, listen)
    await balanced.begin()
    for port in (haproxy.ports.http, haproxy.ports.grpc):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        # The beginning of a ClientHello.
        writer.write(b"\x16\x03\x01\x02\x00\x01")
        assert await asyncio.wait_for(reader.read(1), 3 * PATIENCE) == b""
        writer.close()


async def test_calls_that_are_reset_at_once_are_not_counted(balanced: Balanced) -> None:
    await balanced.begin()
    reader, writer = await asyncio.open_connection("127.0.0.1", balanced.haproxy.ports.grpc)
    try:
        cancel = struct.pack(">I", 8)
        calls = [
            crowd.call(2 * number + 1, "ModelInfer", crowd.message(1)) + frame(_RST_STREAM, 0, 2 * number + 1, cancel)
            for number in range(200)
        ]
        writer.write(crowd.preface() + b"".join(calls))
        await writer.drain()
        await asyncio.sleep(0.5)
        assert await balanced.counters() == (0, 0, 0)
        # Other calls of the same channel are answered.
        writer.write(crowd.call(1001, "ModelInfer", crowd.message(1), complete=True))
        await until(lambda: is_(lambda: balanced.pods[0].grpc_count == 1))
        assert (await balanced.counters())[0] == 1
        assert not reader.at_eof()
    finally:
        writer.close()


async def test_streams_of_one_client_leave_the_queue_to_others(balanced: Balanced) -> None:
    """A stream reaches a queue after two hops, and the next ones have passed the queue's limit by then."""
    await balanced.begin(replace(PLAN, max_connections=4, queue_limit=40))
    many = Crowd("127.0.0.9", balanced.haproxy.ports.grpc)
    streams = (crowd.call(2 * number + 1, "ModelStreamInfer", crowd.message(1)) for number in range(250))
    try:
        await asyncio.to_thread(many.come, 4, crowd.preface() + b"".join(streams))
        for _ in range(10):
            assert (await raw(balanced.haproxy.ports.http, POST % b""))[0] == 200
            loads = await balanced.haproxy.runtime.loads()
            assert loads.waiting["a"][1] <= 50
            await asyncio.sleep(0.1)
    finally:
        many.go()


async def test_streams_of_one_source_leave_streams_to_others(balanced: Balanced) -> None:
    await balanced.begin(replace(PLAN, max_connections=2 * MAX_STREAMS, queue_limit=4000))
    [pod] = balanced.pods
    many = Crowd("127.0.0.9", balanced.haproxy.ports.grpc)
    streams = (crowd.call(2 * number + 1, "ModelStreamInfer", crowd.message(1)) for number in range(250))
    try:
        await asyncio.to_thread(many.come, 6, crowd.preface() + b"".join(streams))
        await until(lambda: is_(lambda: pod.seen.count(SERVICE + "ModelStreamInfer") > MAX_STREAMS // 2), 20)
        await asyncio.sleep(1)
        assert pod.seen.count(SERVICE + "ModelStreamInfer") <= MAX_STREAMS * 3 // 4 + 1
        with balanced.threaded_channel() as channel:
            stream = channel.stream_stream(SERVICE + "ModelStreamInfer")(iter([b"x"]), timeout=10 * PATIENCE)
            assert len(await asyncio.to_thread(list, stream)) == 1
    finally:
        many.go()
