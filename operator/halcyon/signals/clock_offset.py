"""When a record was made, by the receiver's clock: neither a slow network nor a busy receiver changes a rate.

What lies between making and hearing is two clocks' difference and the way. The difference stays; the way is short for some
record of each minute, and that one tells the difference. The rest is taken off the others (Paxson, 1998, on one-way delays).
"""

from __future__ import annotations

import math

KEEP_S = 30.0
"""The shortest way of so long to twice as long ago counts. Two clocks that nobody sets part by 100 ppm, 6 ms in that time."""
MAX_LATE_S = 3.0
"""No record is taken to be older: a clock that was set back makes every record look late, until the shortest way is a new one."""


class ClockOffset:
    """The way of one sender's records."""

    __slots__ = ("_before", "_began", "_shortest")

    def __init__(self) -> None:
        """No record has come."""
        self._began = -math.inf
        self._before = self._shortest = math.inf
        """Least difference of the clocks in the span before, and in the one that has begun; both the receiver's less the sender's."""

    def made_at(self, made: float, received: float, *, sent: float | None = None) -> float:
        """The time of a record by the receiver's clock, at most `received`; `made` and `sent` are by the sender's.

        What a record has waited for before it was sent is no part of its way; without `sent` it looks like one. The order of
        records is kept while neither clock is set back.
        """
        sent = made if sent is None else sent
        if received - self._began >= KEEP_S:
            self._before, self._shortest, self._began = self._shortest, math.inf, received
        difference = received - sent
        self._shortest = min(self._shortest, difference)
        late_s = difference - min(self._shortest, self._before) + max(sent - made, 0.0)
        return received - min(late_s, MAX_LATE_S)
