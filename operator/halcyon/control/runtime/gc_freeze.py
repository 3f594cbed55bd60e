"""Exclusion of long-lived objects from Python's cyclic collector, whose full collections walk all of them and block everything else.

With a thousand models a full collection takes 0.4 s of CPU, and 1 to 3 s on a busy machine, every ten seconds. So live objects
are frozen, and the collector walks only newer ones. Unreferenced objects are freed as usual, frozen or not. Frozen cycles stay,
so cycles are collected right before a freeze; only objects in use at that moment may still form frozen cycles later.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass

from halcyon.kube.clock import SYSTEM_CLOCK, Clock

CHECK_INTERVAL_S = 5.0
MIN_OBJECTS = 1000
"""Minimum number of new API objects (50 to 100 Python objects each) before a freeze: fewer cost a collection 10 ms."""
SHARE = 0.1
"""Share of new objects before a freeze: a collection then walks 10 % of what it would without freezing."""
OFTEN_S = 600.0
"""Maximum time between two freezes, since nothing else collects old objects."""
THAWED_EVERY = 50
"""Number of freezes after which all objects are walked once, for cycles that formed among the frozen ones."""
_NEVER = 1_000_000
"""Threshold of young collections before the old generation is walked: more than occur between two freezes."""


@dataclass
class GcFreeze:
    """Periodic freeze of the objects in the caches."""

    size: Callable[[], int]
    """Number of objects in the caches."""
    changes: Callable[[], int]
    """Number of objects added, changed or removed so far."""
    every_s: float = CHECK_INTERVAL_S
    settled: int = 0
    """Number of freezes so far."""
    clock: Clock = SYSTEM_CLOCK
    """In seconds."""

    def __post_init__(self) -> None:
        """Start with nothing frozen."""
        self._seen, self._at = 0, self.clock.monotonic()

    async def run(self) -> None:
        """Freeze now, and again whenever enough objects are new, until cancelled."""
        usual = gc.get_threshold()
        gc.set_threshold(*usual[:2], _NEVER)
        try:
            self.settle()
            while True:
                await asyncio.sleep(self.every_s)
                new = self.changes() - self._seen
                if new >= max(MIN_OBJECTS, SHARE * self.size()) or self.clock.monotonic() - self._at >= OFTEN_S:
                    self.settle()
        finally:
            gc.set_threshold(*usual)

    def settle(self) -> None:
        """Collect, then freeze everything that is live."""
        self._seen, self._at = self.changes(), self.clock.monotonic()
        if self.settled % THAWED_EVERY == THAWED_EVERY - 1:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        self.settled += 1
