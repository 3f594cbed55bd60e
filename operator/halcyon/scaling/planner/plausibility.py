"""Plausibility check of a reading. If a reading is implausible, the number of replicas does not change."""

from __future__ import annotations

import math

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.reading import Reading

MAX_AGE_S = 10.0
"""Maximum age of the newest sample in seconds. Agents report at least every 5 s."""
_MAX_FACTOR = 1000.0
"""Ratio of the load to the requests that the maximum replicas can serve in a minute. A reading with a higher ratio is
considered a measurement fault. For arrivals, the time since the signals last changed replaces the minute if it is
longer."""
_MAX_EXPECTED_ARRIVALS = 10.0
"""Number of requests that must be expected (known rate x time without a change) before unchanged signals count as
stuck. If this many requests are expected, the probability that none arrives is e^-10."""


@immutable(frozen=True, slots=True)
class StuckCounter:
    """Last values of the signals, and the time since which they are unchanged. They reveal a stuck counter."""

    since: float = 0.0
    arrived: float | None = None
    waiting: float | None = None
    inflight: float | None = None

    def matches(self, reading: Reading) -> bool:
        """Return whether the signals in the reading have the same values as the stored ones."""
        return reading.arrived == self.arrived and reading.waiting == self.waiting and reading.inflight == self.inflight

    def with_reading(self, reading: Reading) -> StuckCounter:
        """Return the stored values updated with a reading, or the same object if no signal has changed."""
        if reading.at is None or self.matches(reading):
            return self
        return StuckCounter(reading.at, reading.arrived, reading.waiting, reading.inflight)


def implausibility(
    now: float, reading: Reading, still: StuckCounter, *, rate: float | None, dispersion: float, most_rps: float
) -> str | None:
    """Return the reason why the reading is implausible, with numbers, or None if it is plausible.

    `rate` (requests per second) and `dispersion` describe the arrivals so far. `most_rps` is the rate, in requests per
    second, that the maximum replicas can serve.
    """
    if reading.at is None:
        return "no signal has been reported yet"
    if now - reading.at > MAX_AGE_S:
        return f"its newest signal is {now - reading.at:.0f} s old; the limit is {MAX_AGE_S:.0f} s"
    for name, value in (("arrived", reading.arrived), ("waiting", reading.waiting), ("inflight", reading.inflight)):
        if value is None:
            return f"`{name}` is missing"
        if not math.isfinite(value) or value < 0:
            return f"`{name}` is {value}; it must be a number from 0 up, for example 12"
    waiting, limit = reading.waiting or 0.0, _MAX_FACTOR * max(most_rps, 1.0) * 60
    if waiting > limit:
        return f"`waiting` is {waiting:.3g}, which is implausible (limit {limit:.3g})"
    span = reading.at - still.since
    grown = (reading.arrived or 0.0) - (still.arrived if still.arrived is not None else reading.arrived or 0.0)
    # After minutes without a change, the growth covers minutes, so the limit is multiplied by this time.
    limit *= max(span / 60, 1.0)
    if grown > limit:
        return f"`arrived` grew by {grown:.3g} within {span:.0f} s, which is implausible (limit {limit:.3g})"
    if (
        reading.inflight
        and rate is not None
        and still.matches(reading)
        and rate * span >= _MAX_EXPECTED_ARRIVALS * max(dispersion, 1.0)
        # If no pod is ready, the queue can't change, so unchanged signals after a burst are no fault.
        and any(pod.phase == "ready" for pod in reading.pods)
    ):
        return f"signals are frozen: none has changed for {span:.0f} s, although {reading.inflight:.0f} requests are in the system"
    return None
