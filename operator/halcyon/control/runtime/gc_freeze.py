"""Keeps Python's cyclic collector away from what lives long: a full collection walks all of it, and nothing else runs meanwhile.

With a thousand models that is 0.4 s of CPU, and 1 to 3 s on a busy machine, every ten seconds. So what lives is frozen: the collector
walks only what came since. Objects that nobody refers to are freed as ever, frozen or not; cycles that are frozen stay, so they are
collected right before, and only what is under way at that moment may become one.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

CHECK_INTERVAL_S = 5.0
MIN_OBJECTS = 1000
"""Fewer new objects of the API server's (50 to 100 of Python's each) cost a collection 10 ms."""
SHARE = 0.1
"""New ones among all: a collection then walks a tenth of what it would."""
OFTEN_S = 600.0
"""It is done after this long anyway, since nobody else collects what is old."""
THAWED_EVERY = 50
"""Each so many times all of it is walked, for cycles that came to be among what was frozen."""
_NEVER = 1_000_000
"""Collections of the young before the old are walked too: more than there are between two of ours."""


@dataclass
class GcFreeze:
    """What the caches hold, as far as the collector is concerned."""

    size: Callable[[], int]
    """Objects that are held."""
    changes: Callable[[], int]
    """How many came, changed or went so far."""
    every_s: float = CHECK_INTERVAL_S
    settled: int = 0
    """How often it was frozen."""
    clock: Callable[[], float] = time.monotonic
    """In seconds."""

    def __post_init__(self) -> None:
        """Nothing is frozen yet."""
        self._seen, self._at = 0, self.clock()

    async def run(self) -> None:
        """Freeze, and again whenever a good part is new; until cancelled."""
        usual = gc.get_threshold()
        gc.set_threshold(*usual[:2], _NEVER)
        try:
            self.settle()
            while True:
                await asyncio.sleep(self.every_s)
                new = self.changes() - self._seen
                if new >= max(MIN_OBJECTS, SHARE * self.size()) or self.clock() - self._at >= OFTEN_S:
                    self.settle()
        finally:
            gc.set_threshold(*usual)

    def settle(self) -> None:
        """Freeze what there is."""
        self._seen, self._at = self.changes(), self.clock()
        if self.settled % THAWED_EVERY == THAWED_EVERY - 1:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        self.settled += 1
