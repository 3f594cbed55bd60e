"""Workers: what liveness is told."""

from __future__ import annotations

import asyncio
import time
from typing import cast

from prometheus_client import CollectorRegistry

from halcyon.control.kinds import Key
from halcyon.control.queue import WorkQueue
from halcyon.control.reconcile import Outcome, Reconciler
from halcyon.control.workers import Workers

IDLE_S = 3600.0


class Held:
    """A reconcile that lasts until it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()

    async def reconcile(self, _: Key) -> Outcome:
        self.begun.set()
        await self.let_go.wait()
        return Outcome()


async def test_work_that_has_just_begun_after_an_idle_hour_is_no_standstill() -> None:
    queue, held = WorkQueue(time.monotonic), Held()
    workers = Workers(queue, cast("Reconciler", held), CollectorRegistry(), moved=time.monotonic() - IDLE_S)
    running = asyncio.create_task(workers.run(1))
    queue.add(Key("team", "a"))
    queue.add(Key("team", "b"))
    await held.begun.wait()

    assert len(queue) == 1
    assert time.monotonic() - workers.moved < IDLE_S / 2
    running.cancel()
