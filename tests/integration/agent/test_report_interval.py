"""How often an agent speaks, at its real pace: real sockets and TLS, virtual time."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from halcyon.api.documents.balancer_plan import CollectorAddress
from halcyon.api.documents.observation_report import AgentReport, BalancerSample, PodSample
from halcyon.balancer.telemetry.report_stream import ReportStream
from tests.unit.balancer.stand_in_api import StandIn, certificate
from tests.unit.kube.virtual_time import VirtualTime, run

NAME = "halcyon.halcyon-system.svc"
ARRIVES_S = 0.004
LIVED_S = 30


def report_at(at: float, requests: int) -> AgentReport:
    pods = (PodSample("p", "ready", at),)
    return AgentReport("team", "digits", "digits-balancer-0", at, BalancerSample(0, 0, requests, 0, 0), pods)


def report_times(directory: Path, *, looks_per_s: int, requests_per_look: int) -> list[float]:
    """When an operator replica hears an agent."""

    async def scenario(time: VirtualTime) -> list[float]:
        tls, pem = certificate(directory, name=NAME)
        token = directory / "token"
        token.write_text("one\n")
        replica = await StandIn().start(tls=tls)

        async def resolve(_host: str, _port: int) -> list[str]:
            return ["127.0.0.1"]

        uplink = ReportStream(CollectorAddress("halcyon-agents", replica.port, NAME, pem), token, resolve=resolve)
        speaking = asyncio.ensure_future(uplink.run())
        for n in range(looks_per_s * LIVED_S):
            uplink.publish(report_at(time(), n * requests_per_look))
            await asyncio.sleep(1 / looks_per_s)
        times = [at for at, _ in replica.records]
        speaking.cancel()
        await asyncio.wait({speaking})
        await replica.stop()
        return times

    return run(scenario, sockets_s=ARRIVES_S)


def longest_pause_s(times: list[float]) -> float:
    """Before the first and after the last as well."""
    return max(after - before for before, after in itertools.pairwise([0.0, *times, LIVED_S]))


def test_an_idle_agent_reports_every_five_seconds_and_hardly_more_often(tmp_path: Path) -> None:
    times = report_times(tmp_path, looks_per_s=1, requests_per_look=0)

    assert longest_pause_s(times) <= 5
    assert len(times) <= LIVED_S / 4


def test_an_agent_with_news_at_each_sample_reports_about_once_a_second(tmp_path: Path) -> None:
    times = report_times(tmp_path, looks_per_s=4, requests_per_look=5)

    assert longest_pause_s(times) <= 2
    assert len(times) <= 1.15 * LIVED_S
