"""With no server up, on the real HAProxy 3.0: who waits, for how long, and what becomes of them."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import aiohttp
import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
import pytest

from halcyon.api.documents.balancer_plan import Slot
from halcyon.balancer.config.model import ServerKey
from halcyon.balancer.runtime.server_assignment import Command
from tests import figures
from tests.integration.balanced import (
    PLAN,
    TIMEOUT,
    Balanced,
    agent,
    endpoint,
    http_response,
    infer,
    is_,
    new_balanced,
    until,
)
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_in_api import SLICES, slice_of
from tests.unit.balancer.stand_ins import SERVICE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.more

LONG = replace(PLAN, queue_limit=200, queue_timeout_ms=20000, response_timeout_ms=20000, max_connections=64)


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as instance:
        yield instance


class Clients:
    """Requests that wait, and what each was told in the end."""

    def __init__(self, balanced: Balanced) -> None:
        self._balanced = balanced
        self.waiting: list[asyncio.Task[str]] = []
        self.last_at = 0.0

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, timeout=TIMEOUT)
        self._channel = self._balanced.channel
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.go_away()
        await self._session.close()
        await self._channel.close()

    async def by_http(self, body: bytes = b"{}") -> str:
        async with self._session.post(self._balanced.url + "/v2/models/m/infer", data=body) as response:
            answer = await response.json()
            self.last_at = time.monotonic()
            retry = response.headers.get("retry-after")
            return answer["who"] if response.status == 200 else f"{response.status} {retry} {answer['error']}"

    async def by_grpc(self, *, size: int = 1, within_s: float | None = None) -> str:
        call = self._channel.unary_unary(SERVICE + "ModelInfer")(b"x" * size, timeout=within_s)
        try:
            answer = bytes(await call).decode()
        except grpc.aio.AioRpcError as error:
            answer = f"{error.code().name} {error.details()}"
        self.last_at = time.monotonic()
        return answer

    async def begin(self, http: int, grpc_too: int) -> None:
        """So many more wait, and HAProxy says so."""
        self.waiting += [asyncio.create_task(self.by_http()) for _ in range(http)]
        self.waiting += [asyncio.create_task(self.by_grpc()) for _ in range(grpc_too)]
        await until(lambda: held_is(self._balanced, len(self.waiting)))

    async def go_away(self) -> None:
        for task in self.waiting:
            task.cancel()
        await asyncio.gather(*self.waiting, return_exceptions=True)
        self.waiting = []


async def held_is(balanced: Balanced, count: int) -> bool:
    return (await balanced.haproxy.runtime.held_requests()).held == count


async def test_a_hundred_held_requests_are_released_when_the_first_server_is_up(balanced: Balanced) -> None:
    await balanced.begin(LONG)
    async with Clients(balanced) as clients:
        await clients.begin(50, 50)
        reading = await balanced.haproxy.runtime.read()
        assert (reading.held, reading.queued, reading.requests, reading.rejected) == (100, 0, 100, 0)
        [pod] = await balanced.start()
        await balanced.turn()
        up_at = time.monotonic()
        assert set(await asyncio.gather(*clients.waiting)) == {pod.address}
        figures.record("held", 100)
        figures.record("held_last_answer_s", clients.last_at - up_at)
        assert clients.last_at - up_at < 1.0 * PATIENCE, "100 answers by one stand-in, on a busy machine"
    assert await balanced.counters() == (100, 0, 0)
    assert await held_is(balanced, 0)


async def test_a_held_request_is_released_within_a_tenth_of_a_second(balanced: Balanced) -> None:
    await balanced.begin(LONG)
    [pod] = await balanced.start()
    took = []
    async with Clients(balanced) as clients:
        while len(took) < 30 and min(took, default=1.0) >= 0.1:
            await balanced.turn([])
            await balanced.turn([])
            await clients.begin(1, 1)
            await balanced.turn()
            up_at = time.monotonic()
            assert await asyncio.gather(*clients.waiting) == [pod.address] * 2
            took.append(clients.last_at - up_at)
            clients.waiting = []
    # The machine may be busy; waiting longer than it must would show each time.
    assert min(took) < 0.1


async def test_a_request_past_its_deadline_gets_503_or_unavailable_as_a_rejection(balanced: Balanced) -> None:
    await balanced.begin(replace(LONG, queue_timeout_ms=400, response_timeout_ms=400))
    async with Clients(balanced) as clients:
        began = time.monotonic()
        answers = list(await asyncio.gather(clients.by_http(), clients.by_grpc(), clients.by_grpc(within_s=5)))
        assert time.monotonic() - began > 0.35
    why = "no server for model m became ready in time; retry later"
    assert answers == [f"503 1 {why}", f"UNAVAILABLE {why}", f"UNAVAILABLE {why}"]
    assert await balanced.counters() == (3, 3, 0)


async def test_a_request_without_a_server_waits_for_the_hold_timeout(balanced: Balanced) -> None:
    await balanced.begin(replace(LONG, queue_timeout_ms=300, hold_timeout_ms=1200))
    async with Clients(balanced) as clients:
        began = time.monotonic()
        answers = list(await asyncio.gather(clients.by_http(), clients.by_grpc(), clients.by_grpc(within_s=5)))
        assert time.monotonic() - began > 1.1
    assert all("no server for model m became ready in time" in answer for answer in answers)


async def test_rejected_requests_have_no_latency_and_no_server_refused_them(balanced: Balanced) -> None:
    await balanced.begin(replace(LONG, queue_timeout_ms=300))
    async with Clients(balanced) as clients:
        assert "no server for model m" in await clients.by_http()
        with pytest.raises(grpc.aio.AioRpcError):
            await infer(clients._channel)
    status, headers, _ = await http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer")
    assert status == 503
    assert not [name for name in headers if name.startswith("halcyon")]
    reading = await balanced.haproxy.runtime.read()
    assert (reading.requests, reading.rejected, reading.unavailable) == (3, 3, 0)
    assert reading.clients is not None
    assert reading.clients.answered == 0


async def test_a_grpc_deadline_that_comes_sooner_counts(balanced: Balanced) -> None:
    await balanced.begin(LONG)
    async with Clients(balanced) as clients:
        # Both sides count the same 0.3 s, and either may be first.
        answer = await clients.by_grpc(within_s=0.3)
        assert answer.split(" ")[0] in {"DEADLINE_EXCEEDED", "UNAVAILABLE"}
        await until(lambda: held_is(balanced, 0), 3)


async def test_the_limit_of_held_requests_counts_both_protocols_and_rejects_at_once(balanced: Balanced) -> None:
    await balanced.begin(replace(LONG, queue_limit=20))
    async with Clients(balanced) as clients:
        await clients.begin(10, 10)
        why = "20 requests for model m are queued already, the limit of this balancer; retry later"
        assert [await clients.by_http() for _ in range(3)] == [f"429 1 {why}"] * 3
        assert [await clients.by_grpc() for _ in range(3)] == [f"RESOURCE_EXHAUSTED {why}"] * 3
        assert await balanced.counters() == (26, 6, 0)
        [pod] = await balanced.start()
        await balanced.turn()
        assert set(await asyncio.gather(*clients.waiting)) == {pod.address}
    assert await balanced.counters() == (26, 6, 0)


async def test_clients_that_go_away_are_forgotten_and_their_places_are_free(balanced: Balanced) -> None:
    await balanced.begin(replace(LONG, queue_limit=20))
    async with Clients(balanced) as clients:
        for http, by_grpc in ((20, 0), (0, 20), (10, 10)):
            await clients.begin(http, by_grpc)
            await clients.go_away()
            await until(lambda: held_is(balanced, 0), 3)
        await clients.begin(10, 10)
        [pod] = await balanced.start()
        await balanced.turn()
        assert set(await asyncio.gather(*clients.waiting)) == {pod.address}
        # Nobody's request was computed for nobody.
        assert (pod.http_count, pod.grpc_count) == (10, 10)
    assert balanced.haproxy.worker_exits() == 0


async def test_large_bodies_and_streams_wait_too(balanced: Balanced) -> None:
    await balanced.begin(LONG)
    async with Clients(balanced) as clients, balanced.channel as channel:
        large = [asyncio.create_task(clients.by_http(b"x" * 900_000))]
        large.append(asyncio.create_task(clients.by_grpc(size=3_000_000)))
        call = channel.stream_stream(SERVICE + "ModelStreamInfer")(iter([b"1", b"2"]), timeout=15 * PATIENCE)
        stream = asyncio.create_task(_all(call))
        await until(lambda: held_is(balanced, 3))
        [pod] = await balanced.start()
        await balanced.turn()
        assert await asyncio.gather(*large) == [pod.address] * 2
        assert await stream == [pod.address] * 2


async def _all(call: grpc.aio.StreamStreamCall) -> list[str]:
    return [bytes(answer).decode() async for answer in call]


async def test_readiness_and_metadata_do_not_wait(balanced: Balanced) -> None:
    await balanced.begin(LONG)
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session, balanced.channel as channel:
        began = time.monotonic()
        async with session.get(balanced.url + "/v2/health/ready") as response:
            assert response.status == 503
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await infer(channel, "ServerReady")
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert time.monotonic() - began < LONG.queue_timeout_ms / 4000
    assert (await balanced.haproxy.runtime.held_requests()).total == 0


async def test_held_requests_survive_reloads_and_reach_the_new_processs_server(
    balanced: Balanced,
) -> None:
    await balanced.begin(LONG)
    async with Clients(balanced) as clients:
        await clients.begin(20, 20)
        for limit in (201, 202):
            before = (await balanced.haproxy.runtime.read()).process
            balanced.pilot.accept(replace(LONG, queue_limit=limit))
            await balanced.turn()
            assert (await balanced.haproxy.runtime.read()).process != before
            # The new process holds them now, and none twice.
            await until(lambda: held_is(balanced, 40))
        [pod] = await balanced.start()
        await balanced.turn()
        assert set(await asyncio.gather(*clients.waiting)) == {pod.address}
        clients.waiting = []
    assert (pod.http_count, pod.grpc_count) == (20, 20)
    assert (await balanced.counters())[1:] == (0, 0)
    # Nothing keeps the old workers.
    await until(lambda: is_(lambda: len(balanced.haproxy.workers()) == 1))
    assert balanced.haproxy.worker_exits() == 0


async def test_rejection_after_a_reload_has_no_internal_header(balanced: Balanced) -> None:
    plan = replace(PLAN, queue_timeout_ms=int(1500 * PATIENCE))
    await balanced.begin(plan)
    async with balanced.channel as channel:
        call = channel.unary_unary(SERVICE + "ModelInfer")(b"x", timeout=10 * PATIENCE)
        await until(lambda: held_is(balanced, 1))
        balanced.pilot.accept(replace(plan, queue_limit=201))
        await balanced.turn()
        await until(lambda: held_is(balanced, 1))
        assert await call.code() == grpc.StatusCode.UNAVAILABLE
        metadata = (*await call.initial_metadata(), *await call.trailing_metadata())
    assert [name for name, _ in metadata if name.startswith("halcyon")] == []


async def test_a_process_that_has_held_requests_ends_soon_after_a_reload(balanced: Balanced) -> None:
    await balanced.begin(LONG)
    async with Clients(balanced) as clients:
        await clients.begin(5, 5)
        [pod] = await balanced.start()
        await balanced.turn()
        assert set(await asyncio.gather(*clients.waiting)) == {pod.address}
        clients.waiting = []
    balanced.pilot.accept(replace(LONG, queue_limit=201))
    await balanced.turn()
    await until(lambda: is_(lambda: len(balanced.haproxy.workers()) == 1), 3)


async def test_clients_that_go_away_after_a_reload_are_forgotten(balanced: Balanced) -> None:
    await balanced.begin(LONG)
    async with Clients(balanced) as clients:
        await clients.begin(5, 5)
        balanced.pilot.accept(replace(LONG, queue_limit=201))
        await balanced.turn()
        await until(lambda: held_is(balanced, 10))
        await clients.go_away()
        await until(lambda: held_is(balanced, 0), 3)


async def test_a_process_that_ends_without_a_successor_asks_clients_to_retry(balanced: Balanced) -> None:
    await balanced.begin(LONG)
    async with Clients(balanced) as clients:
        await clients.begin(5, 5)
        assert balanced.haproxy.process is not None
        balanced.haproxy.process.send_signal(signal.SIGUSR1)
        began = time.monotonic()
        answers = await asyncio.gather(*clients.waiting)
        # Long before their own deadline.
        assert time.monotonic() - began < LONG.queue_timeout_ms / 2000
    why = "no server had free capacity in time"
    assert sorted(answers) == [f"503 1 {why}"] * 5 + [f"UNAVAILABLE {why}"] * 5
    assert balanced.haproxy.worker_exits() == 0


async def test_a_slot_without_a_server_leaves_its_share_to_the_other(balanced: Balanced) -> None:
    [pod] = await balanced.start()
    plan = replace(LONG, slots=(Slot("a", "m-server-a", 50, 4), Slot("b", "m-server-b", 50, 4)))
    balanced.pilot.accept(plan)
    for slot in ("a", "b"):
        only = (endpoint(pod, slot),)
        await balanced.pilot.run_pass(only)
        if balanced.haproxy.process is None:
            await asyncio.to_thread(balanced.haproxy.start)
        for _ in range(3):
            await balanced.pilot.run_pass(only)
        async with Clients(balanced) as clients:
            answers = [await clients.by_grpc() for _ in range(20)] + [await clients.by_http() for _ in range(20)]
            assert set(answers) == {pod.address}


async def test_the_first_held_request_is_reported_to_the_collector_at_once(balanced: Balanced, tmp_path: Path) -> None:
    async with agent(balanced, tmp_path, metrics_port=1, plan=LONG) as running, Clients(balanced) as clients:
        await until(lambda: running.is_("/healthz", 200), 10)
        await asyncio.to_thread(balanced.haproxy.start)
        await until(lambda: running.is_("/readyz", 200), 10)
        collector = running.collectors[0]
        await until(lambda: is_(lambda: len(collector.records) > 0), 10)
        clock = asyncio.get_running_loop().time

        def is_reported(held: int, since: float) -> bool:
            samples = [record.balancer for at, record in collector.records if at >= since]
            return any(sample is not None and (sample.held, sample.queued) == (held, held) for sample in samples)

        began = clock()
        waiting = asyncio.create_task(clients.by_http())
        await until(lambda: is_(lambda: is_reported(1, began)), 2)
        at = next(at for at, record in collector.records if record.balancer is not None and record.balancer.held == 1)
        figures.record("held_told_s", at - began)
        assert at - began < 2 * PATIENCE
        [pod] = await balanced.start()
        running.api.put(SLICES, "m-server-a-x", slice_of("m-server-a", {endpoint(pod).pod: pod.address}))
        began = clock()
        assert await waiting == pod.address
        assert clock() - began < 1.0 * PATIENCE
        await until(lambda: is_(lambda: is_reported(0, began)), 5)
        record = collector.records[-1][1]
        assert record.balancer is not None
        assert (record.balancer.requests, record.balancer.rejected) == (1, 0)
        assert json.loads(record.to_json())["balancer"]["held"] == 0


async def test_a_balancers_stop_waits_for_held_requests_until_the_drain_is_over(
    balanced: Balanced, tmp_path: Path
) -> None:
    plan = replace(LONG, drain_ms=1000)
    async with agent(balanced, tmp_path, metrics_port=1, plan=plan) as running, Clients(balanced) as clients:
        await until(lambda: running.is_("/healthz", 200), 10)
        await asyncio.to_thread(balanced.haproxy.start)
        await until(lambda: held_is(balanced, 0))
        await clients.begin(1, 1)
        clock = asyncio.get_running_loop().time
        began = clock()
        assert (await running.drain(0))[0] == 200
        assert clock() - began >= 1.0
        assert await held_is(balanced, 2)
        drained = asyncio.create_task(running.drain(0))
        [pod] = await balanced.start()
        running.api.put(SLICES, "m-server-a-x", slice_of("m-server-a", {endpoint(pod).pod: pod.address}))
        assert await asyncio.gather(*clients.waiting) == [pod.address, pod.address]
        assert (await drained)[0] == 200


@pytest.mark.parametrize(("leaves", "count"), [("terminating", 4), ("gone", 4), ("dead", 4), ("terminating", 90)])
async def test_a_queue_whose_last_pod_leaves_waits_for_the_next(balanced: Balanced, leaves: str, count: int) -> None:
    [pod] = await balanced.start()
    pod.hold = asyncio.Event()
    await balanced.begin(replace(LONG, max_connections=1))
    async with Clients(balanced) as clients:
        clients.waiting = [asyncio.create_task(clients.by_http()) for _ in range(count + 1)]
        clients.waiting += [asyncio.create_task(clients.by_grpc()) for _ in range(count + 1)]
        # One request of each protocol is in the pod.
        await until(lambda: queued_is(balanced, 2 * count))
        last = endpoint(pod)
        shown = () if leaves == "gone" else (replace(last, terminating=leaves == "terminating"),)
        await balanced.pilot.run_pass(shown, out=frozenset({last.pod}) if leaves == "dead" else frozenset())
        await until(lambda: held_is(balanced, 2 * count))
        pod.hold.set()
        await until(lambda: is_(lambda: sum(task.done() for task in clients.waiting) == 2))
        balanced.pods = []
        [successor] = await balanced.start()
        await balanced.turn()
        answers = await asyncio.gather(*clients.waiting)
        await pod.stop()
    assert sorted(answers) == sorted([pod.address] * 2 + [successor.address] * 2 * count)
    reading = await balanced.haproxy.runtime.read()
    assert (reading.requests, reading.rejected, reading.errors, reading.queued, reading.held) == (
        2 * count + 2,
        0,
        0,
        0,
        0,
    )
    # Each request is one answer, although it passed through the balancer's queue twice.
    assert reading.answered == 2 * count + 2


async def test_a_moved_request_ignores_the_internal_header_of_its_client(balanced: Balanced) -> None:
    [pod] = await balanced.start()
    pod.hold = asyncio.Event()
    await balanced.begin(replace(LONG, max_connections=1))
    port, header = balanced.haproxy.ports.http, "halcyon-left-ms"
    async with Clients(balanced) as clients, balanced.channel as channel:
        first = [asyncio.create_task(clients.by_http()), asyncio.create_task(clients.by_grpc())]
        await until(lambda: is_(lambda: pod.running == 2))
        path = "/v2/models/m/infer"
        by_http = asyncio.create_task(http_response(port, "POST", path, headers=f"{header}: 1\r\n"))
        by_grpc = channel.unary_unary(SERVICE + "ModelInfer")(b"x", metadata=[(header, "1")], timeout=10 * PATIENCE)
        await until(lambda: queued_is(balanced, 2))
        await balanced.pilot.run_pass((replace(endpoint(pod), terminating=True),))
        # With a limit of 1 ms they would be rejected, and would no longer be held.
        await until(lambda: held_is(balanced, 2))
        await asyncio.sleep(0.3)
        assert await held_is(balanced, 2)
        pod.hold.set()
        await asyncio.gather(*first)
        await balanced.turn()
        assert (await by_http)[0] == 200
        assert bytes(await by_grpc).decode() == pod.address


async def test_a_hold_left_open_makes_no_circle_and_is_closed(balanced: Balanced) -> None:
    await balanced.begin(LONG)
    runtime = balanced.haproxy.runtime
    await runtime.apply([Command(ServerKey("a", 0), "open")])
    assert (await runtime.read()).open_holds == {"a"}
    async with Clients(balanced) as clients:
        await clients.begin(1, 1)
        # Each has one more request in the process, the one that is held, and no further ones.
        assert (await runtime.read()).held_total == 2
        await balanced.turn()
        assert (await runtime.read()).open_holds == frozenset()
        [pod] = await balanced.start()
        await balanced.turn()
        assert await asyncio.gather(*clients.waiting) == [pod.address] * 2


async def queued_is(balanced: Balanced, count: int) -> bool:
    return (await balanced.haproxy.runtime.read()).queued == count
