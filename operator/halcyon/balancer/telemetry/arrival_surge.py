"""Whether more requests came since the last look than chance explains: then a second look soon after the first is worth its cost.

Operator replicas count growth when a later reading has confirmed it, so that one bad value moves nothing. With a look each second
a step would be believed a second after it was seen; with a second look at once it is believed `CONFIRM_S` after. Pure.
"""

from __future__ import annotations

import math

CONFIRM_S = 0.2
"""From a look that saw a surge to the one that confirms it."""
MIN_ARRIVALS = 5
"""Fewer requests in one look are no surge."""
_SIGMAS = 3.5
"""Standard errors above the mean, as the planner asks of a short window (`scaling.planner.arrivals`)."""
_MEAN_S = 3.0
"""Time constant of the mean."""
_IN_A_ROW = 3
"""A step takes two: the look in which it began, and the first whole one."""
_REST_S = 5.0
"""After so many in a row it is a load that bursts all the time, or one that rises: one in so many seconds tells as much."""


class ArrivalSurge:
    """Remembers the rate of one HAProxy."""

    def __init__(self) -> None:
        """Nothing was counted yet."""
        self._process: object = None
        self._at = 0.0
        self._requests = 0
        self._rate = 0.0
        self._row = 0
        self._told_at = -math.inf

    def look(self, requests: int, *, process: object, now: float) -> bool:
        """Whether this look is to be confirmed.

        Args:
            requests: the counter of those that reached it, refused ones included.
            process: which HAProxy counts; another one counts from zero, and nothing is known of its rate: a load that it has
                already is a surge too.
            now: seconds of a clock that does not jump; later than at the look before.
        """
        if process != self._process:
            self._process, self._at, self._requests, self._rate, self._row = process, now, requests, 0.0, 0
            return False
        seconds, new = now - self._at, requests - self._requests
        if seconds <= 0 or new < 0:
            self._at, self._requests = now, max(requests, 0)
            return False
        mean = self._rate
        self._at, self._requests = now, requests
        self._rate = mean + (1 - math.exp(-seconds / _MEAN_S)) * (new / seconds - mean)
        usual = mean * seconds
        if new < MIN_ARRIVALS or new - usual <= _SIGMAS * math.sqrt(max(usual, 1.0)):
            self._row = 0
            return False
        if self._row >= _IN_A_ROW and now - self._told_at < _REST_S:
            return False
        self._row += 1
        self._told_at = now
        return True
