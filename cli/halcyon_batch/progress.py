"""Progress of a batch, and the remaining time at its recent rate. Pure, with the time as an argument."""

from __future__ import annotations

from collections import deque

_MAX_WINDOW_S, _MIN_WINDOW_S = 120.0, 2.0
_SHORT_RUN_S = 30.0
"""Duration of a run, in seconds, up to which the rate covers the whole run except its start-up. Half of such a short
run would contain too few pauses."""
_START_UP_S = 2.0
"""Duration of the start-up in seconds, which the rate doesn't include. In this time, connections are opened, the limit
of requests in progress grows, and first executions are slow. On two shared cores, a rate over the first two seconds is
10 % too low on average."""


class RowRate:
    """Mean rate of a batch in rows per second.

    The rate covers the later half of the run without its start-up, but at least 30 seconds and at most two minutes.
    Pauses and slow phases are included, because they will also occur during the remaining rows.
    """

    def __init__(self, now_s: float) -> None:
        """Begin the measurement at the time `now_s`, in seconds of the monotonic clock."""
        self._begun_s = now_s
        self._answers: deque[tuple[float, int]] = deque()
        self._rows = 0

    def restart(self, now_s: float) -> None:
        """Discard all earlier counts of rows, because the rate will be different from now on."""
        self._begun_s, self._rows = now_s, 0
        self._answers.clear()

    def add(self, rows: int, now_s: float) -> None:
        """Count rows that now have a result or have failed."""
        self._answers.append((now_s, rows))
        self._rows += rows
        self._prune(now_s)

    def per_s(self, now_s: float) -> float | None:
        """Return the rate in rows per second; None until it is known."""
        window_s = now_s - self._prune(now_s)
        return self._rows / window_s if window_s >= _MIN_WINDOW_S and self._rows else None

    def left_s(self, rows: int, now_s: float) -> float | None:
        """Return the time in seconds that `rows` more rows will take; None until the rate is known."""
        rate = self.per_s(now_s)
        return rows / rate if rate else None

    def _prune(self, now_s: float) -> float:
        """Drop the counts from before the measured period, and return the time at which the period begins."""
        elapsed_s = max(now_s - self._begun_s - _START_UP_S, 0.0)
        since_s = now_s - min(max(elapsed_s / 2, _SHORT_RUN_S), elapsed_s, _MAX_WINDOW_S)
        while self._answers and self._answers[0][0] <= since_s:
            self._rows -= self._answers.popleft()[1]
        return since_s
