"""The two clocks of a process as one object, so that no part reads a clock beside the one that it was given."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time for durations, wall-clock time for what others read."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment; never goes back."""

    def wall(self) -> float:
        """Return seconds since the epoch; it can be set, also back."""


class SystemClock:
    """The clocks of this machine."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


SYSTEM_CLOCK: Clock = SystemClock()
