"""Percentiles and rates of a run, each with a 95 % interval. Pure and seeded.

Successive requests share queues and batches, so their latencies are correlated. The intervals come from a bootstrap of
one-second blocks, which keeps the correlation within a block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from halcyon_measure.results.columns import Floats, Integers

_BINS_PER_DECADE = 460
"""Number of bins per decade, so that each is half a percent wide. They are used only in the bootstrap; the percentile
itself is exact."""
_LEAST_S, _DECADES = 1e-5, 9
_DRAWS = 400
MIN_BLOCKS = 5
"""Minimum number of blocks for an interval."""
BEHIND = 1.05
"""Ratio above which a server counts as fallen behind: the time in which the answers arrived, divided by the time in
which their requests were due."""
_MIDDLE = (0.05, 0.95)
"""Shares of the answers between which these times are compared, so that a few slow answers have no effect."""
_QUARTER = 0.25
_LEAST_ANSWERS = 40
Interval = tuple[float, float]


def percentile(values: Floats, share: float) -> float | None:
    """Return the smallest value that is at least as large as the given share of the values; None if there are none."""
    if not len(values):
        return None
    ordered = np.partition(values, index := _rank(len(values), share))
    return float(ordered[index])


def _rank(count: int, share: float) -> int:
    return min(max(math.ceil(share * count - 1e-9) - 1, 0), count - 1)


def supports(count: int, share: float) -> bool:
    """Return True if there are enough values for a percentile, that is, if at least ten of them are above it."""
    return count * (1 - share) >= 10 - 1e-9


def answering_s(due: Floats, latency: Floats, length_s: float, *, counts: Integers | None = None) -> float:
    """Return the time in seconds in which a server gave these answers; longer than the run if the server fell behind.

    A server that can't keep up with a schedule gives the remaining answers after the last due time. If they were
    divided by the length of the run, the result would always be the rate of the schedule.

    Args:
        due: due times of the answered requests.
        latency: their latencies in seconds.
        length_s: length of the run in seconds.
        counts: number of requests with each due time and latency; by default one.
    """
    weights = np.ones(len(due), dtype=np.int64) if counts is None else counts
    total = int(weights.sum())
    if total < _LEAST_ANSWERS:
        return length_s
    (first_due, last_due), (first_done, last_done) = (_at(times, weights, _MIDDLE) for times in (due, due + latency))
    answer_span, due_span = last_done - first_done, last_due - first_due
    # Answers to a part of the schedule alone may all arrive within the run.
    if answer_span <= BEHIND * due_span or answer_span / (_MIDDLE[1] - _MIDDLE[0]) <= BEHIND * length_s:
        return length_s
    # Answers that take seconds, some longer than others, also arrive over a longer time than they were due. But those
    # of a server that falls behind take longer and longer.
    order = np.argsort(due, kind="stable")
    share = np.cumsum(weights[order]) / total
    # One entry of a histogram may be more than a quarter.
    early = order[: max(int(np.searchsorted(share, _QUARTER, side="right")), 1)]
    late = order[share > 1 - _QUARTER]
    low, middle, high = _at(latency[early], weights[early], (0.25, 0.5, 0.75))
    growth = _median(latency, weights, late) - middle
    distance = _median(due, weights, late) - _median(due, weights, early)
    chance = 4 * (high - low) / math.sqrt(_QUARTER * total)
    if distance <= 0 or growth <= max(chance, (BEHIND - 1) * distance):
        return length_s
    return float(max(min(answer_span / (_MIDDLE[1] - _MIDDLE[0]), length_s * (1 + growth / distance)), length_s))


def _median(values: Floats, weights: Integers, indices: Integers) -> float:
    return float(_at(values[indices], weights[indices], (0.5,))[0])


def _at(values: Floats, weights: Integers, shares: Sequence[float]) -> Floats:
    """Return the weighted quantiles of the values at these shares."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    selected: Floats = values[order[np.searchsorted(sums, np.array(shares) * sums[-1])]]
    return selected


class Blocks:
    """Latencies grouped by second of the run. Intervals are computed from random draws of whole seconds."""

    def __init__(
        self, due: Floats, latency: Floats, length_s: float, *, seed: int = 1, counts: Integers | None = None
    ) -> None:
        """Count the latencies. `counts` is the number of requests with each latency; by default one."""
        self._count = max(math.floor(length_s), 1)
        lengths_s = np.ones(self._count)
        # The last block also has the requests of the remaining part of a second.
        lengths_s[-1] = max(length_s - self._count + 1, 1e-9)
        block = np.minimum(np.floor(np.clip(due, 0, None)).astype(np.int64), self._count - 1)
        position = np.log10(np.maximum(latency, _LEAST_S) / _LEAST_S) * _BINS_PER_DECADE
        used, column = np.unique(
            np.minimum(position.astype(np.int64), _BINS_PER_DECADE * _DECADES - 1), return_inverse=True
        )
        table = _counts(block, column, self._count, len(used), weights=counts)
        self._answered = table.sum(axis=1)
        draws = np.random.default_rng(seed).integers(0, self._count, (_DRAWS, self._count))
        # Number of times that each block is in each draw.
        draw = np.repeat(np.arange(_DRAWS), self._count)
        self._weights = _counts(draw, draws.ravel(), _DRAWS, self._count).astype(np.float32)
        self._lengths_s = self._weights @ lengths_s
        self._edges = _LEAST_S * 10 ** ((used + 0.5) / _BINS_PER_DECADE)
        self._drawn = np.cumsum(self._weights @ table.astype(np.float32), axis=1)

    def percentile(self, share: float) -> Interval | None:
        """Return the 95 % interval of a percentile in seconds; None with fewer than `MIN_BLOCKS` blocks."""
        if self._count < MIN_BLOCKS or not len(self._edges):
            return None
        totals = self._drawn[:, -1:]
        # The rows are ascending, so this is the index of the first value that isn't below.
        index = (self._drawn < share * totals).sum(axis=1)
        return _central_interval(self._edges[np.minimum(index, len(self._edges) - 1)][totals[:, 0] > 0])

    def rate(self, good: npt.NDArray[np.int64] | None = None) -> Interval | None:
        """Return the 95 % interval of the answers per second, or of `good`, which has one count per block."""
        if self._count < MIN_BLOCKS:
            return None
        return _central_interval(self._weights @ (self._answered if good is None else good) / self._lengths_s)


def per_second(due: Floats, length_s: float, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the number of requests in `mask` that became due in each whole second of the run."""
    count = max(math.floor(length_s), 1)
    return np.bincount(np.minimum(np.floor(due[mask]).astype(np.int64), count - 1), minlength=count)


def _counts(row: Integers, column: Integers, rows: int, columns: int, *, weights: Integers | None = None) -> Integers:
    """Return a table with the number of occurrences of each pair.

    `weights` contains the number of times that each pair counts; by default one.
    """
    table = np.bincount(row * columns + column, weights=weights, minlength=rows * columns)
    return table.astype(np.int64).reshape(rows, columns)


def _central_interval(values: npt.NDArray[np.float64]) -> Interval | None:
    if not len(values):
        return None
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)
