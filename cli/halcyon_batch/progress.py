"""How far a batch is, and when it will end at its recent rate. Pure, with the time as an argument."""

from __future__ import annotations

from collections import deque

_WINDOW_S = 120.0
_LEAST_S = 2.0


class RowRate:
    """Rows per second of the last two minutes."""

    def __init__(self, now_s: float) -> None:
        """Begin at this time, in seconds of the monotonic clock."""
        self._since_s = now_s
        self._answers: deque[tuple[float, int]] = deque()
        self._rows = 0

    def restart(self, now_s: float) -> None:
        """Forget what was before, because it says nothing about what follows."""
        self._since_s, self._rows = now_s, 0
        self._answers.clear()

    def add(self, rows: int, now_s: float) -> None:
        """Count rows that have an outcome."""
        self._answers.append((now_s, rows))
        self._rows += rows
        while self._answers[0][0] < now_s - _WINDOW_S:
            at_s, old = self._answers.popleft()
            self._since_s, self._rows = at_s, self._rows - old

    def per_s(self, now_s: float) -> float | None:
        """Return the rate; None until it is known."""
        took_s = now_s - self._since_s
        return self._rows / took_s if took_s >= _LEAST_S and self._rows else None

    def left_s(self, rows: int, now_s: float) -> float | None:
        """Return the seconds that `rows` more rows take; None until the rate is known."""
        rate = self.per_s(now_s)
        return rows / rate if rate else None
