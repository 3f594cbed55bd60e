"""Memory of what was seen: rings of rows in plain arrays, and counters that survive restarts of what they count.

Arrays of doubles because a thousand models have a million numbers: as Python objects they would take ten times the memory.
NaN stands for "not known" inside a row only; it never leaves this package. Not here: what the columns mean (`hub`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence

MOST_PER_S = 1e6
"""A counter that grows faster has jumped: nothing that we count happens a million times per second in one process."""


class Ring:
    """Rows of `width` numbers, the first of which is a time; the newest `keep_s` seconds, at most about one per `step_s`.

    The newest row is always kept. Rows before it lie at least `step_s` apart, so memory is bounded whatever is sent.
    """

    __slots__ = ("_keep_s", "_rows", "_step_s", "_width")

    def __init__(self, width: int, *, keep_s: float, step_s: float = 0.9) -> None:
        self._width, self._keep_s, self._step_s = width, keep_s, step_s
        self._rows = array("d")

    def add(self, row: Sequence[float]) -> bool:
        """Adds a row, its time first; False where it is not newer than the newest."""
        rows, width = self._rows, self._width
        if rows and row[0] <= rows[-width]:
            return False
        if len(rows) >= 2 * width and row[0] - rows[-2 * width] < self._step_s:
            del rows[-width:]
        rows.extend(row)
        old = 0
        # One row older than the window stays: its value holds into it.
        while len(rows) - old >= 2 * width and rows[old + width] < row[0] - self._keep_s:
            old += width
        if old:
            del rows[:old]
        return True

    @property
    def newest(self) -> float:
        """Time of the newest row, minus infinity where there is none."""
        return self._rows[-self._width] if self._rows else -math.inf

    def rows(self, since: float) -> Iterator[array[float]]:
        """Rows from `since` on, and the one before."""
        rows, width = self._rows, self._width
        first = 0
        while first + width < len(rows) and rows[first + width] <= since:
            first += width
        for start in range(first, len(rows), width):
            yield rows[start : start + width]

    def __len__(self) -> int:
        return len(self._rows) // self._width


class Counters:
    """Several counters of one process as one reader sees them: totals that never fall.

    Growth counts when the next value has confirmed it, so one bad value in between counts for nothing.

    | the value                                       | what follows                                              |
    | ----------------------------------------------- | --------------------------------------------------------- |
    | grows                                           | that growth, once confirmed                               |
    | falls, but not below where it was before        | the last growth was a bad value: none of it counts        |
    | falls below                                     | nothing yet: a restart or a bad value                     |
    | is then back where it was before it fell        | it was a bad value: growth since before                   |
    | is then still lower                             | it was a restart: growth from zero                        |
    | grows by more than `MOST_PER_S`                 | it jumped: nothing                                        |
    | is not known                                    | nothing; the total is not known                           |
    """

    __slots__ = ("_at", "_state")

    def __init__(self, totals: Sequence[float]) -> None:
        """Counters whose totals continue at `totals`."""
        self._at = -math.inf
        self._state = array("d")
        """Per counter: the last value, what it was before it fell (NaN: it did not), growth to be confirmed, the total."""
        for total in totals:
            self._state.extend((math.nan, math.nan, 0.0, 0.0 if math.isnan(total) else total))

    def read(self, at: float, values: Sequence[float | None]) -> list[float]:
        """The totals at `at`, NaN where the counter is not known."""
        most = MOST_PER_S * max(at - self._at, 1.0)
        self._at = at
        return [math.nan if value is None else self._count(4 * i, value, most) for i, value in enumerate(values)]

    def _count(self, base: int, value: float, most: float) -> float:
        last, before, growth, total = self._state[base : base + 4]
        if value >= last or math.isnan(last):
            total += growth
            origin = last if math.isnan(before) else before if value >= before else 0.0
            growth, before = value - origin, math.nan
        elif value >= last - growth:
            growth -= last - value
        else:
            total += growth
            growth, before = 0.0, last
        if not 0 <= growth <= most:
            growth = 0.0
        self._state[base : base + 4] = array("d", (value, before, growth, total))
        return total
