"""Who is to be asked when, each once a period and at a moment of its own, so that many are never asked at once. Pure.

A moment comes from the key alone: it is the same after a restart, and needs no drawing of lots.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class PollSchedule(Generic[K]):
    """The turns of those who are listed."""

    def __init__(self, every_s: float) -> None:
        """Nobody is listed."""
        self._every_s = every_s
        self._due: dict[K, float] = {}
        self._under_way: set[K] = set()

    def keep(self, keys: Iterable[K], now: float) -> None:
        """From now on these have turns: new ones their first within one period, and others none."""
        self._due = {key: self._due.get(key, now + self._every_s * _phase(key)) for key in keys}
        self._under_way &= self._due.keys()

    def take(self, now: float) -> list[K]:
        """Those whose turn has come. Nobody has another before `done`, and turns that were missed are not made up for."""
        taken = [key for key, due in self._due.items() if due <= now and key not in self._under_way]
        self._under_way.update(taken)
        for key in taken:
            self._due[key] += self._every_s * max(1.0, (now - self._due[key]) // self._every_s + 1.0)
        return taken

    def done(self, key: K) -> None:
        """Its turn is over."""
        self._under_way.discard(key)


def _phase(key: Hashable) -> float:
    """From 0 to 1, as if drawn."""
    return zlib.crc32(str(key).encode()) / 2**32
