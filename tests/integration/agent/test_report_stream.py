from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from halcyon.api.documents.balancer_plan import CollectorAddress
from halcyon.api.documents.observation_report import AgentReport, BalancerSample, PodSample
from halcyon.api.documents.pod_notice import Notice
from halcyon.balancer.telemetry import report_stream
from halcyon.balancer.telemetry.reconnect_pause import PauseLimits
from halcyon.balancer.telemetry.report_stream import ReportStream, SendInterval
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_in_api import StandIn, certificate
from tests.unit.kube.virtual_time import VirtualTime, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

NAME = "halcyon.halcyon-system.svc"
ARRIVES_S = 0.02
"""Real time that what is sent may take."""
FAST = SendInterval(0.2, 1.0, PauseLimits(min_s=0.02, max_short_s=0.1, max_s=0.1), steady_s=0.1)
RECORD = AgentReport(
    "default", "m", "m-balancer-x", 1.0, BalancerSample(0, 0, 0, 0, 0), (PodSample("p", "ready", 1.0),)
)


def with_requests(count: int, at: float = 1.0) -> AgentReport:
    return replace(RECORD, at=at, balancer=BalancerSample(0, 0, count, 0, 0))


def unsent(record: AgentReport) -> AgentReport:
    """As it was offered: without the time at which it was sent, which every one has."""
    assert record.sent is not None
    return replace(record, sent=None)


async def until(true: Callable[[], bool], limit_s: float = 5) -> None:
    async with asyncio.timeout(limit_s * PATIENCE):
        while not true():  # noqa: ASYNC110 - what it waits for is in another process's hands
            await asyncio.sleep(0.005)


@asynccontextmanager
async def two(folder: Path) -> AsyncIterator[tuple[ReportStream, list[StandIn], Path]]:
    """An agent, and two operator replicas on two addresses and one port, of which the second is away."""
    tls, pem = certificate(folder, name=NAME)
    token = folder / "token"
    token.write_text("one\n")
    first = await StandIn().start(tls=tls, host="127.0.0.1")
    second = StandIn()
    collector = CollectorAddress("halcyon-agents", first.port, NAME, pem)
    addresses = ["127.0.0.1", "127.0.0.2"]

    async def resolve(_host: str, _port: int) -> list[str]:
        return addresses

    uplink = ReportStream(collector, token, intervals=FAST, resolve=resolve)
    task = asyncio.ensure_future(uplink.run())
    try:
        yield uplink, [first, second], token
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await first.stop()


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[ReportStream, list[StandIn], Path]]:
    async with two(tmp_path) as streams:
        yield streams


def paced(folder: Path, scenario: Callable[[ReportStream, StandIn], Awaitable[None]]) -> None:
    """In virtual time, where no busy machine moves a moment: the sockets and TLS are real."""

    async def main(_time: VirtualTime) -> None:
        async with two(folder) as (uplink, [first, _], _):
            await scenario(uplink, first)

    run(main, sockets_s=ARRIVES_S)


def test_a_change_is_sent_and_an_unchanged_report_is_repeated_rarely(tmp_path: Path) -> None:
    async def scenario(uplink: ReportStream, first: StandIn) -> None:
        uplink.publish(RECORD)
        await until(lambda: len(first.records) == 1)
        for at in range(2, 30):
            uplink.publish(replace(RECORD, at=float(at), pods=(PodSample("p", "ready", float(at)),)))
            await asyncio.sleep(0.01)
        assert len(first.records) == 1
        await until(lambda: len(first.records) == 2)
        times = [at for at, _ in first.records]
        assert times[1] - times[0] == pytest.approx(FAST.max_s, abs=0.05)
        assert first.records[1][1].at == 29.0, "the newest, not the first that differed"

    paced(tmp_path, scenario)


def test_changes_are_sent_at_a_bounded_rate_and_the_newest_wins(tmp_path: Path) -> None:
    async def scenario(uplink: ReportStream, first: StandIn) -> None:
        for count in range(1, 100):
            uplink.publish(with_requests(count))
            await asyncio.sleep(0.01)
        await until(lambda: bool(first.records) and unsent(first.records[-1][1]) == with_requests(99))
        times = [at for at, _ in first.records]
        assert all(after - before > FAST.min_s - 0.02 for before, after in pairwise(times))
        assert len(times) > 4

    paced(tmp_path, scenario)


def test_an_urgent_report_does_not_wait(tmp_path: Path) -> None:
    async def scenario(uplink: ReportStream, first: StandIn) -> None:
        uplink.publish(RECORD)
        await until(lambda: len(first.records) == 1)
        uplink.publish(with_requests(1), urgent=True)
        await until(lambda: len(first.records) == 2)
        assert first.records[1][0] - first.records[0][0] < 0.05

    paced(tmp_path, scenario)


def test_a_pending_report_goes_before_an_urgent_one_at_the_same_interval(tmp_path: Path) -> None:
    async def scenario(uplink: ReportStream, first: StandIn) -> None:
        uplink.publish(RECORD)
        await until(lambda: len(first.records) == 1)
        uplink.publish(with_requests(1))
        uplink.publish(with_requests(2), urgent=True)
        await until(lambda: len(first.records) == 3)
        assert [unsent(record) for _, record in first.records] == [RECORD, with_requests(1), with_requests(2)]
        uplink.publish(with_requests(3))
        await until(lambda: len(first.records) == 4)
        # After the last that was in turn, not after the urgent one.
        assert first.records[3][0] - first.records[0][0] == pytest.approx(FAST.min_s, abs=0.05)

    paced(tmp_path, scenario)


async def test_a_returning_replica_receives_the_newest_report_and_disturbs_no_other(
    both: tuple[ReportStream, list[StandIn], Path],
) -> None:
    uplink, [first, _], token = both
    uplink.publish(RECORD)
    await until(lambda: len(first.records) == 1)
    assert uplink.connected == 1, "the other address refuses"
    token.write_text("two\n")
    for ws in list(first.sockets):
        await ws.close()
    uplink.publish(with_requests(5))
    await until(lambda: len(first.tokens) == 2)
    await until(lambda: unsent(first.records[-1][1]) == with_requests(5))
    assert first.tokens == ["Bearer one", "Bearer two"]


async def test_a_collector_with_another_name_or_authority_receives_no_report(tmp_path: Path) -> None:
    tls, pem = certificate(tmp_path, name="impostor")
    _, other_pem = certificate(tmp_path, name=NAME)
    impostor = await StandIn().start(tls=tls)
    (tmp_path / "token").write_text("secret")

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    for ca in (pem, other_pem):
        uplink = ReportStream(
            CollectorAddress("x", impostor.port, NAME, ca), tmp_path / "token", intervals=FAST, resolve=resolve
        )
        uplink.publish(RECORD)
        task = asyncio.ensure_future(uplink.run())
        await asyncio.sleep(0.3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert impostor.tokens == []
    await impostor.stop()


async def test_notices_of_every_replica_are_passed_on_and_other_messages_are_dropped(tmp_path: Path) -> None:
    tls, pem = certificate(tmp_path, name=NAME)
    token = tmp_path / "token"
    token.write_text("one\n")
    stand_in = await StandIn().start(tls=tls)
    notices: list[Notice] = []
    uplink = ReportStream(
        CollectorAddress("127.0.0.1", stand_in.port, NAME, pem), token, intervals=FAST, on_notice=notices.append
    )
    task = asyncio.ensure_future(uplink.run())
    try:
        uplink.publish(RECORD)
        await until(lambda: len(stand_in.records) == 1)
        notice = Notice("p", "a", "10.0.0.7", "leaving")
        await stand_in.sockets[0].send_str("no notice")
        await stand_in.sockets[0].send_bytes(b"neither")
        await stand_in.sockets[0].send_str(notice.to_json())
        await until(lambda: bool(notices))
        assert notices == [notice]
        uplink.publish(with_requests(7))
        await until(lambda: len(stand_in.records) == 2)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await stand_in.stop()


async def test_a_collector_whose_name_does_not_exist_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report_stream, "RESOLVE_INTERVAL_S", 0.01)
    monkeypatch.setattr(report_stream, "SEARCH_INTERVAL_S", 0.0)
    lookups = 0

    async def resolve(_host: str, _port: int) -> list[str]:
        nonlocal lookups
        lookups += 1
        if lookups == 3:
            return []
        raise OSError("Name or service not known")

    _, pem = certificate(tmp_path, name=NAME)
    stream = ReportStream(CollectorAddress("halcyon-agents", 1, NAME, pem), tmp_path / "token", resolve=resolve)
    task = asyncio.ensure_future(stream.run())
    await until(lambda: lookups > 5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # Once before the name existed, and once after it has gone.
    assert capsys.readouterr().err.count("can't be resolved") == 2


async def test_streams_open_from_the_agents_own_address(tmp_path: Path) -> None:
    tls, pem = certificate(tmp_path, name=NAME)
    token = tmp_path / "token"
    token.write_text("one\n")
    stand_in = await StandIn().start(tls=tls)
    collector = CollectorAddress("127.0.0.1", stand_in.port, NAME, pem)
    uplink = ReportStream(collector, token, intervals=FAST, local_address="127.1.2.3")
    task = asyncio.ensure_future(uplink.run())
    try:
        await until(lambda: bool(stand_in.sockets))
        assert stand_in.sockets[0].get_extra_info("peername")[0] == "127.1.2.3"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await stand_in.stop()
