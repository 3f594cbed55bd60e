"""Detection of surges: arrivals since the last sample that are too many to be chance. Pure.

A surge triggers an early second sample. The operator counts growth only if a second sample confirms it, so that a
single wrong value has no effect. At one sample per second, the confirmation would take a second; with the early sample
it takes `CONFIRM_INTERVAL_S`.
"""

from __future__ import annotations

import math

CONFIRM_INTERVAL_S = 0.2
"""Time from the sample that detected a surge to the early sample that confirms it, in seconds."""
MIN_ARRIVALS = 5
"""Minimum number of requests between two samples for them to count as a surge."""
_SIGMAS = 3.5
"""Minimum number of standard errors above the mean at which arrivals count as a surge. The planner uses the same number
for a short window (`scaling.planner.forecast.arrival_rate`)."""
_MEAN_S = 3.0
"""Time constant of the exponential moving average of the arrival rate, in seconds."""
_MAX_IN_A_ROW = 3
"""Maximum number of successive early samples. A sudden rise needs two: one after the sample in which it began, and one
after the first sample that is entirely within the rise."""
_MIN_REST_S = 5.0
"""Pause after `_MAX_IN_A_ROW` successive early samples, in seconds.

After so many, the load must be fluctuating or rising continuously, and one early sample per pause is sufficient.
"""


class ArrivalSurge:
    """Detector of surges in the arrivals at one HAProxy."""

    def __init__(self) -> None:
        """Create a detector without samples."""
        self._process: object = None
        self._at = 0.0
        self._requests = 0
        self._rate = 0.0
        self._row = 0
        self._confirmed_at = -math.inf

    def add(self, requests: int, *, process: object, now: float) -> bool:
        """Add a sample, and return True if a second sample must be taken early to confirm a surge.

        Args:
            requests: HAProxy's counter of incoming requests, including rejected ones.
            process: identity of the HAProxy process. The counter of a new process starts at 0 and its rate is unknown,
                so any load counts as a surge.
            now: monotonic time, in seconds; later than at the previous sample.
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
