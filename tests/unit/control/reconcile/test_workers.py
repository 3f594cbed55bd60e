"""Workers: what liveness is told."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from halcyon.control.reconcile.reconciler import Reconciler, Result
from halcyon.control.reconcile.workers import MAX_BEGUN_AT_ONCE, Workers
from halcyon.kube import errors
from halcyon.kube.clock import SYSTEM_CLOCK
from halcyon.kube.kinds import Key
from halcyon.kube.work_queue import BACKOFF_FIRST_S, Priority, WorkQueue
from tests.clocks import DrivenClock
from tests.unit.kube.virtual_time import VirtualTime, run

IDLE_S = 3600.0


class Held:
    """A reconcile that lasts until it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()

    async def reconcile(self, _: Key) -> Result:
        self.begun.set()
        await self.let_go.wait()
        return Result()


async def test_work_that_has_just_begun_after_an_idle_hour_is_no_standstill() -> None:
    clock = DrivenClock(time.monotonic)
    queue, held = WorkQueue(clock), Held()
    workers = Workers(queue, cast("Reconciler", held), CollectorRegistry(), clock)
    clock.time = lambda: time.monotonic() + IDLE_S
    assert workers.idle_s() >= IDLE_S
    running = asyncio.create_task(workers.run(1))
    queue.add(Key("team", "a"))
    queue.add(Key("team", "b"))
    await held.begun.wait()

    assert len(queue) == 1
    assert workers.idle_s() < IDLE_S / 2
    running.cancel()


class Behind:
    """Can't work on the first key at once; notes who was worked on."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.postponed = False

    async def reconcile(self, key: Key) -> Result:
        if not self.postponed:
            self.postponed = True
            return Result(0.0, postponed=True)
        self.done.append(key.name)
        return Result()


async def test_postponed_work_keeps_its_place_before_less_urgent_keys() -> None:
    queue, behind = WorkQueue(SYSTEM_CLOCK), Behind()
    workers = Workers(queue, cast("Reconciler", behind), CollectorRegistry(), SYSTEM_CLOCK)
    queue.add(Key("team", "count"), Priority.COUNT)
    for name in "abc":
        queue.add(Key("team", name))
    running = asyncio.create_task(workers.run(1))
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()

    assert behind.done == ["count", "a", "b", "c"]


async def test_a_postponed_key_keeps_the_backoff_of_its_failures() -> None:
    """Otherwise a busy API server, whose watches are late, would get retries several times a second."""
    outcomes = iter([errors.Busy(503, "later"), errors.Busy(503, "later"), Result(0.05, postponed=True)])

    class Failing:
        async def reconcile(self, _: Key) -> Result:
            outcome = next(outcomes)
            if isinstance(outcome, errors.Busy):
                raise outcome
            return outcome

    queue, key = WorkQueue(SYSTEM_CLOCK, jitter=lambda: 1.0), Key("team", "a")
    workers = Workers(queue, cast("Reconciler", Failing()), CollectorRegistry(), SYSTEM_CLOCK)
    for _ in range(3):
        await workers._reconcile(key)

    assert queue.fail(key) == 4 * BACKOFF_FIRST_S


class Conflicting:
    """A reconcile whose object another writer has changed, the given number of times."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.ended = asyncio.Event()

    async def reconcile(self, _: Key) -> Result:
        self.left -= 1
        if self.left >= 0:
            raise errors.Conflicted(409, "PATCH Deployment team/m-a: the object has been modified")
        self.ended.set()
        return Result()


@pytest.mark.parametrize(("times", "conflicts", "failed"), [(1, 1, 0), (2, 2, 0), (4, 2, 2)])
def test_a_conflict_is_no_error_unless_it_is_repeated(times: int, conflicts: int, failed: int) -> None:
    registry = CollectorRegistry()

    async def scenario(time: VirtualTime) -> None:
        clock = DrivenClock(time)
        queue, reconciler = WorkQueue(clock), Conflicting(times)
        running = asyncio.create_task(Workers(queue, cast("Reconciler", reconciler), registry, clock).run(1))
        queue.add(Key("team", "a"))
        await reconciler.ended.wait()
        running.cancel()

    run(scenario)

    def count(result: str) -> float | None:
        return registry.get_sample_value("halcyon_reconciles_total", {"result": result})

    assert (count("conflict"), count("error")) == (conflicts, failed)


class Unwaiting:
    """A reconcile that waits for nothing, as if all objects were up to date. It notes the iteration of the event loop."""

    def __init__(self) -> None:
        self.iteration = 0
        self.begun: list[int] = []
        self.keys: list[Key] = []

    async def reconcile(self, key: Key) -> Result:
        self.begun.append(self.iteration)
        self.keys.append(key)
        return Result()


async def test_reconciles_after_a_restart_leave_room_for_other_tasks() -> None:
    """Other tasks run after every four reconciles, although 16 workers have 100 models to reconcile."""
    queue, unwaiting = WorkQueue(SYSTEM_CLOCK), Unwaiting()
    workers = Workers(queue, cast("Reconciler", unwaiting), CollectorRegistry(), SYSTEM_CLOCK)
    for number in range(100):
        queue.add(Key("team", f"m{number}"))
    running = asyncio.create_task(workers.run(16))
    while len(unwaiting.begun) < 100 and unwaiting.iteration < 1000:
        unwaiting.iteration += 1
        await asyncio.sleep(0)
    running.cancel()
    assert len(unwaiting.begun) == 100
    assert max(Counter(unwaiting.begun).values()) <= MAX_BEGUN_AT_ONCE


async def test_no_worker_keeps_a_key_while_others_reconcile_later_ones() -> None:
    queue, unwaiting = WorkQueue(SYSTEM_CLOCK), Unwaiting()
    workers = Workers(queue, cast("Reconciler", unwaiting), CollectorRegistry(), SYSTEM_CLOCK)
    keys = [Key("team", f"m{number}") for number in range(100)]
    for key in keys:
        queue.add(key)
    running = asyncio.create_task(workers.run(16))
    while len(unwaiting.keys) < 100 and unwaiting.iteration < 1000:
        unwaiting.iteration += 1
        await asyncio.sleep(0)
    running.cancel()
    assert unwaiting.keys == keys
