"""Conversion of the operator's monotonic clock to seconds since the epoch, in one place.

Observations have monotonic times, which can't be set. Seasons and schedules of the planner, and pod times of Kubernetes, are
since the epoch. Out of scope: reading either clock.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_STEP_S = 1.0
"""Difference of the clocks up to which the offset is kept. Following every difference would add each adjustment of the wall
clock to the intervals between samples, which are the denominators of rates."""


@dataclass(frozen=True, slots=True)
class WallClock:
    """Offset of the monotonic clock."""

    offset_s: float
    """Seconds since the epoch at monotonic 0."""

    @classmethod
    def of(cls, *, monotonic_s: float, wall_s: float) -> WallClock:
        """Build it from both clocks, read one right after the other."""
        return cls(wall_s - monotonic_s)

    def at(self, monotonic_s: float) -> float:
        """Return seconds since the epoch."""
        return self.offset_s + monotonic_s

    def checked(self, *, monotonic_s: float, wall_s: float) -> WallClock:
        """Return the same while the clocks agree, else a new offset: the wall clock was set, or the machine slept."""
        return (
            self
            if abs(self.at(monotonic_s) - wall_s) <= MAX_STEP_S
            else WallClock.of(monotonic_s=monotonic_s, wall_s=wall_s)
        )
