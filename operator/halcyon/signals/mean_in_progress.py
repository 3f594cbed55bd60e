"""Mean number of requests in progress, from a counter of the time that they took, by Little's law. Pure.

A request adds all of its time when it ends. So the growth per second is no number of requests over a window that is shorter than one
request: with ten requests that end together every 30 s, it would be 0 for 29 s and 300 for one. Therefore the window

- is at least as long as the mean time of the requests that ended in it,
- begins and ends with a sample in which requests have ended. If none has ended for longer than their mean time, it ends now.

Out of scope: what the counter counts. It is used for the time in Triton's queue, if Triton has no gauge of waiting requests, and
for the time in computation, if there are no balancers that count requests in progress.
"""

from __future__ import annotations

from typing import Final

from halcyon.signals.time_series import Ring

MIN_WINDOW_S = 4.5
"""Minimum window in seconds: about five samples of a pod."""
MAX_WINDOW_S = 180.0
"""Maximum window in seconds. For requests that take longer, the number still varies with their ends."""
_MIN_SILENCE_S = 2.5
"""Seconds without an ended request that are no silence: a growth counts one sample late."""
_STEP_S = 1.9
_AT: Final = 0
_ENDED: Final = 1
_SPENT_US: Final = 2


class MeanInProgress:
    """Samples of one pod's counters, and the mean number in progress that follows from them."""

    __slots__ = ("_ring",)

    def __init__(self) -> None:
        """Start without samples."""
        self._ring = Ring(3, max_age_s=MAX_WINDOW_S, step_s=_STEP_S)

    def update(self, at: float, ended: float, spent_us: float) -> float | None:
        """Add a sample and return the mean number of requests in progress; None until there are two samples.

        Args:
            at: time of the sample, in seconds.
            ended: counter of the requests that ended.
            spent_us: counter of the time that these requests took, in microseconds.
        """
        ring = self._ring
        if len(ring) and (ended < ring.value(1, _ENDED) or spent_us < ring.value(1, _SPENT_US)):
            ring = self._ring = Ring(3, max_age_s=MAX_WINDOW_S, step_s=_STEP_S)  # the server has restarted
        ring.add((at, ended, spent_us))
        last = 1
        while last < len(ring) and ring.value(last + 1, _SPENT_US) == spent_us:
            last += 1
        ended_at, first, mean_s, spent_s = ring.value(last, _AT), last, 0.0, 0.0
        while first < len(ring):
            first += 1
            spent_s = (spent_us - ring.value(first, _SPENT_US)) / 1e6
            mean_s = spent_s / max(ended - ring.value(first, _ENDED), 1.0)
            has_ended = first == len(ring) or ring.value(first, _SPENT_US) > ring.value(first + 1, _SPENT_US)
            enough_s = max(MIN_WINDOW_S, mean_s)
            lasted_s = ended_at - ring.value(first, _AT)
            if lasted_s >= enough_s and (has_ended or lasted_s >= enough_s + mean_s):
                break
        if first == last:
            return 0.0 if last > 1 else None
        end = ended_at if at - ended_at <= max(mean_s, _MIN_SILENCE_S) else at
        return spent_s / (end - ring.value(first, _AT))
