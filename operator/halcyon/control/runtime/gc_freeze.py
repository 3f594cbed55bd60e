"""Exclusion of long-lived objects from Python's garbage collector, whose full collections block the process.

With a thousand models a full collection takes 0.4 s of CPU, or 1 to 3 s on a busy machine, every ten seconds. Therefore
live objects are frozen (`gc.freeze`), and the collector only walks newer ones. Objects whose reference count drops to
zero are freed as usual, even if frozen. Frozen cycles aren't freed. A full collection right before each freeze frees
the existing cycles. Frozen objects can form new cycles later, so all objects are unfrozen after `THAWED_EVERY` freezes.

Bursts of requests, reports and handshakes leave free memory between the objects that stay. The C library keeps this
memory until `malloc_trim` returns the free pages to the system.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from dataclasses import dataclass

from halcyon.kube.clock import SYSTEM_CLOCK, Clock

CHECK_INTERVAL_S = 5.0
MIN_OBJECTS = 1000
"""Minimum number of new API objects before a freeze of the live objects. An API object consists of 50 to 100 Python
objects. A collection of fewer objects takes at most 10 ms."""
SHARE = 0.1
"""Minimum share of new objects in the caches before a freeze of the live objects. A collection then walks at most 10 %
of all objects."""
OFTEN_S = 600.0
"""Maximum time between two freezes of the live objects, in seconds. It is limited because old objects are collected
only before a freeze."""
TRIM_INTERVAL_S = 60.0
"""Interval, in seconds, at which free memory is returned to the system. This takes up to 20 ms with thousands of models."""
THAWED_EVERY = 50
"""Number of freezes after which all objects are unfrozen and collected once. This frees cycles among the frozen
objects."""
_NEVER = 1_000_000
"""Threshold for collections of the oldest generation. It is a number of collections of the next younger generation, and
exceeds the number between two freezes."""
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Function of glibc that returns free pages to the system; None if another C library is used."""


def return_free_memory() -> None:
    """Return the free memory between live objects to the system."""
    if _TRIM is not None:
        _TRIM(ctypes.c_size_t(0))


@dataclass
class GcFreeze:
    """Task that periodically freezes all live objects (`gc.freeze`), and returns free memory to the system."""

    size: Callable[[], int]
    """Function that returns the number of API objects in the caches."""
    changes: Callable[[], int]
    """Function that returns the number of additions, changes and removals of API objects so far."""
    every_s: float = CHECK_INTERVAL_S
    settled: int = 0
    """Number of freezes of the live objects so far."""
    clock: Clock = SYSTEM_CLOCK
    """Clock that measures the time since the last freeze."""

    def __post_init__(self) -> None:
        """Initialize without any frozen objects."""
        self._changes_before = 0
        self._at = self._trimmed_at = self.clock.monotonic()

    async def run(self) -> None:
        """Freeze now, and again after enough objects have changed or `OFTEN_S` has passed, until cancelled."""
        thresholds = gc.get_threshold()
        gc.set_threshold(*thresholds[:2], _NEVER)
        try:
            self.freeze()
            while True:
                await asyncio.sleep(self.every_s)
                new = self.changes() - self._changes_before
                if new >= max(MIN_OBJECTS, SHARE * self.size()) or self.clock.monotonic() - self._at >= OFTEN_S:
                    self.freeze()
                if self.clock.monotonic() - self._trimmed_at >= TRIM_INTERVAL_S:
                    self._trimmed_at = self.clock.monotonic()
                    return_free_memory()
        finally:
            gc.set_threshold(*thresholds)

    def freeze(self) -> None:
        """Run a full collection, then freeze all live objects."""
        self._changes_before, self._at = self.changes(), self.clock.monotonic()
        if self.settled % THAWED_EVERY == THAWED_EVERY - 1:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        self.settled += 1
