"""Conversion of a report's send time to the receiver's clock, so that delays don't distort rates.

The receive time minus the send time is the offset between both clocks plus the transit time. The offset is constant,
and at least one report per minute has a short transit time, so the minimum of this difference is a good estimate of the
offset. If a difference exceeds the minimum, the excess is the delay in the network or the receiver. It is subtracted
from the receive time (Paxson, 1998, on one-way delays).
"""

from __future__ import annotations

import math

WINDOW_S = 30.0
"""Length, in seconds, of a period in which the minimum difference between two clocks is determined. The minimum over
the present and the previous period is used. Clocks drift by up to 100 ppm, which is 6 ms in two periods."""
MAX_LATE_S = 3.0
"""Maximum delay, in seconds, that is subtracted from the receive time of a report. After a clock was set back, every
report appears delayed until the minimum of earlier periods has expired."""


class ClockOffset:
    """Estimate of the offset between the clocks of one sender and the receiver."""

    __slots__ = ("_before", "_began", "_shortest")

    def __init__(self) -> None:
        """Create an estimate without reports."""
        self._began = -math.inf
        self._before = self._shortest = math.inf
        """Minimum of receive time minus send time, in seconds, as (minimum in the previous period, minimum in the
        present one)."""

    def created_at(self, created: float, received: float, *, sent: float | None = None) -> float:
        """Return the time at which a report was made, on the receiver's clock. The result is at most `received`.

        `created` and `sent` are the times at which the report was made and sent, on the sender's clock. The time
        between the two is not transit time, but is counted as such if `sent` is None. Results are in the order of the
        reports, unless a clock is set back.
        """
        sent = created if sent is None else sent
        if received - self._began >= WINDOW_S:
            self._before, self._shortest, self._began = self._shortest, math.inf, received
        difference = received - sent
        self._shortest = min(self._shortest, difference)
        late_s = difference - min(self._shortest, self._before) + max(sent - created, 0.0)
        return received - min(late_s, MAX_LATE_S)
