"""Work queue of the keys to reconcile, with priorities, delays and backoff.

A key is in the queue at most once, and only one worker at a time processes it. If it is added while it is processed, it
is queued again afterwards. Changes to the replicas come before other changes, and resyncs come last. After a failure, a
key waits for a backoff that grows with each failure.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable
from enum import IntEnum

from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key


class Priority(IntEnum):
    """Priority of a key; keys with a smaller value are processed first."""

    COUNT = 0
    """Priority of a model whose desired replicas have changed. It is high, because
    `control/autoscaling/scale_writer.py` waits for the status of the model."""
    CHANGE = 1
    RESYNC = 2


BACKOFF_FIRST_S = 0.2
BACKOFF_MOST_S = 60.0
MIN_RETRY_S = 1.0
"""Minimum time until a failed key is retried, in seconds, even if it is added again meanwhile.

Without it, objects that change often would cause retries at the rate of their changes. If the key's backoff is shorter,
the backoff applies instead.
"""


class WorkQueue:
    """Queue of keys without duplicates, in order of priority, with delays."""

    def __init__(self, clock: Clock, *, jitter: Callable[[], float] = random.random) -> None:
        """Create an empty queue. `jitter` returns random numbers from 0 to 1, to vary the backoff."""
        self._clock = clock
        self._jitter = jitter
        self._order = itertools.count()
        self._ready: list[tuple[Priority, int, Key]] = []
        self._queued: dict[Key, tuple[Priority, int]] = {}
        self._later: list[tuple[float, int, Key, Priority]] = []
        self._due: dict[Key, tuple[float, Priority]] = {}
        self._working: dict[Key, Priority] = {}
        self._requeued: dict[Key, Priority] = {}
        self._failures: dict[Key, int] = {}
        self._resting: dict[Key, float] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of keys that are ready to be processed."""
        return len(self._queued)

    @property
    def waiting(self) -> int:
        """Number of keys that are delayed."""
        return len(self._due)

    @property
    def working(self) -> int:
        """Number of keys that are being processed."""
        return len(self._working)

    def add(self, key: Key, priority: Priority = Priority.CHANGE) -> None:
        """Queue the key now, without a delay."""
        rest_s = self._resting.get(key, 0.0) - self._clock.monotonic()
        if rest_s > 0 and key not in self._working:
            self.add_after(key, rest_s, priority)
            return
        self._add(key, priority)

    def _add(self, key: Key, priority: Priority) -> None:
        if key in self._working:
            self._requeued[key] = min(priority, self._requeued.get(key, priority))
            return
        queued = self._queued.get(key)
        if queued is not None and queued[0] <= priority:
            return
        entry = (priority, next(self._order))
        self._queued[key] = entry
        heapq.heappush(self._ready, (*entry, key))
        self._wake.set()

    def add_after(self, key: Key, delay_s: float, priority: Priority = Priority.RESYNC) -> None:
        """Queue the key after a delay. If the key is delayed already, the earlier time applies."""
        due_at = self._clock.monotonic() + delay_s
        due = self._due.get(key)
        if due is not None and due[0] <= due_at:
            return
        self._due[key] = (due_at, priority)
        heapq.heappush(self._later, (due_at, next(self._order), key, priority))
        self._wake.set()

    def postpone(self, key: Key, delay_s: float) -> None:
        """Queue a key again after a delay, because it cannot be processed yet. The key keeps its priority."""
        self.add_after(key, delay_s, self._working.get(key, Priority.RESYNC))

    def fail(self, key: Key, at_least_s: float = 0.0) -> float:
        """Queue a failed key again after a delay, and return the delay in seconds.

        The delay is the longer of the key's backoff and `at_least_s`, but at most `BACKOFF_MOST_S`.
        """
        at_least_s = min(at_least_s, BACKOFF_MOST_S)
        count = self._failures[key] = self._failures.get(key, 0) + 1
        backoff: float = min(BACKOFF_FIRST_S * 2.0 ** min(count - 1, 20), BACKOFF_MOST_S)
        delay = max(backoff * (0.5 + self._jitter() / 2), at_least_s)
        self._resting[key] = self._clock.monotonic() + min(delay, max(MIN_RETRY_S, at_least_s))
        self.add_after(key, delay, Priority.CHANGE)
        return delay

    def failures(self, key: Key) -> int:
        """Return the number of failures of the key since its last success."""
        return self._failures.get(key, 0)

    def succeed(self, key: Key) -> None:
        """Record that the key was processed successfully, which resets its backoff."""
        self._failures.pop(key, None)
        self._resting.pop(key, None)

    def done(self, key: Key) -> None:
        """Record that the worker has finished with the key. If the key was added in between, queue it again."""
        self._working.pop(key, None)
        if (priority := self._requeued.pop(key, None)) is not None:
            self.add(key, priority)

    def take(self) -> Key | None:
        """Return the next key. Return None if no key is ready. The caller must call `done` after processing the key."""
        self._promote()
        while self._ready:
            priority, order, key = heapq.heappop(self._ready)
            if self._queued.get(key) == (priority, order):
                del self._queued[key]
                self._working[key] = priority
                return key
        return None

    async def get(self) -> Key:
        """Wait for the next key and return it. The caller must call `done` after processing the key."""
        while True:
            self._wake.clear()
            key = self.take()
            if key is not None:
                if self._queued:
                    self._wake.set()
                return key
            delay = self._later[0][0] - self._clock.monotonic() if self._later else None
            try:
                async with asyncio.timeout(None if delay is None else max(delay, 0.001)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _promote(self) -> None:
        now = self._clock.monotonic()
        while self._later and self._later[0][0] <= now:
            due_at, _, key, priority = heapq.heappop(self._later)
            if self._due.get(key) == (due_at, priority):
                del self._due[key]
                self._add(key, priority)
