"""Clocks that a test controls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class DrivenClock:
    """A clock whose monotonic time is what `time` returns; the wall clock is ahead of it."""

    time: Callable[[], float]
    ahead_s: float = 0.0

    def monotonic(self) -> float:
        return self.time()

    def wall(self) -> float:
        return self.ahead_s + self.time()


@dataclass
class SplitClock:
    """A clock whose wall-clock time and monotonic time are independent of each other."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]
