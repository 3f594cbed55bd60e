"""Storage of samples: ring buffers of rows, and counters whose totals survive a restart of the counting process.

Rows are stored in arrays of doubles: a thousand models have a million numbers, which would take ten times the memory as
Python objects. NaN means "unknown" in a row; it is never passed to other packages. Out of scope: the meaning of the
columns (`observation_store`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from math import isnan


class Ring:
    """Ring buffer with the samples of the last `max_age_s` seconds.

    Each sample is a row of `width` numbers, the first of which is the time.

    The newest row is always kept. Earlier rows are at least `step_s` apart, so memory is bounded at any rate of
    samples.
    """

    __slots__ = ("_max_age_s", "_rows", "_step_s", "_width")

    def __init__(self, width: int, *, max_age_s: float, step_s: float = 0.9) -> None:
        self._width, self._max_age_s, self._step_s = width, max_age_s, step_s
        self._rows = array("d")

    def add(self, row: Sequence[float]) -> bool:
        """Add a row, whose first number is its time.

        If it is not newer than the last row, ignore it and return False.
        """
        rows, width = self._rows, self._width
        if rows and row[0] <= rows[-width]:
            return False
        if len(rows) >= 2 * width and row[0] - rows[-2 * width] < self._step_s:
            del rows[-width:]
        rows.extend(row)
        old = 0
        # One row older than `max_age_s` is kept, because its values hold until the next row.
        while len(rows) - old >= 2 * width and rows[old + width] < row[0] - self._max_age_s:
            old += width
        if old:
            del rows[:old]
        return True

    @property
    def newest(self) -> float:
        """Return the time of the newest row. The result is minus infinity if there are no rows."""
        return self._rows[-self._width] if self._rows else -math.inf

    @property
    def newest_row(self) -> array[float]:
        """Return the newest row. The result is empty if there is no row."""
        return self._rows[-self._width :]

    def value(self, back: int, column: int) -> float:
        """Return one number of a row.

        The newest row has `back` 1, the row before it has `back` 2, and so on.

        Raises:
            IndexError: there are fewer than `back` rows.
        """
        return self._rows[column - back * self._width]

    def count(self, since: float) -> int:
        """Return the number of rows that `rows(since)` yields, but at most 2."""
        rows, width = self._rows, self._width
        if len(rows) < 2 * width or rows[-width] <= since:
            return 1 if rows else 0
        return 2

    def known(self, column: int, now: float, fresh_s: float, since: float) -> float | None:
        """Return the newest known number in a column, among the rows of `rows(since)`.

        Return None if there is none, or if it is older than `fresh_s` seconds.
        """
        rows, width = self._rows, self._width
        for start in range(len(rows) - width, -1, -width):
            at = rows[start]
            if now - at > fresh_s:
                return None
            value = rows[start + column]
            if not isnan(value):
                return value
            if at <= since:
                return None
        return None

    def fresh(self, columns: tuple[int, ...], now: float, fresh_s: float, since: float) -> int:
        """Return the position of the newest row in which all of these columns are known, for use as `back` in `value`.

        Only the rows of `rows(since)` are considered. The result is 0 if no such row is at most `fresh_s` seconds old.
        """
        rows, width = self._rows, self._width
        for start in range(len(rows) - width, -1, -width):
            at = rows[start]
            if now - at > fresh_s:
                return 0
            for column in columns:
                if isnan(rows[start + column]):
                    break
            else:
                return (len(rows) - start) // width
            if at <= since:
                return 0
        return 0

    def mean(self, column: int, now: float, window_s: float, *, held_s: float, since: float) -> float | None:
        """Return the time-weighted mean of a column over the last `window_s` seconds.

        Only the rows of `rows(since)` are considered. The result is identical to that of `observations.mean`. A value
        applies until the next one, but at most for `held_s` seconds.
        """
        rows, width = self._rows, self._width
        first = self._first(since)
        total = covered = 0.0
        last = None
        begin_s = now - window_s
        for start in range(first, len(rows), width):
            value, at = rows[start + column], rows[start]
            if isnan(value) or at > now:
                continue
            following = rows[start + width] if start + width < len(rows) else now
            end = min(following, now, at + held_s)
            if end >= begin_s:
                last = value
            begin = max(at, begin_s)
            if end > begin:
                total += value * (end - begin)
                covered += end - begin
        return total / covered if covered > 0 else last

    def rate(self, column: int, now: float, window_s: float) -> float | None:
        """Return the increase of a column per second over the last `window_s` seconds.

        The result is identical to that of `observations.rate`.
        """
        rows, width, since = self._rows, self._width, now - window_s
        start = len(rows) - width
        last = first = -1
        while start >= 0 and rows[start] >= since:
            if not isnan(rows[start + column]):
                first = start
                last = start if last < 0 else last
            start -= width
        if first < last:
            return max(rows[last + column] - rows[first + column], 0.0) / max(rows[last] - rows[first], 1.0)
        return None

    def rates(self, columns: Sequence[int], now: float, window_s: float) -> list[float | None]:
        """Return the result of `rate` for several columns.

        If all columns are known in the oldest and the newest row of the window, the cost is that of one call of `rate`.
        """
        rows, width, since = self._rows, self._width, now - window_s
        last = first = len(rows) - width
        if first < 0 or rows[first] < since:
            return [None] * len(columns)
        while first >= width and rows[first - width] >= since:
            first -= width
        seconds = max(rows[last] - rows[first], 1.0)
        result: list[float | None] = []
        for column in columns:
            grown = rows[last + column] - rows[first + column]
            is_known = first < last and not isnan(grown)
            result.append(max(grown, 0.0) / seconds if is_known else self.rate(column, now, window_s))
        return result

    def _first(self, since: float) -> int:
        """Return the index at which the rows of `rows(since)` start."""
        rows, width = self._rows, self._width
        first = max(len(rows) - width, 0)
        while first > 0 and rows[first] > since:
            first -= width
        return first

    def rows(self, since: float) -> Iterator[array[float]]:
        """Yield the last row that is not newer than the time `since`, and all later rows."""
        rows, width = self._rows, self._width
        for start in range(self._first(since), len(rows), width):
            yield rows[start : start + width]

    def __len__(self) -> int:
        return len(self._rows) // self._width


class Counters:
    """Totals of several counters of one process, which never fall even if the process restarts.

    Growth is added to the total once the next value confirms it, so a single bad value has no effect. A lower value
    counts as a restart if the next value is still low. If a value is unknown, the total is NaN.
    """

    # | value of a counter                                    | growth added to its total                           |
    # | ----------------------------------------------------- | --------------------------------------------------- |
    # | grows                                                 | the growth, once confirmed                          |
    # | falls, but not below the value before the last        | only what is left of the last growth                |
    # | falls below that                                      | none yet: a restart, or a bad value                 |
    # | next reaches the value before the fall again          | growth since then: there was a bad value            |
    # | next is still lower                                   | growth from zero: the process restarted             |
    # | grows faster than `max_per_s`                         | none: the counter is faulty                         |
    # | is unknown                                            | none; the total is returned as NaN                  |

    __slots__ = ("_at", "_max_per_s", "_state")

    def __init__(self, totals: Sequence[float], max_per_s: Sequence[float] | None = None) -> None:
        """Create counters whose totals continue from `totals`.

        Args:
            totals: initial total of each counter; NaN if it was never known.
            max_per_s: maximum plausible growth of each counter per second, in its unit; None if growth is
                not limited.
        """
        self._at = -math.inf
        self._max_per_s = [math.inf] * len(totals) if max_per_s is None else max_per_s
        self._state = array("d")
        """State of each counter, as four numbers: last value, value before it fell (NaN if it did not), unconfirmed
        growth, total."""
        for total in totals:
            self._state.extend((math.nan, math.nan, 0.0, 0.0 if isnan(total) else total))

    @property
    def read_at(self) -> float:
        """Return the time of the last read, which is the time of the totals.

        The result is minus infinity before the first read.
        """
        return self._at

    def read(self, at: float, values: Sequence[float | None]) -> list[float]:
        """Add the values of the counters at the time `at`, and return their totals.

        Unknown values are None in the arguments and NaN in the result.
        """
        elapsed_s = max(at - self._at, 1.0)
        self._at = at
        return [
            math.nan if value is None else self._count(4 * i, value, max_per_s * elapsed_s)
            for i, (value, max_per_s) in enumerate(zip(values, self._max_per_s, strict=True))
        ]

    def _count(self, base: int, value: float, max_growth: float) -> float:
        state = self._state
        last, before, growth, total = state[base], state[base + 1], state[base + 2], state[base + 3]
        if value >= last or isnan(last):
            total += growth
            origin = last if isnan(before) else before if value >= before else 0.0
            growth, before = value - origin, math.nan
        elif value >= last - growth:
            growth -= last - value
        else:
            total += growth
            growth, before = 0.0, last
        if not 0 <= growth <= max_growth:
            growth = 0.0
        state[base], state[base + 1], state[base + 2], state[base + 3] = value, before, growth, total
        return total
