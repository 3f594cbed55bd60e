"""Many agents that lose an operator replica in the same moment: all come back within a second, and not as a storm.

Not here: what is sent, and in which order, once a stream is open (`test_report_stream`).
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from halcyon.api.documents.balancer_plan import CollectorAddress as Address
from halcyon.api.documents.observation_report import AgentReport, BalancerSample, PodSample
from halcyon.balancer.telemetry.report_stream import (
    RESOLVE_INTERVAL_S,
    SEARCH_INTERVAL_S,
    SEARCH_TIMEOUT_S,
    ReportStream,
)
from halcyon.kube.auth.callers import AgentIdentity
from halcyon.metricsapi.listener import Listener, ListeningPorts
from halcyon.signals.collector import Collector
from halcyon.signals.observation_store import ObservationStore
from tests.integration.served_ports import AnyModel
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_in_api import certificate

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

NAME = "halcyon.halcyon-system.svc"
AGENTS = 200
ROUNDS = 4
"""A return is tried so often until one was as it should be. Agents and replicas share this process, and other work its two cores: load
delays a return and bunches it, but makes no slow pause quick and no storm even. Pauses that are wrong are wrong in each round."""


async def until(true: Callable[[], bool], limit_s: float = 10.0) -> float:
    """Seconds until it is true."""
    began = time.monotonic()
    async with asyncio.timeout(limit_s * PATIENCE):
        while not true():  # noqa: ASYNC110 - connections have no event to wait for
            await asyncio.sleep(0.01)
    return time.monotonic() - began


def most_within(times: list[float], span_s: float) -> int:
    """How many of them lie in one span, wherever it begins."""
    ordered = sorted(times)
    return max(bisect_left(ordered, at + span_s) - first for first, at in enumerate(ordered))


@dataclass
class Replica:
    """The collector of an operator replica, served over TLS; who comes is noted."""

    tls: ssl.SSLContext
    host: str
    port: int = 0
    opened: list[tuple[float, str]] = field(default_factory=list)
    """(time, token) of each stream that was opened."""
    listener: Listener | None = None

    async def start(self) -> None:
        async def whose(token: str, audience: str) -> AgentIdentity:  # noqa: ARG001 - named as the protocol has it
            return AgentIdentity(f"system:serviceaccount:ns:{token}-balancer", "b")

        @web.middleware
        async def noted(request: web.Request, handler: Callable[..., object]) -> web.StreamResponse:
            self.opened.append((time.monotonic(), request.headers["Authorization"]))
            return await handler(request)  # type: ignore[misc, no-any-return]  # aiohttp's own type of it is private

        app = web.Application(middlewares=[noted])
        app.add_routes(Collector(ObservationStore(), whose, AnyModel(), monotonic=time.monotonic).routes())
        self.listener = await ListeningPorts().open(
            app, name="https", host=self.host, port=self.port, tls=self.tls, shutdown_s=0.1
        )
        self.port = self.listener.addresses[0][1]

    async def stop(self) -> None:
        if self.listener is not None:
            await self.listener.cleanup()
            self.listener = None


@dataclass
class Fleet:
    """Agents, one model each, and the addresses behind the operator's name."""

    replicas: list[Replica]
    uplinks: list[ReportStream]
    addresses: list[str]
    lookups: list[tuple[float, int]] = field(default_factory=list)
    """(time, number of the agent) of each look at the name."""

    @property
    def connected(self) -> int:
        return sum(uplink.connected for uplink in self.uplinks)


@asynccontextmanager
async def fleet(folder: Path, *, agents: int, hosts: list[str]) -> AsyncIterator[Fleet]:
    """So many agents, connected to a replica at each of the hosts."""
    tls, pem = certificate(folder, name=NAME)
    replicas = [Replica(tls, hosts[0])]
    agents_fleet = Fleet(replicas, [], list(hosts))

    def resolver(number: int) -> Callable[[str, int], Awaitable[list[str]]]:
        async def resolve(_host: str, _port: int) -> list[str]:
            agents_fleet.lookups.append((time.monotonic(), number))
            return list(agents_fleet.addresses)

        return resolve

    await replicas[0].start()
    for host in hosts[1:]:
        replicas.append(Replica(tls, host, replicas[0].port))
        await replicas[-1].start()
    tasks = []
    for number in range(agents):
        token = folder / f"token-{number}"
        token.write_text(f"m-{number}\n")
        uplink = ReportStream(Address("halcyon-agents", replicas[0].port, NAME, pem), token, resolve=resolver(number))
        pods = (PodSample("p", "ready", 1.0),)
        uplink.publish(AgentReport("ns", f"m-{number}", "b", 1.0, BalancerSample(0, 0, 0, 0, 0), pods))
        agents_fleet.uplinks.append(uplink)
        tasks.append(asyncio.create_task(uplink.run()))
    try:
        await until(lambda: agents_fleet.connected == agents * len(hosts), 60)
        yield agents_fleet
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for replica in replicas:
            await replica.stop()


async def test_a_returning_replica_has_each_agent_once_within_a_second(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, agents=AGENTS, hosts=["127.0.0.1", "127.0.0.2"]) as running:
        returning, other = running.replicas
        connections_before = len(other.opened)
        # A second is the longest pause, and all are back after 0.95 s on a quiet machine. The rest is for 200 handshakes on one that isn't
        # (1.55 s were measured); pauses of up to two seconds take 1.9 s and more on a quiet one.
        limit_s = 1.7
        rounds = []
        for _ in range(ROUNDS):
            await returning.stop()
            await until(lambda: running.connected == AGENTS)
            # Long enough for the pauses of all of them to have grown to the longest: that is when a return takes longest.
            await asyncio.sleep(4)
            returning.opened.clear()
            await returning.start()
            back_s = await until(lambda: running.connected == 2 * AGENTS)
            assert len({token for _, token in returning.opened}) == AGENTS
            assert len(other.opened) == connections_before
            # A handshake that a busy machine makes too long is given up, and its agent comes twice.
            once = len(returning.opened) == AGENTS
            rounds.append((back_s, most_within([at for at, _ in returning.opened], 0.25), once))
            if back_s <= limit_s and rounds[-1][1] <= AGENTS * 2 / 3 and once:
                return
        pytest.fail(
            f"late (after {limit_s:.2f} s), a storm (in a quarter of a second) or some more than once each time: {rounds}"
        )


async def test_an_agent_whose_streams_close_at_once_reconnects_less_and_less_often(tmp_path: Path) -> None:
    async with fleet(tmp_path, agents=1, hosts=["127.0.0.1"]) as running:
        [replica], [uplink] = running.replicas, running.uplinks
        replica.opened.clear()
        # A record of another model than the token's: the collector ends each stream that brings it.
        pods = (PodSample("p", "ready", 1.0),)
        uplink.publish(AgentReport("ns", "another", "b", 1.0, BalancerSample(0, 0, 0, 0, 0), pods), urgent=True)
        # What comes in a time can only be told by waiting for it.
        await asyncio.sleep(4)
        # The shortest pauses are 0.05, 0.1, 0.2, 0.4, 0.8 and 1.6 s: six or seven. Pauses that don't grow make nearly fifty.
        assert 2 <= len(replica.opened) <= 8


async def test_agents_that_lose_a_replica_together_resolve_its_successor_at_different_moments(tmp_path: Path) -> None:
    async def looked(folder: Path) -> list[float]:
        """When each looked first. Of agents that have searched once the usual looks lie apart: each round has its own."""
        async with fleet(folder, agents=AGENTS, hosts=["127.0.0.1"]) as running:
            # All of them began at once, so their usual looks lie together, too. The loss is put right behind those, and well before the next:
            # on a busy machine it came just before them, and all looked as usual.
            await until(lambda: 0.1 < time.monotonic() - running.lookups[-1][0] < RESOLVE_INTERVAL_S / 2)
            running.lookups.clear()
            await running.replicas[0].stop()
            await until(lambda: len({number for _, number in running.lookups}) == AGENTS)
            first: dict[int, float] = {}
            for at, number in running.lookups:
                first.setdefault(number, at)
            return list(first.values())

    rounds = []
    for number in range(ROUNDS):
        times = await looked(new_folder(tmp_path, number))
        rounds.append((most_within(times, 0.1), max(times) - min(times)))
        # An even spread over half a second has 40 in a tenth of it, and a busy machine bunched 85 there; agents that look at once are all in it.
        if rounds[-1][0] <= AGENTS * 2 / 3 and rounds[-1][1] < RESOLVE_INTERVAL_S:
            return
    pytest.fail(f"in a tenth of a second, and all within so many seconds, each time: {rounds}")


def new_folder(folder: Path, number: int) -> Path:
    subfolder = folder / str(number)
    subfolder.mkdir()
    return subfolder


async def test_a_successor_at_another_address_is_found_within_two_seconds(tmp_path: Path) -> None:
    rounds = []
    for number in range(ROUNDS):
        async with fleet(new_folder(tmp_path, number), agents=20, hosts=["127.0.0.1"]) as running:
            await replace_replica(running)
            rounds.append(await until(lambda: reconnected(running) == len(running.uplinks)))
            # It takes 0.6 s on a quiet machine.
            if rounds[-1] <= 2.0:
                return
    pytest.fail(f"found after so many seconds, each time: {rounds}")


async def replace_replica(running: Fleet) -> None:
    """By one at another address, which the name then leads to."""
    [lost] = running.replicas
    successor = Replica(lost.tls, "127.0.0.3", lost.port)
    await successor.start()
    running.replicas.append(successor)
    running.lookups.clear()
    await lost.stop()
    running.addresses[:] = [successor.host]


def reconnected(running: Fleet) -> int:
    """Agents that have found the successor."""
    return len({token for _, token in running.replicas[1].opened})


async def test_name_lookups_end_when_the_successor_is_found(tmp_path: Path) -> None:
    async with fleet(tmp_path, agents=20, hosts=["127.0.0.1"]) as running:
        await replace_replica(running)
        lost_at = time.monotonic()
        search_s = await until(lambda: reconnected(running) == len(running.uplinks))
        # Until the search is over, and then for two of the usual rests: only a clock tells when.
        await asyncio.sleep(SEARCH_TIMEOUT_S + 2 * RESOLVE_INTERVAL_S - search_s)
        assert len(running.replicas[1].opened) == len(running.uplinks), "each came once"
        searching = [at for at, _ in running.lookups if at - lost_at < SEARCH_TIMEOUT_S]
        # The last look of the search may come up to one of its rests after its end.
        after = [at for at, _ in running.lookups if at - lost_at > SEARCH_TIMEOUT_S + 2 * SEARCH_INTERVAL_S]
        each = len(searching) / len(running.uplinks)
        assert SEARCH_TIMEOUT_S / RESOLVE_INTERVAL_S < each <= SEARCH_TIMEOUT_S / (0.75 * SEARCH_INTERVAL_S) + 1
        span_s = 2 * RESOLVE_INTERVAL_S - 2 * SEARCH_INTERVAL_S
        assert len(after) / len(running.uplinks) <= span_s / RESOLVE_INTERVAL_S + 1
