"""Progress of a batch, and the time left at its recent rate. Pure, with the time as an argument."""

from __future__ import annotations

from collections import deque

_MAX_WINDOW_S, _MIN_WINDOW_S = 120.0, 2.0
_WHOLE_S = 30.0
"""Length of a run, in seconds, up to which all of it counts except the start-up. Half of it would have too few pauses."""
_START_UP_S = 2.0
"""Time after the begin that is left out, in seconds: connections open, the limit of requests in progress grows, and first
executions are slow. On two shared cores, a rate over the first two seconds is 10 % too low on average.
"""


class RowRate:
    """Rate in rows per second over the run without its start-up, or its later half: 30 s to two minutes.

    It is a mean: pauses and slow phases count, because the rest of the run will have some, too.
    """

    def __init__(self, now_s: float) -> None:
        """Begin the measurement at this time, in seconds of the monotonic clock."""
        self._begun_s = now_s
        self._answers: deque[tuple[float, int]] = deque()
        self._rows = 0

    def restart(self, now_s: float) -> None:
        """Discard all earlier counts, because the rate from now on is unrelated to them."""
        self._begun_s, self._rows = now_s, 0
        self._answers.clear()

    def add(self, rows: int, now_s: float) -> None:
        """Count rows that have an outcome."""
        self._answers.append((now_s, rows))
        self._rows += rows
        self._prune(now_s)

    def per_s(self, now_s: float) -> float | None:
        """Return the rows per second; None until the rate is known."""
        took_s = now_s - self._prune(now_s)
        return self._rows / took_s if took_s >= _MIN_WINDOW_S and self._rows else None

    def left_s(self, rows: int, now_s: float) -> float | None:
        """Return the seconds that `rows` more rows take; None until the rate is known."""
        rate = self.per_s(now_s)
        return rows / rate if rate else None

    def _prune(self, now_s: float) -> float:
        """Drop the counts from before the window, and return the time at which the window begins."""
        elapsed_s = max(now_s - self._begun_s - _START_UP_S, 0.0)
        since_s = now_s - min(max(elapsed_s / 2, _WHOLE_S), elapsed_s, _MAX_WINDOW_S)
        while self._answers and self._answers[0][0] <= since_s:
            self._rows -= self._answers.popleft()[1]
        return since_s
