"""Detection of a surge: arrivals since the last sample that exceed what chance explains, and so justify an early second sample.

Operator replicas count growth only after a later reading has confirmed it, so that a single bad value has no effect. With one sample
per second, a step is confirmed a second after it was seen; with an early second sample, after `CONFIRM_INTERVAL_S`. Pure.
"""

from __future__ import annotations

import math

CONFIRM_INTERVAL_S = 0.2
"""Time between the sample that saw a surge and the one that confirms it."""
MIN_ARRIVALS = 5
"""Fewer requests in one sample are no surge."""
_SIGMAS = 3.5
"""Standard errors above the mean, as the planner requires for a short window (`scaling.planner.forecast.arrival_rate`)."""
_MEAN_S = 3.0
"""Time constant of the mean."""
_MAX_IN_A_ROW = 3
"""A step takes two samples: the one in which it began, and the first full one."""
_MIN_REST_S = 5.0
"""Pause after that many in a row: the load bursts all the time or keeps rising, and one early sample per pause shows as much."""


class ArrivalSurge:
    """Surge detector of one HAProxy."""

    def __init__(self) -> None:
        """Start with nothing counted."""
        self._process: object = None
        self._at = 0.0
        self._requests = 0
        self._rate = 0.0
        self._row = 0
        self._confirmed_at = -math.inf

    def add(self, requests: int, *, process: object, now: float) -> bool:
        """Add a sample, and return True if it should be confirmed by another.

        Args:
            requests: HAProxy's counter of incoming requests, including rejected ones.
            process: which HAProxy counts. Another one counts from zero and has no known rate: a load that it already has is a surge
                too.
            now: monotonic, in seconds; later than at the previous sample.
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
        if self._row >= _MAX_IN_A_ROW and now - self._confirmed_at < _MIN_REST_S:
            return False
        self._row += 1
        self._confirmed_at = now
        return True
