"""CPU time that an event loop spends in one iteration, in which no other task can run."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

NEVER = 1_000_000
"""Threshold for full collections."""


@dataclass
class LoopTime:
    """Longest iteration of an event loop."""

    longest_s: float = 0.0


@contextmanager
def loop_time() -> Iterator[LoopTime]:
    """Measure the iterations of the running loop while the context is open.

    The measure is CPU time of the loop's thread, so other processes of a busy machine don't count. The garbage collector is set as in
    the operator: no full collections, and none of what exists before.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*thresholds[:2], NEVER)
    loop, measure = asyncio.get_running_loop(), LoopTime()
    last, ended = time.thread_time(), False

    def tick() -> None:
        nonlocal last
        now = time.thread_time()
        measure.longest_s, last = max(measure.longest_s, now - last), now
        if not ended:
            loop.call_soon(tick)

    loop.call_soon(tick)
    try:
        yield measure
    finally:
        ended = True
        gc.set_threshold(*thresholds)
