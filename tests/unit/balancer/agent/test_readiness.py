"""State of an agent that has just started. With the real HAProxy: tests/integration/balancer."""

from __future__ import annotations

from pathlib import Path

from halcyon.balancer.agent.agent import Agent
from halcyon.balancer.agent.settings import AgentSettings
from halcyon.balancer.discovery.kube_watch import ApiServerAccess


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
