"""The bound on the requests in progress at a pod, over two real HAProxys and both protocols. Pods are stand-ins."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import aiohttp

from halcyon.balancer.runtime.concurrency import Concurrency
from halcyon.balancer.runtime.controller import HaproxyController
from tests.integration.balanced import PLAN, TIMEOUT, Balanced, endpoint, infer, is_, new_balanced, until
from tests.integration.waiting import PATIENCE
from tests.unit.balancer import real_haproxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from halcyon.api.documents.balancer_plan import BalancerPlan
    from tests.unit.balancer.stand_ins import Pod

SHARED = replace(
    PLAN, queue_limit=400, queue_timeout_ms=60000, response_timeout_ms=60000, max_concurrency=4, balancers=2
)


@dataclass
class Two:
    """Two balancers of one model, whose agents know each other's loads."""

    balanced: list[Balanced]
    shares: list[Concurrency]
    pods: list[Pod]

    async def follow(self) -> None:
        """Exchange the loads and update the limits, as the agents do."""
        while True:
            for mine, concurrency in zip(self.balanced, self.shares, strict=True):
                concurrency.others = tuple(other.own for other in self.shares if other is not concurrency)
                await mine.pilot.share()
            await asyncio.sleep(0.25)

    async def place(self, pods: list[Pod]) -> None:
        self.pods = pods
        await asyncio.gather(*(mine.turn(pods) for mine in self.balanced))


@contextlib.asynccontextmanager
async def two(plan: BalancerPlan, pods: int, **options: float) -> AsyncIterator[Two]:
    with real_haproxy.haproxy() as first, real_haproxy.haproxy() as second:
        # Pods listen on one pair of ports.
        shared = replace(first.ports, http=second.ports.http, grpc=second.ports.grpc, metrics=second.ports.metrics)
        second.ports, second.listen = shared, replace(second.listen, ports=shared)
        second.runtime = replace(second.runtime, ports=shared)
        shares = [Concurrency(f"m-balancer-{letter}") for letter in "ab"]
        balanced = [
            Balanced(haproxy, HaproxyController(haproxy.runtime, haproxy.config, haproxy.listen, concurrency=own), [])
            for haproxy, own in zip((first, second), shares, strict=True)
        ]
        started = await balanced[0].start(pods, **options)
        both = Two(balanced, shares, started)
        balanced[1].pods = list(started)
        for mine in balanced:
            await mine.begin(plan)
        following = asyncio.create_task(both.follow())
        try:
            yield both
        finally:
            following.cancel()
            await asyncio.gather(*(pod.stop() for pod in balanced[0].pods))


async def http_burst(session: aiohttp.ClientSession, url: str, count: int) -> list[int]:
    async def send() -> int:
        async with session.post(f"{url}/v2/models/m/infer", data=b"{}") as response:
            await response.read()
            return response.status

    return await asyncio.gather(*(send() for _ in range(count)))


async def grpc_burst(balanced: Balanced, count: int) -> list[bytes]:
    channel = balanced.channel
    try:
        return await asyncio.gather(*(infer(channel, within_s=60 * PATIENCE) for _ in range(count)))
    finally:
        await channel.close()


async def test_the_bound_holds_over_two_balancers_and_both_protocols() -> None:
    async with two(SHARED, 2, delay_s=0.2, at_once=2) as both, aiohttp.ClientSession(timeout=TIMEOUT) as session:
        a, b = both.balanced
        await asyncio.gather(
            http_burst(session, a.url, 40), http_burst(session, b.url, 20), grpc_burst(a, 20), grpc_burst(b, 5)
        )
        # Each of the four may pass the bound by one.
        assert max(pod.peak for pod in both.pods) <= 4 + 4
        assert min(pod.peak for pod in both.pods) >= 4


async def test_one_busy_balancer_gets_the_whole_bound() -> None:
    async with two(SHARED, 1, delay_s=0.5, at_once=4) as both, aiohttp.ClientSession(timeout=TIMEOUT) as session:
        [pod] = both.pods
        burst = asyncio.create_task(http_burst(session, both.balanced[0].url, 30))
        await until(lambda: is_(lambda: pod.running == 4), 3)
        assert set(await burst) == {200}
        assert pod.peak == 4


async def test_a_new_pod_takes_its_share_of_what_waits() -> None:
    async with two(SHARED, 1, delay_s=3.0, at_once=1) as both, aiohttp.ClientSession(timeout=TIMEOUT) as session:
        a, b = both.balanced
        bursts = [asyncio.create_task(http_burst(session, balancer.url, 6)) for balancer in (a, b)]
        await until(lambda: is_(lambda: both.pods[0].running >= 4), 3)
        [new] = await a.start(1, delay_s=0.1, at_once=1)
        began = time.monotonic()
        await both.place([*both.pods, new])
        await until(lambda: is_(lambda: new.peak >= 4 or new.http_count >= 4), 1)
        assert time.monotonic() - began < 1 * PATIENCE
        assert {status for burst in bursts for status in await burst} == {200}


async def test_a_grown_share_is_filled_before_the_first_answer() -> None:
    """At rest, half of a balancer's share belongs to gRPC."""
    plan = replace(SHARED, max_concurrency=64)
    async with two(plan, 1, delay_s=4.0, at_once=64) as both, aiohttp.ClientSession(timeout=TIMEOUT) as session:
        [pod] = both.pods
        bursts = [asyncio.create_task(http_burst(session, balancer.url, 28)) for balancer in both.balanced]
        await until(lambda: is_(lambda: pod.running == 2 * 28), 1.5)
        assert {status for burst in bursts for status in await burst} == {200}


async def test_a_new_pod_is_filled_before_its_first_answer() -> None:
    plan = replace(SHARED, max_concurrency=40)
    async with two(plan, 1, delay_s=8.0, at_once=40) as both, aiohttp.ClientSession(timeout=TIMEOUT) as session:
        a, b = both.balanced
        bursts = [asyncio.create_task(http_burst(session, balancer.url, 40)) for balancer in (a, b)]
        await until(lambda: is_(lambda: both.pods[0].running >= 36), 1.5)
        [new] = await a.start(1, delay_s=8.0, at_once=40)
        await both.place([*both.pods, new])
        await until(lambda: is_(lambda: new.running >= 36), 1.5)
        assert {status for burst in bursts for status in await burst} == {200}


async def test_requests_of_a_sticky_header_fill_a_grown_share() -> None:
    plan = replace(SHARED, max_concurrency=64, sticky_header="session")
    headers = {"session": "one"}
    async with (
        two(plan, 1, delay_s=4.0, at_once=64) as both,
        aiohttp.ClientSession(timeout=TIMEOUT, headers=headers) as session,
    ):
        [pod] = both.pods
        bursts = [asyncio.create_task(http_burst(session, balancer.url, 28)) for balancer in both.balanced]
        await until(lambda: is_(lambda: pod.running == 2 * 28), 1.5)
        assert {status for burst in bursts for status in await burst} == {200}


async def test_new_pods_are_filled_alike_by_the_pass_that_adds_them() -> None:
    """The model's balancers exchange no loads, so that nothing but a pass sets limits."""
    plan = replace(PLAN, max_connections=32, queue_limit=100, queue_timeout_ms=60000, response_timeout_ms=60000)
    async with new_balanced() as balanced, aiohttp.ClientSession(timeout=TIMEOUT) as session:
        [first] = await balanced.start(1, delay_s=8.0)
        await balanced.begin(plan)
        burst = asyncio.create_task(http_burst(session, balanced.url, 32 + 40))
        await until(lambda: is_(lambda: first.running == 32), 3)
        await until(lambda: queued(balanced, 40), 3)
        new = await balanced.start(2, delay_s=8.0)
        await balanced.turn()
        await until(lambda: is_(lambda: sum(pod.running for pod in new) == 40), 1)
        assert min(pod.running for pod in new) >= 16
        assert set(await burst) == {200}


async def queued(balanced: Balanced, count: int) -> bool:
    return (await balanced.haproxy.runtime.read()).queued == count


async def test_a_restarted_haproxy_starts_with_limits() -> None:
    async with two(SHARED, 1, delay_s=0.0) as both:
        a = both.balanced[0]
        await asyncio.to_thread(a.haproxy.kill)
        await asyncio.to_thread(a.haproxy.start)
        loads = await a.haproxy.runtime.loads()
        [limits] = {load.limits for load in loads.servers.values()}
        assert limits == (2, 2)
        await a.turn(both.pods)
        placed = endpoint(both.pods[0]).address
        reading = await a.haproxy.runtime.read()
        [key] = [key for key, server in reading.servers.items() if server.address == placed]
        assert sum(reading.loads.servers[key].limits) <= 4
