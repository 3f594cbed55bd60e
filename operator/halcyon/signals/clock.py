"""Conversion of the operator's monotonic time to seconds since the epoch.

Times in observations are on the monotonic clock, which does not jump when the wall clock is set. The planner's seasons
and schedules, and the times of pods in Kubernetes, are in seconds since the epoch. Out of scope: reading the clocks.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_STEP_S = 1.0
"""Maximum deviation of the wall clock, in seconds, at which the offset between the two clocks is kept. Smaller
deviations are ignored because each change of the offset changes the intervals between samples, and thus the rates."""


@dataclass(frozen=True, slots=True)
class WallClock:
    """Offset between the monotonic clock and the wall clock."""

    offset_s: float
    """Wall-clock time, in seconds since the epoch, at which the monotonic clock was 0."""

    @classmethod
    def of(cls, *, monotonic_s: float, wall_s: float) -> WallClock:
        """Compute the offset from readings of both clocks that were taken in immediate succession."""
        return cls(wall_s - monotonic_s)

    def at(self, monotonic_s: float) -> float:
        """Convert a monotonic time to seconds since the epoch."""
        return self.offset_s + monotonic_s

    def checked(self, *, monotonic_s: float, wall_s: float) -> WallClock:
        """Return this offset if both clocks still agree with it within `MAX_STEP_S`; otherwise return a new one.

        They disagree if the wall clock was set or the machine was suspended.
        """
        return (
            self
            if abs(self.at(monotonic_s) - wall_s) <= MAX_STEP_S
            else WallClock.of(monotonic_s=monotonic_s, wall_s=wall_s)
        )
