"""Clients that don't finish what they have begun, at the real HAProxy 3.0 with its agent: others are served nevertheless."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from halcyon.balancer.agent.slow_clients import REST_S, SLOW_S, parse
from tests.integration import crowd
from tests.integration.balanced import PLAN, Balanced, agent, endpoint, infer, is_, new_balanced, until
from tests.integration.crowd import Crowd
from tests.integration.waiting import PATIENCE
from tests.ports import free_ports
from tests.unit.balancer.stand_in_api import SLICES, slice_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.more

PLACES = 4
FIRST, ALL = 40_000, 4_000_000
ENDED_S = SLOW_S + 4
"""Time until requests are ended: the agent's looks, and the intervals between them."""
HEAD = "POST /v2/models/m/infer HTTP/1.1\r\nHost: m\r\nContent-Length: %d\r\n\r\n"
UPLOADS = {
    "http": (HEAD % ALL).encode() + b"x" * FIRST,
    "grpc": crowd.preface() + crowd.call(1, "ModelInfer", crowd.message(FIRST, announced=ALL)),
}
UNREAD_BYTES = {"http": 12_000_000, "grpc": 400_000}
"""Sizes of responses that don't fit into all buffers on the way to a client that reads nothing."""
UNREAD = {
    "http": (HEAD % 1).encode() + b"x",
    "grpc": crowd.preface(window=0) + crowd.call(1, "ModelInfer", crowd.message(1), complete=True),
}


@asynccontextmanager
async def served(tmp_path: Path, **options: Any) -> AsyncIterator[Balanced]:
    [metrics_port] = free_ports(1)
    plan = replace(PLAN, max_connections=PLACES, queue_timeout_ms=30_000, response_timeout_ms=60_000)
    async with new_balanced() as balanced:
        [pod] = await balanced.start(metrics_port=metrics_port, **options)
        async with agent(balanced, tmp_path, metrics_port=metrics_port, plan=plan) as process:
            process.api.put(SLICES, "m-server-a-x", slice_of("m-server-a", {endpoint(pod).pod: pod.address}))
            await until(lambda: process.is_("/healthz", 200), 10)
            await asyncio.to_thread(balanced.haproxy.start)
            await until(lambda: process.is_("/readyz", 200), 10)
            await until(lambda: _answers(balanced), 10)
            yield balanced


async def _answers(balanced: Balanced) -> bool:
    return (await _sent(balanced, b""))[0] == 200


async def _sent(balanced: Balanced, body: bytes) -> tuple[int, float]:
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", balanced.haproxy.ports.http)
    try:
        writer.write((HEAD % len(body)).encode() + body)
        head = await asyncio.wait_for(reader.readline(), 30 * PATIENCE)
    finally:
        writer.close()
    return int(head.split()[1]), time.monotonic() - began


@pytest.mark.parametrize("protocol", UPLOADS)
async def test_uploads_that_never_end_leave_servers_to_other_clients(tmp_path: Path, protocol: str) -> None:
    async with served(tmp_path) as balanced:
        ports = balanced.haproxy.ports
        slow = Crowd("127.0.0.9", getattr(ports, protocol))
        try:
            await asyncio.to_thread(slow.come, 3 * PLACES, UPLOADS[protocol])
            await asyncio.sleep(1)
            began = time.monotonic()
            if protocol == "http":
                assert (await _sent(balanced, b"x" * 30))[0] == 200
            else:
                async with balanced.channel as channel:
                    assert await infer(channel, within_s=30 * PATIENCE)
            assert time.monotonic() - began < ENDED_S * PATIENCE
            # More come at once, but none of them to a server.
            await asyncio.to_thread(slow.come, 3 * PLACES, UPLOADS[protocol])
            assert (await _sent(balanced, b"x" * FIRST))[0] == 200
        finally:
            slow.go()


async def test_uploads_of_a_client_that_is_alone_are_never_ended(tmp_path: Path) -> None:
    async with served(tmp_path) as balanced:
        slow = Crowd("127.0.0.1", balanced.haproxy.ports.http)
        try:
            await asyncio.to_thread(slow.come, PLACES, UPLOADS["http"])
            waiting = asyncio.create_task(_sent(balanced, b"x"))
            await asyncio.sleep(ENDED_S)
            assert not waiting.done()
            assert slow.kept() == PLACES
        finally:
            slow.go()
        assert (await waiting)[0] == 200


async def _is_answered(balanced: Balanced, protocol: str, within_s: float) -> None:
    """Check that a request of another client gets its response."""
    began = time.monotonic()
    if protocol == "http":
        assert (await _sent(balanced, b"x" * 30))[0] == 200
    else:
        async with balanced.channel as channel:
            assert await infer(channel, within_s=30 * PATIENCE)
    assert time.monotonic() - began < within_s * PATIENCE


@pytest.mark.parametrize("protocol", UNREAD)
async def test_responses_that_are_not_read_leave_servers_to_other_clients(tmp_path: Path, protocol: str) -> None:
    async with served(tmp_path, answer_bytes=UNREAD_BYTES[protocol]) as balanced:
        slow = Crowd("127.0.0.9", getattr(balanced.haproxy.ports, protocol))
        try:
            await asyncio.to_thread(slow.come, 3 * PLACES, UNREAD[protocol])
            await asyncio.sleep(1)
            await _is_answered(balanced, protocol, ENDED_S)
            # More come at once. The first of them may hold places beside those that were not ended.
            for within_s in (ENDED_S, 1.0):
                await asyncio.to_thread(slow.come, 3 * PLACES, UNREAD[protocol])
                await asyncio.sleep(0.5)
                await _is_answered(balanced, protocol, within_s)
            sessions = parse(await balanced.haproxy.runtime.sessions())
            assert (
                sum(session.source == "127.0.0.9" and session.waits_for == "response" for session in sessions) < PLACES
            )
        finally:
            slow.go()


@pytest.mark.parametrize("body", [None, crowd.message(1)], ids=["no message", "an answered message"])
async def test_streams_that_rest_leave_servers_to_other_clients(tmp_path: Path, body: bytes | None) -> None:
    async with served(tmp_path) as balanced:
        resting = Crowd("127.0.0.9", balanced.haproxy.ports.grpc)
        try:
            streams = (crowd.call(2 * number + 1, "ModelStreamInfer", body) for number in range(3 * PLACES))
            await asyncio.to_thread(resting.come, 1, crowd.preface() + b"".join(streams))
            await asyncio.sleep(1)
            await _is_answered(balanced, "grpc", REST_S + ENDED_S)
        finally:
            resting.go()


async def test_streams_whose_model_computes_are_never_ended(tmp_path: Path) -> None:
    async with served(tmp_path) as balanced:
        [pod] = balanced.pods
        pod.hold = asyncio.Event()
        busy, waiting = (Crowd(source, balanced.haproxy.ports.grpc) for source in ("127.0.0.9", "127.0.0.10"))
        try:
            streams = (crowd.call(2 * n + 1, "ModelStreamInfer", crowd.message(1)) for n in range(PLACES))
            await asyncio.to_thread(busy.come, 1, crowd.preface() + b"".join(streams))
            await until(lambda: is_(lambda: pod.running == PLACES))
            call = crowd.call(1, "ModelInfer", crowd.message(1), complete=True)
            await asyncio.to_thread(waiting.come, 1, crowd.preface() + call)
            await asyncio.sleep(REST_S + ENDED_S)
            sources = [
                (session.source, session.is_waiting) for session in parse(await balanced.haproxy.runtime.sessions())
            ]
            assert sorted(sources) == [("127.0.0.10", True), *[("127.0.0.9", False)] * PLACES]
            pod.hold.set()
            await until(lambda: is_(lambda: pod.grpc_count == PLACES + 1))
        finally:
            busy.go()
            waiting.go()
