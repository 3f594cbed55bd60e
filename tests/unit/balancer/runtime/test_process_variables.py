"""Variables that HAProxy loses if it restarts. With the real HAProxy: tests/integration/balancer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.balancer.config.queueing import RATE
from halcyon.balancer.runtime.haproxy_stats import HaproxyStats
from halcyon.balancer.runtime.process_variables import Variables
from halcyon.balancer.runtime.rate_feedback import RateFeedback
from halcyon.balancer.runtime.runtime_api import RuntimeSocket

if TYPE_CHECKING:
    from pathlib import Path

PLAN = BalancerPlan("default", "m", "m", (Slot("a", "m-a", 100, 4),), 48, 200, 60000, 60000, 30000)


async def test_variables_are_written_again_after_a_restart_with_the_same_process_id(tmp_path: Path) -> None:
    path, received = str(tmp_path / "haproxy.sock"), []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append((await reader.readline()).decode())
        writer.write(b"\n")
        writer.close()

    async with await asyncio.start_unix_server(answer, path):
        feedback = RateFeedback(Variables(RuntimeSocket(path, "")))
        for number, started_s in enumerate((1000, 1000, 1060)):
            reading = HaproxyStats(at=0.0, process=8, config="", started_s=started_s)
            await feedback.update(PLAN, reading, {}, servers=1, now=float(number))
    assert len(received) == 2
    assert all(f"set var {RATE} int(0)" in line for line in received)
