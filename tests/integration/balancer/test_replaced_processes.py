"""Requests and streams in a HAProxy process that a reload has replaced, on the real HAProxy 3.0. Their agent may restart meanwhile."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import pytest

from halcyon.api.documents.balancer_plan import Slot
from halcyon.balancer.runtime.controller import HaproxyController
from halcyon.balancer.runtime.haproxy_stats import HaproxyError
from tests.integration.balanced import PLAN, TIMEOUT, Balanced, endpoint, is_, new_balanced, until
from tests.integration.balancer.test_grpc_streams import BRIEF, STREAM_LOST, Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from halcyon.api.documents.balancer_plan import BalancerPlan

pytestmark = pytest.mark.more

RESTARTS = pytest.mark.parametrize("restarts", [False, True], ids=["same agent", "restarted agent"])


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as instance:
        yield instance


def restart(balanced: Balanced, plan: BalancerPlan) -> None:
    """Replace the controller, as a restart of the agent's container does."""
    haproxy = balanced.haproxy
    balanced.pilot = HaproxyController(haproxy.runtime, haproxy.config, haproxy.listen)
    balanced.pilot.accept(plan)


@RESTARTS
@pytest.mark.parametrize("others", ["in its slot", "in the other slot"])
async def test_queue_of_a_replaced_process_reaches_another_pod(balanced: Balanced, others: str, restarts: bool) -> None:
    [leaving] = await balanced.start(delay_s=0.5)
    plan = replace(PLAN, max_connections=1)
    await balanced.begin(plan)
    changed = replace(plan, slots=(Slot("a", "m-server-a", 50, 8), Slot("b", "m-server-b", 50, 8)))
    [other] = await balanced.start(delay_s=0.05)
    staying = endpoint(other, "a" if others == "in its slot" else "b")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=TIMEOUT) as session:
        if others == "in its slot":
            await balanced.pilot.run_pass((endpoint(leaving), staying))
        url = balanced.url + "/v2/models/m/infer"
        sent = [asyncio.ensure_future(session.post(url, data=b"{}")) for _ in range(16)]
        await until(lambda: is_(lambda: leaving.running == 1))
        balanced.pilot.accept(changed)
        await balanced.pilot.run_pass((endpoint(leaving), staying))
        if restarts:
            restart(balanced, changed)
        await balanced.pilot.run_pass((endpoint(leaving, terminating=True), staying))
        # From here on, the pod completes what it has received, and refuses the rest.
        await until(lambda: is_(lambda: leaving.running == 0))
        leaving.refuses = True
        assert [answer.status for answer in await asyncio.gather(*sent)] == [200] * 16
    assert balanced.pilot.reloads == (0 if restarts else 1)


async def test_queue_avoids_leaving_pods_if_the_response_to_a_reload_is_lost(balanced: Balanced) -> None:
    leaving, other = await balanced.start(2, delay_s=0.5)
    haproxy = balanced.haproxy
    runtime = replace(haproxy.runtime, reload_timeout_s=0.02)
    balanced.pilot = HaproxyController(runtime, haproxy.config, haproxy.listen)
    plan = replace(PLAN, max_connections=1)
    await balanced.begin(plan)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=TIMEOUT) as session:
        url = balanced.url + "/v2/models/m/infer"
        sent = [asyncio.ensure_future(session.post(url, data=b"{}")) for _ in range(16)]
        await until(lambda: is_(lambda: leaving.running == 1))
        before = await haproxy.runtime.read()
        balanced.pilot.accept(replace(plan, queue_limit=plan.queue_limit + 1))

        async def is_replaced() -> bool:
            await balanced.turn()
            return (await haproxy.runtime.read()).config != before.config

        await until(is_replaced)
        for _ in range(2):
            await balanced.pilot.run_pass((endpoint(leaving, terminating=True), endpoint(other)))
        await until(lambda: is_(lambda: leaving.running == 0))
        leaving.refuses = True
        assert [answer.status for answer in await asyncio.gather(*sent)] == [200] * 16


@RESTARTS
async def test_queue_of_a_replaced_process_waits_for_the_next_pod(balanced: Balanced, restarts: bool) -> None:
    [pod] = await balanced.start()
    pod.hold = asyncio.Event()
    plan = replace(PLAN, max_connections=1)
    await balanced.begin(plan)
    changed = replace(plan, queue_limit=plan.queue_limit + 1)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=TIMEOUT) as session:
        url = balanced.url + "/v2/models/m/infer"
        sent = [asyncio.ensure_future(session.post(url, data=b"{}")) for _ in range(16)]
        await until(lambda: is_(lambda: pod.running == 1))
        balanced.pilot.accept(changed)
        await balanced.turn()
        if restarts:
            restart(balanced, changed)
        await balanced.pilot.run_pass((endpoint(pod, terminating=True),))

        async def is_held() -> bool:
            return (await balanced.haproxy.runtime.held_requests()).held == 15

        await until(is_held)
        pod.hold.set()
        [successor] = await balanced.start()
        await balanced.pilot.run_pass((endpoint(pod, terminating=True), endpoint(successor)))
        assert [answer.status for answer in await asyncio.gather(*sent)] == [200] * 16
    assert (pod.http_count, successor.http_count) == (1, 15)
    await until(lambda: is_(lambda: len(balanced.haproxy.workers()) == 1))


async def test_streams_of_a_replaced_process_end_as_unavailable_after_restarts(balanced: Balanced) -> None:
    await balanced.start()
    plan = replace(BRIEF, queue_timeout_ms=500, response_timeout_ms=500)
    await balanced.begin(plan)
    with balanced.threaded_channel() as channel:
        stream = Stream()
        running = asyncio.create_task(stream.run(channel))
        await stream.reaches(1)
        for more in (1, 2):
            changed = replace(plan, queue_limit=plan.queue_limit + more)
            balanced.pilot.accept(changed)
            await balanced.turn()
            restart(balanced, changed)
        while not running.done():
            await balanced.turn()
            await asyncio.sleep(0.1)
        # HAProxy itself would reset it, which clients read as CANCELLED.
        assert await running == ("UNAVAILABLE", STREAM_LOST)
    assert balanced.pilot.reloads == 0


async def test_queue_of_a_stopping_balancer_avoids_terminating_pods(balanced: Balanced) -> None:
    leaving, other = await balanced.start(2, delay_s=0.4)
    await balanced.begin(replace(PLAN, max_connections=1))
    endpoints = (endpoint(leaving, terminating=True), endpoint(other))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=TIMEOUT) as session:
        url = balanced.url + "/v2/models/m/infer"
        sent = [asyncio.ensure_future(session.post(url, data=b"{}")) for _ in range(16)]
        await until(lambda: is_(lambda: leaving.running == 1))
        await stop(balanced)
        await balanced.pilot.run_pass(endpoints)
        await until(lambda: is_(lambda: leaving.running == 0))
        leaving.refuses = True
        # The last pod stays, although it leaves, too: no other process would take the queue.
        await balanced.pilot.run_pass((endpoints[0], replace(endpoints[1], terminating=True)))
        assert [answer.status for answer in await asyncio.gather(*sent)] == [200] * 16


async def test_streams_of_a_stopping_balancer_end_as_unavailable(balanced: Balanced) -> None:
    await balanced.start()
    await balanced.begin(replace(BRIEF, queue_timeout_ms=500, response_timeout_ms=500))
    with balanced.threaded_channel() as channel:
        stream = Stream()
        running = asyncio.create_task(stream.run(channel))
        await stream.reaches(1)
        await stop(balanced)
        while not running.done():
            await balanced.turn()
            await asyncio.sleep(0.1)
        assert await running == ("UNAVAILABLE", STREAM_LOST)


async def stop(balanced: Balanced) -> None:
    """Stop HAProxy as the kubelet does, and wait until its runtime socket is closed."""
    assert balanced.haproxy.process is not None
    balanced.haproxy.process.send_signal(signal.SIGUSR1)

    async def is_closed() -> bool:
        try:
            await balanced.haproxy.runtime.read()
        except HaproxyError:
            return True
        return False

    await until(is_closed)
