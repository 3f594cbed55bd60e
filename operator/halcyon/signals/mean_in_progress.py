"""Mean number of requests in progress, computed by Little's law from a counter of the time that requests took. Pure.

A request adds all of its time to the counter when it ends. Over a window shorter than a request, the counter's growth
per second is therefore not the number of requests. With ten requests that end together every 30 s, it would be 0 for 29
s and 300 s per second for one second. For this reason, the window

- begins and ends with a sample in which requests have ended, and has at least `_MIN_ENDS` of these,
- ends now if no request has ended for longer than usual.

If requests take longer than the window, the requests that end in it began long before it. The increase of their times
shows how fast the queue grows: if the times increase by g seconds per second, requests begin at 1 / (1 - g) times the
rate at which they end. The requests in progress are those that began within the time that a request takes now, so their
number is (rate of ends) x (time now) / (1 - g).

Out of scope: the meaning of the counter. The module is used for the time in Triton's queue if Triton has no gauge of
waiting requests, and for the compute time if there are no balancers that count requests.
"""

from __future__ import annotations

from typing import Final

from halcyon.signals.time_series import Ring

MIN_WINDOW_S = 4.5
"""Minimum length of the window in which requests are counted, in seconds. It covers about five samples of a pod."""
MAX_WINDOW_S = 180.0
"""Maximum length of the window in which requests are counted, in seconds. If single requests take longer than this, the
result still fluctuates whenever some of them end."""
_MIN_ENDS = 3
"""Minimum number of samples after the window's first one in which requests have ended."""
_MIN_ENDED = 8.0
"""Minimum number of requests that must have ended in each half of the window for the increase of their times to be
computed."""
_GROWTH = (-1.0, 0.9)
"""Lowest and highest increase of requests' times that is used, in seconds per second. At 0.9, requests begin ten times
as fast as they end."""
_MIN_SILENCE_S = 2.5
"""Seconds without an ended request that are ignored, because the counters' growth is counted one sample late."""
_STEP_S = 1.9
_AT: Final = 0
_ENDED: Final = 1
_SPENT_US: Final = 2


class MeanInProgress:
    """Estimator of the mean number of requests in progress in one pod, from samples of the pod's counters."""

    __slots__ = ("_ring",)

    def __init__(self) -> None:
        """Create an estimator without samples."""
        self._ring = Ring(3, max_age_s=MAX_WINDOW_S, step_s=_STEP_S)

    def update(self, at: float, ended: float, spent_us: float, *, late_s: float = 0.0) -> float | None:
        """Add a sample and return the mean number of requests in progress; None until there are two samples.

        Args:
            at: time of the sample, in seconds.
            ended: counter of the requests that ended.
            spent_us: counter of the time that these requests took, in microseconds.
            late_s: age of the counters at the time of the sample, in seconds.
        """
        ring = self._ring
        if len(ring) and (ended < ring.value(1, _ENDED) or spent_us < ring.value(1, _SPENT_US)):
            ring = self._ring = Ring(3, max_age_s=MAX_WINDOW_S, step_s=_STEP_S)  # the server has restarted
        ring.add((at, ended, spent_us))
        last = 1
        while last < len(ring) and ring.value(last + 1, _SPENT_US) == spent_us:
            last += 1
        ended_at, first, ends = ring.value(last, _AT), last, 0
        for back in range(last + 1, len(ring)):
            if ring.value(back, _SPENT_US) > ring.value(back + 1, _SPENT_US):
                first, ends = back, ends + 1
                if ends >= _MIN_ENDS and ended_at - ring.value(first, _AT) >= MIN_WINDOW_S:
                    break
        if last == len(ring):
            return 0.0 if last > 1 else None
        if not ends:
            first, ends = len(ring), 1
        begin = ring.value(first, _AT)
        usual_s = 1.5 * (ended_at - begin) / max(ends, 1)
        end = ended_at if at - ended_at <= max(usual_s, _MIN_SILENCE_S) else at
        if end == ended_at and (grown := _with_growth(ring, first, last, at + late_s)) is not None:
            return grown
        return (spent_us - ring.value(first, _SPENT_US)) / 1e6 / (end - begin)


def _with_growth(ring: Ring, first: int, last: int, now: float) -> float | None:
    """Return the mean number of requests in progress, allowing for an increase of their times.

    Return None if requests take no longer than the window, or if too few have ended. The window goes from the sample
    `first` to the sample `last`, both counted back from the newest.
    """
    middle = (first + last) // 2
    times, spans = [], []
    for begin, end in ((first, middle), (middle, last)):
        ended = ring.value(end, _ENDED) - ring.value(begin, _ENDED)
        if ended < _MIN_ENDED:
            return None
        times.append((ring.value(end, _SPENT_US) - ring.value(begin, _SPENT_US)) / 1e6 / ended)
        spans.append(ring.value(end, _AT) - ring.value(begin, _AT))
    window_s = sum(spans)
    if times[1] <= window_s:
        return None
    growth = min(max((times[1] - times[0]) / (window_s / 2), _GROWTH[0]), _GROWTH[1])
    now_s = times[1] + growth * (now - ring.value(last, _AT) + spans[1] / 2)
    rate = (ring.value(last, _ENDED) - ring.value(first, _ENDED)) / window_s
    return max(rate * now_s / (1 - growth), 0.0)
