"""Schedule of polls: each key once a period at its own phase, so that many are never polled at once. Pure.

The phase comes from the key alone: it is the same after a restart, and needs no random numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class PollSchedule(Generic[K]):
    """Next poll of each listed key."""

    def __init__(self, every_s: float) -> None:
        """Start with an empty list. `every_s`: the period."""
        self._every_s = every_s
        self._due: dict[K, float] = {}
        self._under_way: set[K] = set()

    def keep(self, keys: Iterable[K], now: float) -> None:
        """Replace the listed keys; new ones get their first poll within one period."""
        self._due = {key: self._due.get(key, now + self._every_s * _phase(key)) for key in keys}
        self._under_way &= self._due.keys()

    def take(self, now: float) -> list[K]:
        """Return the keys to poll now. A key is not returned again before `done`, and missed polls are not made up for."""
        taken = [key for key, due in self._due.items() if due <= now and key not in self._under_way]
        self._under_way.update(taken)
        for key in taken:
            self._due[key] += self._every_s * max(1.0, (now - self._due[key]) // self._every_s + 1.0)
        return taken

    def done(self, key: K) -> None:
        """Mark the poll of a key as finished."""
        self._under_way.discard(key)


def _phase(key: Hashable) -> float:
    """Return a number from 0 to 1, as if random."""
    return zlib.crc32(str(key).encode()) / 2**32
