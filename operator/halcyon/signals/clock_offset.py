"""Time of a report by the receiver's clock, corrected so that neither a slow network nor a busy receiver distorts a rate.

The receive time minus the send time is the offset between the two clocks plus the transit time. The offset is constant, and in
each minute some report has a short transit time, so the minimum difference is a good estimate of the offset. What exceeds this
minimum is delay, and is subtracted from the receive time (Paxson, 1998, on one-way delays).
"""

from __future__ import annotations

import math

WINDOW_S = 30.0
"""The shortest transit within the last one to two of these spans counts. Clocks that are not set drift by 100 ppm, 6 ms in that
time."""
MAX_LATE_S = 3.0
"""Maximum lateness of a report: after a clock was set back, every report seems late until a new shortest transit is found."""


class ClockOffset:
    """Transit times of one sender's reports."""

    __slots__ = ("_before", "_began", "_shortest")

    def __init__(self) -> None:
        """Start without any report."""
        self._began = -math.inf
        self._before = self._shortest = math.inf
        """Minimum difference of the clocks in the previous span, and in the present one; both are receiver minus sender."""

    def made_at(self, made: float, received: float, *, sent: float | None = None) -> float:
        """Return the time of a report by the receiver's clock, at most `received`; `made` and `sent` are by the sender's.

        The time a report waited before it was sent is no part of its transit; without `sent` it looks like one. The order of
        reports is kept unless a clock is set back.
        """
        sent = made if sent is None else sent
        if received - self._began >= WINDOW_S:
            self._before, self._shortest, self._began = self._shortest, math.inf, received
        difference = received - sent
        self._shortest = min(self._shortest, difference)
        late_s = difference - min(self._shortest, self._before) + max(sent - made, 0.0)
        return received - min(late_s, MAX_LATE_S)
