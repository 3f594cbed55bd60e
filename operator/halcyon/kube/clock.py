"""Clock object with monotonic and wall-clock time. Code receives it as an argument, so that tests can control the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Interface for monotonic time (for durations) and wall-clock time (for timestamps)."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary moment; the value never decreases."""

    def wall(self) -> float:
        """Return the seconds since the epoch; the value can jump, also backwards, if the clock is set."""


class SystemClock:
    """Clock of the operating system."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


SYSTEM_CLOCK: Clock = SystemClock()
