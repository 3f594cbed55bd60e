"""The operator's monotonic clock as seconds since the epoch: the one place where the two meet.

Observations have monotonic times, which nobody can set; the planner's seasons and schedules, and what Kubernetes says of
pods, are of the epoch. Not here: reading either clock.
"""

from __future__ import annotations

from dataclasses import dataclass

STEP_S = 1.0
"""Clocks may differ by so much before they are compared anew. Taking each difference as it comes would pass every
adjustment of the wall clock on to the intervals between samples, and they are rates' denominators."""


@dataclass(frozen=True, slots=True)
class WallClock:
    """Where the monotonic clock's zero lies."""

    offset_s: float
    """Seconds since the epoch at monotonic 0."""

    @classmethod
    def of(cls, *, monotonic_s: float, wall_s: float) -> WallClock:
        """From both clocks, read one right after the other."""
        return cls(wall_s - monotonic_s)

    def at(self, monotonic_s: float) -> float:
        """Seconds since the epoch."""
        return self.offset_s + monotonic_s

    def checked(self, *, monotonic_s: float, wall_s: float) -> WallClock:
        """The same while the clocks agree, else anew: the wall clock was set, or the machine slept."""
        return (
            self
            if abs(self.at(monotonic_s) - wall_s) <= STEP_S
            else WallClock.of(monotonic_s=monotonic_s, wall_s=wall_s)
        )
