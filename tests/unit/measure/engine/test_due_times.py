"""A schedule's timer is exact, never early, and ends with the load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from halcyon_measure.engine.due_times import DueTimes
from halcyon_measure.engine.event_loop import new_event_loop


def run(test: Callable[[DueTimes, asyncio.Event], Awaitable[None]]) -> None:
    async def main() -> None:
        stop = asyncio.Event()
        async with DueTimes(stop) as timer:
            await test(timer, stop)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


def test_timer_of_a_schedule_is_exact_and_never_early() -> None:
    late: list[float] = []

    async def waits(timer: DueTimes, _: asyncio.Event) -> None:
        for _number in range(60):
            due = time.monotonic() + 0.005
            await timer.wait(due)
            late.append(time.monotonic() - due)

    run(waits)
    assert min(late) >= 0
    # Other processes delay most of them on a full machine, but not all.
    assert min(late) <= 0.0001


def test_due_time_that_is_over_lets_answers_be_read() -> None:
    read: list[int] = []

    async def waits(timer: DueTimes, _: asyncio.Event) -> None:
        asyncio.get_running_loop().call_soon(read.append, 1)
        await timer.wait(time.monotonic() - 1)
        assert read == [1]

    run(waits)


def test_timer_ends_when_the_load_is_stopped() -> None:
    async def waits(timer: DueTimes, stop: asyncio.Event) -> None:
        began = time.monotonic()
        asyncio.get_running_loop().call_later(0.02, stop.set)
        await timer.wait(began + 60)
        await timer.wait(began + 60)
        assert time.monotonic() - began < 10

    run(waits)
