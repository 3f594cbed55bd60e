"""The heap: what lives long is frozen, and what comes later too, once it is much or has waited."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from halcyon.control.runtime.gc_freeze import (
    MIN_OBJECTS,
    OFTEN_S,
    SHARE,
    THAWED_EVERY,
    TRIM_INTERVAL_S,
    GcFreeze,
)
from tests.clocks import DrivenClock


@dataclass
class ManualHeap:
    """What a heap is told."""

    size: int
    changes: int = 0
    now: float = 0.0


@asynccontextmanager
async def running(world: ManualHeap) -> AsyncGenerator[GcFreeze]:
    heap = GcFreeze(lambda: world.size, lambda: world.changes, every_s=0.0, clock=DrivenClock(lambda: world.now))
    task = asyncio.create_task(heap.run())
    try:
        await run_checks()
        yield heap
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gc.unfreeze()
        gc.freeze()  # as it was: the modules and the tests stay out of the collections of the tests that follow


async def run_checks() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_new_objects_are_frozen_once_they_are_many() -> None:
    before, usual = gc.get_freeze_count(), gc.get_threshold()
    world = ManualHeap(size=20 * MIN_OBJECTS)
    async with running(world) as heap:
        assert heap.settled == 1
        assert gc.get_freeze_count() > before
        assert gc.get_threshold()[:2] == usual[:2]
        assert gc.get_threshold()[2] > 1000 * usual[2]

        kept = [[number] for number in range(1000)]
        frozen, world.changes = gc.get_freeze_count(), int(SHARE * world.size) - 1
        await run_checks()
        assert heap.settled == 1

        world.changes += 1
        await run_checks()
        assert heap.settled == 2
        assert gc.get_freeze_count() > frozen + 0.9 * len(kept)
    assert gc.get_threshold() == usual


async def test_a_small_heap_is_left_until_a_thousand_changes_or_ten_minutes() -> None:
    world = ManualHeap(size=4, changes=0)
    async with running(world) as heap:
        world.changes, world.now = MIN_OBJECTS - 1, OFTEN_S - 1
        await run_checks()
        assert heap.settled == 1
        world.now += 1
        await run_checks()
        assert heap.settled == 2


async def test_cycles_among_what_was_frozen_are_found_in_the_end() -> None:
    class Node:
        other: Node

    async with running(ManualHeap(size=4)) as heap:
        first, second = Node(), Node()
        first.other, second.other = second, first
        heap.freeze()
        del first, second
        while heap.settled % THAWED_EVERY:
            heap.freeze()
        gc.unfreeze()
        assert not any(isinstance(obj, Node) for obj in gc.get_objects())


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) / 256


async def test_free_memory_between_live_objects_is_returned_each_minute() -> None:
    world = ManualHeap(size=4)
    async with running(world):
        pieces: list[bytes | None] = [b"\1" * (64 * 1024) for _ in range(1024)]  # zeros would leave pages untouched
        full = resident_mib()
        pieces = [piece if number % 8 == 7 else None for number, piece in enumerate(pieces)]
        assert resident_mib() > full - 16
        world.now += TRIM_INTERVAL_S
        await run_checks()
        assert resident_mib() < full - 40
    assert pieces[7] is not None
