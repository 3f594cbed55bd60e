"""Schedule that polls each key once per period, with polls of different keys spread over the period. Pure.

The time of a key's poll within the period is derived from the key, so it is the same after a restart.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class PollSchedule(Generic[K]):
    """Schedule that polls each key of a list once per period."""

    def __init__(self, every_s: float) -> None:
        """Initialize without keys. `every_s` is the period, in seconds."""
        self._every_s = every_s
        self._due: dict[K, float] = {}
        self._under_way: set[K] = set()

    def keep(self, keys: Iterable[K], now: float) -> None:
        """Replace the list of keys. New keys are polled for the first time within one period."""
        self._due = {key: self._due.get(key, now + self._every_s * _phase(key)) for key in keys}
        self._under_way &= self._due.keys()

    def take(self, now: float) -> list[K]:
        """Return the keys to poll now. Polls that were missed are skipped.

        A key isn't returned again until `done` has been called for it.
        """
        due_keys = [key for key, due in self._due.items() if due <= now and key not in self._under_way]
        self._under_way.update(due_keys)
        for key in due_keys:
            self._due[key] += self._every_s * max(1.0, (now - self._due[key]) // self._every_s + 1.0)
        return due_keys

    def done(self, key: K) -> None:
        """Mark the poll of a key as finished."""
        self._under_way.discard(key)


def _phase(key: Hashable) -> float:
    """Return a pseudo-random number from 0 to 1 that depends only on the key."""
    return zlib.crc32(str(key).encode()) / 2**32
