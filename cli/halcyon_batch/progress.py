"""How far a batch is, and when it will end at its recent rate. Pure, with the time as an argument."""

from __future__ import annotations

from collections import deque

_MAX_WINDOW_S, _MIN_WINDOW_S = 120.0, 2.0


class RowRate:
    """Rows per second in the later half of the run, and at most of the last two minutes: a run begins with few requests."""

    def __init__(self, now_s: float) -> None:
        """Begin at this time, in seconds of the monotonic clock."""
        self._begun_s = now_s
        self._answers: deque[tuple[float, int]] = deque()
        self._rows = 0

    def restart(self, now_s: float) -> None:
        """Forget what was before, because it says nothing about what follows."""
        self._begun_s, self._rows = now_s, 0
        self._answers.clear()

    def add(self, rows: int, now_s: float) -> None:
        """Count rows that have an outcome."""
        self._answers.append((now_s, rows))
        self._rows += rows
        self._prune(now_s)

    def per_s(self, now_s: float) -> float | None:
        """Return the rate; None until it is known."""
        took_s = now_s - self._prune(now_s)
        return self._rows / took_s if took_s >= _MIN_WINDOW_S and self._rows else None

    def left_s(self, rows: int, now_s: float) -> float | None:
        """Return the seconds that `rows` more rows take; None until the rate is known."""
        rate = self.per_s(now_s)
        return rows / rate if rate else None

    def _prune(self, now_s: float) -> float:
        """Drop the answers before the window, and return its begin."""
        elapsed_s = now_s - self._begun_s
        since_s = now_s - min(max(elapsed_s / 2, _MIN_WINDOW_S), elapsed_s, _MAX_WINDOW_S)
        while self._answers and self._answers[0][0] <= since_s:
            self._rows -= self._answers.popleft()[1]
        return since_s
