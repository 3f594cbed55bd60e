"""Thousands of agents behind one address come back to a restarted operator, while others hold idle connections."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from halcyon.api.documents.balancer_plan import CollectorAddress
from halcyon.balancer.telemetry.report_stream import ReportStream
from halcyon.metricsapi.certificates import renewed
from tests.integration.served_ports import allow_open_files, served
from tests.integration.waiting import PATIENCE
from tests.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable
    from pathlib import Path

AGENTS = 2000
LIMIT_S = 15.0 * PATIENCE
MAX_CPU_S = 7.5
"""Maximum CPU time of the operator's ports. Unlike the time on the clock, it doesn't depend on what else the machine does."""
IDLE = 300
IDLE_PAUSE_S = 3.0
"""Number of clients that hold a connection without a request, and the pause before they open another one."""


async def here(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


async def idle(port: int) -> None:
    """Hold a connection on which nothing is sent, and open another one when it is closed."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await reader.read(1)
            finally:
                writer.transport.abort()
        await asyncio.sleep(random.uniform(0.5, 1.5) * IDLE_PAUSE_S)


@contextlib.asynccontextmanager
async def running(work: Iterable[Coroutine[None, None, None]]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def agents(port: int, ca_pem: str, folder: Path) -> list[ReportStream]:
    """Return the streams of agents, each of a model of its own."""
    collector = CollectorAddress("localhost", port, "localhost", ca_pem)
    streams = []
    for number in range(AGENTS):
        token = folder / f"m{number}"
        token.write_text(token.name)
        streams.append(ReportStream(collector, token, resolve=here))
    return streams


@pytest.mark.more
async def test_2000_agents_of_one_address_come_back(tmp_path: Path) -> None:
    """The agents have the address of a flood of idle connections, and have searched the operator while it was down."""
    allow_open_files()
    (port,) = free_ports(1)
    certificates = renewed(None, ("localhost",), datetime.now(UTC))
    streams = agents(port, certificates.bundle_pem, tmp_path)
    async with running(stream.run() for stream in streams), running(idle(port) for _ in range(IDLE)):
        await asyncio.sleep(3)
        with served(port, certificates) as site:
            began_s = time.monotonic()
            while (connected := sum(stream.connected for stream in streams)) < AGENTS:
                assert time.monotonic() < began_s + LIMIT_S, f"{connected} of {AGENTS} agents are back"
                await asyncio.sleep(0.1)
            cpu_s = site.cpu_s()
    assert cpu_s <= MAX_CPU_S
