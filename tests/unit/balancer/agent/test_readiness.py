"""State of an agent that has just started. With the real HAProxy: tests/integration/balancer."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from halcyon.balancer.agent.agent import Agent
from halcyon.balancer.agent.drain import BalancerDrain
from halcyon.balancer.agent.settings import AgentSettings
from halcyon.balancer.discovery.kube_watch import ApiServerAccess
from halcyon.balancer.runtime.runtime_api import RuntimeSocket


async def test_an_agent_without_a_plan_is_neither_healthy_nor_ready(tmp_path: Path) -> None:
    agent = Agent(AgentSettings("ns", "m-balancer", "m-balancer-0", tmp_path), ApiServerAccess("https://127.0.0.1:1"))
    assert agent.healthy() == "the plan has not been read yet"
    assert agent.ready() == "HAProxy does not respond"


async def test_a_balancer_stays_unready_from_its_drain_until_haproxy_must_have_stopped(tmp_path: Path) -> None:
    settings = AgentSettings("ns", "m-balancer", "m-balancer-0", tmp_path, stop_within_s=3600.0)
    agent = Agent(settings, ApiServerAccess("https://127.0.0.1:1"))
    await agent.drain(0.0)
    assert agent.ready() == "draining"
    settings = AgentSettings("ns", "m-balancer", "m-balancer-0", tmp_path, stop_within_s=0.0)
    agent = Agent(settings, ApiServerAccess("https://127.0.0.1:1"))
    await agent.drain(0.0)
    assert agent.ready() == "HAProxy does not respond"


async def test_a_drain_waits_for_held_requests_while_haproxy_is_busy(tmp_path: Path) -> None:
    path, answers = str(tmp_path / "haproxy.sock"), ["", "held=1 came=1\n", "", "held=0 came=1\n"]
    answered = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"show held\n"
        answered.append(answers.pop(0))
        if not answered[-1]:
            await reader.read()  # until the agent disconnects
        writer.write(answered[-1].encode())
        writer.close()

    drain = BalancerDrain(RuntimeSocket(path, "", timeout_s=0.1), stop_within_s=1.0)
    async with await asyncio.start_unix_server(answer, path):
        await drain.finish(0.0, time.monotonic() + 30)
    assert (len(answered), answers) == (4, [])
    began = time.monotonic()
    await drain.finish(0.0, began + 30)
    assert time.monotonic() - began < 1, "HAProxy has ended"
