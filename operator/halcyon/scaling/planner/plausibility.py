"""Whether a reading can be believed. What can't be believed changes no count: the last good one stays."""

from __future__ import annotations

import math

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.reading import Reading

FRESH_S = 10.0
"""Older than this, a sample is not known any more; agents speak at least every 5 s."""
_ABSURD = 1000.0
"""A value this many times what all replicas allowed could work off in a minute is a fault of the meter, not a load."""
_UNLIKELY = 10.0
"""Arrivals that should have come while a counter stood still: with as many as this it stands still by a fault (e^-10)."""


@immutable(frozen=True, slots=True)
class StuckCounter:
    """Since when the reading has not moved."""

    since: float = 0.0
    arrived: float | None = None
    waiting: float | None = None
    inflight: float | None = None

    def is_of(self, reading: Reading) -> bool:
        """Whether nothing has moved."""
        return reading.arrived == self.arrived and reading.waiting == self.waiting and reading.inflight == self.inflight

    def with_reading(self, reading: Reading) -> StuckCounter:
        """The same where nothing moved, else anew."""
        if reading.at is None or self.is_of(reading):
            return self
        return StuckCounter(reading.at, reading.arrived, reading.waiting, reading.inflight)


def doubt(
    now: float, reading: Reading, still: StuckCounter, *, rate: float | None, dispersion: float, most_rps: float
) -> str | None:
    """Why the reading is not believed, with numbers; None where it is.

    `rate` and `dispersion` are those of the arrivals until now, `most_rps` what all replicas allowed could serve.
    """
    if reading.at is None:
        return "nothing was heard of it yet"
    if now - reading.at > FRESH_S:
        return f"its newest signal is {now - reading.at:.0f} s old; the limit is {FRESH_S:.0f} s"
    for name, value in (("arrived", reading.arrived), ("waiting", reading.waiting), ("inflight", reading.inflight)):
        if value is None:
            return f"`{name}` is missing"
        if not math.isfinite(value) or value < 0:
            return f"`{name}` is {value}; it must be a number from 0 up, for example 12"
    waiting, limit = reading.waiting or 0.0, _ABSURD * max(most_rps, 1.0) * 60
    if waiting > limit:
        return f"`waiting` is {waiting:.3g}, above all reason (limit {limit:.3g})"
    grown = (reading.arrived or 0.0) - (still.arrived if still.arrived is not None else reading.arrived or 0.0)
    if grown > limit:
        return f"`arrived` grew by {grown:.3g} at once, above all reason (limit {limit:.3g})"
    span = reading.at - still.since
    if (
        reading.inflight
        and rate is not None
        and still.is_of(reading)
        and rate * span >= _UNLIKELY * max(dispersion, 1.0)
        # Where no pod serves, who waits stands still, and a burst that has ended is no fault of the meter.
        and any(pod.phase == "ready" for pod in reading.pods)
    ):
        return f"no signal has moved for {span:.0f} s, with {reading.inflight:.0f} requests in the system: it is frozen"
    return None
