"""Clients that don't finish sending large requests, at the real HAProxy 3.0 with its agent: others are served nevertheless."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from halcyon.balancer.agent.slow_uploads import SLOW_S
from tests.integration import crowd
from tests.integration.balanced import PLAN, Balanced, agent, endpoint, infer, one, until
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
SLOW = {
    "http": (HEAD % ALL).encode() + b"x" * FIRST,
    "grpc": crowd.preface() + crowd.call(1, "ModelInfer", crowd.message(FIRST, announced=ALL)),
}


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[Balanced]:
    [metrics_port] = free_ports(1)
    plan = replace(PLAN, max_connections=PLACES, queue_timeout_ms=30_000, response_timeout_ms=60_000)
    async with one() as balanced:
        [pod] = await balanced.start(metrics_port=metrics_port)
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


@pytest.mark.parametrize("protocol", SLOW)
async def test_uploads_that_never_end_leave_servers_to_other_clients(tmp_path: Path, protocol: str) -> None:
    async with served(tmp_path) as balanced:
        ports = balanced.haproxy.ports
        slow = Crowd("127.0.0.9", getattr(ports, protocol))
        try:
            await asyncio.to_thread(slow.come, 3 * PLACES, SLOW[protocol])
            await asyncio.sleep(1)
            began = time.monotonic()
            if protocol == "http":
                assert (await _sent(balanced, b"x" * 30))[0] == 200
            else:
                async with balanced.channel as channel:
                    assert await infer(channel, within_s=30 * PATIENCE)
            assert time.monotonic() - began < ENDED_S * PATIENCE
            # More come at once, but none of them to a server.
            await asyncio.to_thread(slow.come, 3 * PLACES, SLOW[protocol])
            assert (await _sent(balanced, b"x" * FIRST))[0] == 200
        finally:
            slow.go()


async def test_uploads_of_a_client_that_is_alone_are_never_ended(tmp_path: Path) -> None:
    async with served(tmp_path) as balanced:
        slow = Crowd("127.0.0.1", balanced.haproxy.ports.http)
        try:
            await asyncio.to_thread(slow.come, PLACES, SLOW["http"])
            waiting = asyncio.create_task(_sent(balanced, b"x"))
            await asyncio.sleep(ENDED_S)
            assert not waiting.done()
            assert slow.kept() == PLACES
        finally:
            slow.go()
        assert (await waiting)[0] == 200
