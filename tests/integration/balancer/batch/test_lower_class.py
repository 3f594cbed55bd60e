"""Requests of the lower class beside those of users, on the real HAProxy 3.0."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
import pytest

from halcyon.api.documents.balancer_plan import LOWER_CLASS_HEADER, ROWS_HEADER
from halcyon.balancer.config.model import BATCH_US, LOWER_ROWS, NEXT_LESS, NEXT_ROWS, ROOM, ROW_US
from halcyon.balancer.runtime.lower_room import MAX_ROWS
from halcyon.balancer.telemetry.balancer_sample import balancer_sample
from tests.integration.balanced import PLAN, Balanced, http_response, is_, new_balanced, until
from tests.unit.balancer.stand_ins import SERVICE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from halcyon.balancer.runtime.haproxy_stats import HaproxyStats

LOWER = replace(PLAN, lower_class="Fill", objective_ms=200, queue_timeout_ms=2000)
INFER = "/v2/models/m/infer"


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as instance:
        yield instance


async def give_room(balanced: Balanced, rows: int, *, lower_rows: int = MAX_ROWS) -> None:
    """Set the room, as the agent does."""
    await balanced.haproxy.runtime.set({ROOM: rows, LOWER_ROWS: lower_rows})


async def post(balanced: Balanced, job: str = "", *, rows: int = 1) -> tuple[int, dict[str, str]]:
    headers = f"{LOWER_CLASS_HEADER}: {job}\r\n{ROWS_HEADER}: {rows}\r\n" if job else ""
    status, answered, _ = await http_response(balanced.haproxy.ports.http, "POST", INFER, headers=headers)
    return status, answered


async def read(balanced: Balanced) -> HaproxyStats:
    return await balanced.haproxy.runtime.read()


async def waiting(balanced: Balanced) -> int:
    lower = (await read(balanced)).lower
    return 0 if lower is None else lower.waiting


async def test_the_class_waits_for_room_and_users_do_not(balanced: Balanced) -> None:
    [pod] = await balanced.start(1)
    await balanced.begin(LOWER)
    jobs = [asyncio.create_task(post(balanced, "nightly")) for _ in range(3)]

    async def all_wait() -> bool:
        return await waiting(balanced) == 3

    await until(all_wait)
    assert (await post(balanced))[0] == 200
    assert pod.http_count == 1

    await give_room(balanced, 8)
    assert [status for status, _ in await asyncio.gather(*jobs)] == [200, 200, 200]
    assert pod.http_count == 4


async def test_no_more_rows_are_in_servers_than_there_is_room_for(balanced: Balanced) -> None:
    [pod] = await balanced.start(1, delay_s=0.05)
    await balanced.begin(replace(LOWER, max_connections=16))
    await give_room(balanced, 3)
    answers = await asyncio.gather(*(post(balanced, "nightly") for _ in range(12)))
    assert {status for status, _ in answers} == {200}
    assert pod.peak == 3

    pod.peak = 0
    # Two requests of two rows are more than three rows.
    await asyncio.gather(*(post(balanced, "nightly", rows=2) for _ in range(6)))
    assert pod.peak == 1


async def test_rows_of_the_class_have_a_limit_of_their_own(balanced: Balanced) -> None:
    [pod] = await balanced.start(1, delay_s=0.05)
    await balanced.begin(replace(LOWER, max_connections=16))
    await give_room(balanced, 9, lower_rows=2)
    answers = await asyncio.gather(*(post(balanced, "nightly") for _ in range(12)))
    assert {status for status, _ in answers} == {200}
    assert pod.peak == 2

    await give_room(balanced, 9, lower_rows=0)
    job = asyncio.create_task(post(balanced, "nightly"))

    async def waits() -> bool:
        return await waiting(balanced) == 1

    await until(waits)
    assert pod.http_count == 12
    await give_room(balanced, 9)
    assert (await job)[0] == 200


async def test_a_gentle_class_is_sent_at_the_end_of_a_batch(balanced: Balanced) -> None:
    [pod] = await balanced.start(1)
    await balanced.begin(replace(LOWER, max_connections=16, queue_timeout_ms=60_000))
    pod.hold = asyncio.Event()
    jobs = [asyncio.create_task(post(balanced, "nightly")) for _ in range(3)]
    users = [asyncio.create_task(post(balanced)) for _ in range(2)]
    await until(lambda: is_(lambda: pod.running == 2))
    # Batches of 0.5 s + 0.1 s a row, and one row in each batch; each user takes the place of a row.
    await balanced.haproxy.runtime.set(
        {ROOM: 16, LOWER_ROWS: MAX_ROWS, BATCH_US: 500_000, ROW_US: 100_000, NEXT_ROWS: 100, NEXT_LESS: 100}
    )
    await asyncio.sleep(0.1)
    held, pod.hold = pod.hold, asyncio.Event()
    users.append(asyncio.create_task(post(balanced)))
    await until(lambda: is_(lambda: pod.running == 3))
    held.set()
    await asyncio.gather(*users[:2])
    begun = time.monotonic()
    # The batch of one row takes 0.6 s.
    await asyncio.sleep(0.4)
    assert pod.running == 1
    await until(lambda: is_(lambda: pod.running == 2))
    assert time.monotonic() - begun > 0.5
    # One row of the class has been sent for the next batch, and no other one follows.
    await asyncio.sleep(0.5)
    assert pod.running == 2
    held, pod.hold = pod.hold, asyncio.Event()
    held.set()
    await users[2]
    # With nothing in servers, a row needs no end of a batch.
    await until(lambda: is_(lambda: pod.running == 1))
    users.append(asyncio.create_task(post(balanced)))
    await asyncio.sleep(0.9)
    # The user has taken the place of the last row.
    assert pod.running == 2
    pod.hold.set()
    assert {status for status, _ in await asyncio.gather(*users, *jobs)} == {200}


async def test_a_request_of_a_user_takes_the_place_of_one(balanced: Balanced) -> None:
    [pod] = await balanced.start(1)
    pod.hold = asyncio.Event()
    await balanced.begin(replace(LOWER, max_connections=16))
    await give_room(balanced, 2)
    users = [asyncio.create_task(post(balanced)) for _ in range(2)]
    await until(lambda: is_(lambda: pod.running == 2))
    job = asyncio.create_task(post(balanced, "nightly"))

    async def waits() -> bool:
        return await waiting(balanced) == 1

    await until(waits)
    users.append(asyncio.create_task(post(balanced)))
    # The user is sent although there is no room.
    await until(lambda: is_(lambda: pod.running == 3))
    pod.hold.set()
    assert {status for status, _ in await asyncio.gather(*users, job)} == {200}


async def test_jobs_take_turns(balanced: Balanced) -> None:
    await balanced.start(1, delay_s=0.02)
    await balanced.begin(replace(LOWER, max_connections=16))
    ended: list[str] = []

    async def send(job: str) -> None:
        assert (await post(balanced, job))[0] == 200
        ended.append(job)

    many = [asyncio.create_task(send("large")) for _ in range(12)]

    async def are_waiting(count: int) -> bool:
        return await waiting(balanced) == count

    await until(lambda: are_waiting(12))
    few = [asyncio.create_task(send("small")) for _ in range(3)]
    await until(lambda: are_waiting(15))
    await give_room(balanced, 1)
    await asyncio.gather(*many, *few)
    # The small job is done after as many of the large one, not after all of them.
    assert ended.index("small") <= 2
    assert max(place for place, job in enumerate(ended) if job == "small") <= 7


async def test_the_class_is_no_demand_and_the_objective_does_not_reject_it(balanced: Balanced) -> None:
    await balanced.start(1)
    await balanced.begin(LOWER)
    await give_room(balanced, 8)
    for job in ("", "nightly", "nightly"):
        assert (await post(balanced, job))[0] == 200
    reading = await read(balanced)
    sample = balancer_sample(reading)
    assert sample is not None
    assert (sample.requests, sample.rejected, sample.queued, sample.inflight, sample.held) == (1, 0, 0, 0, 0)
    assert reading.clients is not None
    assert reading.clients.answered == 1
    assert reading.latency["a"].answered == 1
    assert reading.lower is not None
    assert (reading.lower.requests, reading.lower.rejected, reading.lower.answered) == (2, 0, 2)


async def test_without_room_in_time_the_client_may_repeat_it(balanced: Balanced) -> None:
    await balanced.start(1)
    await balanced.begin(replace(LOWER, queue_timeout_ms=200))
    status, headers = await post(balanced, "nightly")
    assert (status, headers["retry-after"]) == (503, "1")
    async with balanced.channel as channel:
        call = channel.unary_unary(SERVICE + "ModelInfer")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(b"x", timeout=10, metadata=((LOWER_CLASS_HEADER, "nightly"),))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert (await call(b"x", timeout=10)) is not None
        await give_room(balanced, 1)
        assert (await call(b"x", timeout=10, metadata=((LOWER_CLASS_HEADER, "nightly"),))) is not None
    reading = await read(balanced)
    assert (reading.requests, reading.rejected) == (1, 0)
    assert reading.lower is not None
    assert (reading.lower.requests, reading.lower.rejected) == (3, 2)


async def test_the_class_holds_no_request_while_no_server_is_up(balanced: Balanced) -> None:
    await balanced.begin(replace(LOWER, queue_timeout_ms=500))
    await give_room(balanced, 8)
    assert (await post(balanced, "nightly"))[0] == 503
    # Held requests would wake the model.
    assert (await read(balanced)).held_total == 0


async def test_without_a_lower_class_the_header_means_nothing(balanced: Balanced) -> None:
    await balanced.start(1)
    await balanced.begin(PLAN)
    assert (await post(balanced, "nightly"))[0] == 200
    reading = await read(balanced)
    assert (reading.requests, reading.lower) == (1, None)


async def test_a_reload_passes_waiting_requests_back_to_their_client(balanced: Balanced) -> None:
    await balanced.start(1)
    await balanced.begin(LOWER)
    job = asyncio.create_task(post(balanced, "nightly"))

    async def waits() -> bool:
        return await waiting(balanced) == 1

    await until(waits)
    balanced.pilot.accept(replace(LOWER, lower_class="None"))
    await balanced.turn()
    status, headers = await job
    assert (status, headers["retry-after"]) == (503, "1")
    assert (await post(balanced, "nightly"))[0] == 200
