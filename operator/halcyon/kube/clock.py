"""Clock object with monotonic and wall-clock time. Code receives it as an argument, so that tests can control the time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from email.utils import parsedate_to_datetime
from typing import Protocol, TypeVar

MAX_RESPONSE_AGE_S = 30.0
"""Maximum difference between the API server's clock and this machine's that is ignored, in seconds. A slow response
looks like a difference."""
SLICE_S = 0.02
"""Time after which work on many items yields to other asyncio tasks, in seconds."""
_Item = TypeVar("_Item")


def monotonic() -> float:
    """Return the seconds since an arbitrary moment, including the time for which the machine was suspended.

    Linux stops the clock of `time.monotonic` during a suspend, so a leader would not notice that its Lease has expired.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # only Linux has it
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Clock(Protocol):
    """Interface for monotonic time (for durations) and wall-clock time (for timestamps)."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary moment; the value never decreases."""

    def wall(self) -> float:
        """Return the seconds since the epoch; the value can jump, also backwards, if the clock is set."""


class SystemClock:
    """Clock of the operating system."""

    monotonic = staticmethod(monotonic)
    wall = staticmethod(time.time)


SYSTEM_CLOCK: Clock = SystemClock()


class ClusterClock:
    """Clock whose wall-clock time is the API server's, if this machine's differs from it.

    Times in objects are those of the API server, the scheduler and the controllers. If a node's clock is an hour ahead,
    every deadline computed from such a time would seem to have passed.
    """

    monotonic = staticmethod(monotonic)

    def __init__(self, machine: Callable[[], float] = time.time) -> None:
        """Create a clock that has the time of `machine`, in seconds since the epoch, until the API server has responded."""
        self._machine = machine
        self.ahead_s = 0.0
        """Time by which the API server's clock is ahead of this machine's, in seconds; 0 if they seem to agree."""

    def wall(self) -> float:
        """Return the seconds since the epoch by the API server's clock."""
        return self._machine() + self.ahead_s

    def responded(self, date: str | None) -> None:
        """Update `ahead_s` from the `Date` header of a response, which has a resolution of one second."""
        try:
            ahead_s = parsedate_to_datetime(date or "").timestamp() - self._machine()
        except ValueError:
            return
        self.ahead_s = ahead_s if abs(ahead_s) > MAX_RESPONSE_AGE_S else 0.0


async def in_slices(items: Iterable[_Item], clock: Clock) -> AsyncIterator[_Item]:
    """Yield all items. Each time the work on them has taken `SLICE_S`, let other tasks run."""
    began = clock.monotonic()
    for item in items:
        yield item
        if clock.monotonic() - began > SLICE_S:
            await asyncio.sleep(0)
            began = clock.monotonic()
