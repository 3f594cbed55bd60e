"""Histograms of latencies, which can be added up over several pods or periods. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True, slots=True)
class Histogram:
    """Histogram of latencies: number of responses by bucket."""

    bounds_s: tuple[float, ...]
    """Upper bounds of the buckets in seconds, inclusive, ascending."""
    counts: tuple[int, ...]
    """Number of responses per bucket, followed by the number above all bounds, so it has one entry more than the
    bounds."""

    def __post_init__(self) -> None:
        """Check the bounds and counts.

        Raises:
            ValueError: the bounds don't ascend, the number of counts doesn't match them, or a count is negative.
        """
        if not self.bounds_s or list(self.bounds_s) != sorted(set(self.bounds_s)) or self.bounds_s[0] <= 0:
            raise ValueError(f"histogram: bounds_s {self.bounds_s} must be above 0 and ascend, such as (0.1, 0.2, 0.4)")
        if len(self.counts) != len(self.bounds_s) + 1 or min(self.counts) < 0:
            raise ValueError(
                f"histogram: counts {self.counts} must be {len(self.bounds_s) + 1} numbers from 0 up, one per bucket and "
                "one for what is above the last bound"
            )

    def __add__(self, other: Histogram) -> Histogram:
        """Return the sum of two histograms.

        Raises:
            ValueError: the histograms have different bounds.
        """
        if self.bounds_s != other.bounds_s:
            raise ValueError(
                f"histograms with bounds {self.bounds_s} and {other.bounds_s} can't be added: count both with the same bounds"
            )
        return Histogram(self.bounds_s, tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)))

    @property
    def total(self) -> int:
        """Return the total number of responses in all buckets."""
        return sum(self.counts)

    def above(self, bound_s: float) -> int:
        """Return the number of responses slower than `bound_s`, which must be one of the bounds."""
        return sum(self.counts[bisect_left(self.bounds_s, bound_s) + 1 :])

    def bound_above(self, seconds: float) -> float | None:
        """Return the lowest bound that is at least `seconds`, with a tolerance of 1 %; None if all bounds are lower."""
        # Bounds are rounded numbers: 1.199 ms counts as 1.2 ms.
        place = bisect_left(self.bounds_s, 0.99 * seconds)
        return self.bounds_s[place] if place < len(self.bounds_s) else None

    def least_bound(self, share: float) -> float | None:
        """Return the lowest bound within which at least `share` of the responses are.

        The result is None if there are no responses, or if fewer than `share` of them are within the last bound.
        """
        needed = share * self.total
        if not self.total:
            return None
        return next((b for b, n in zip(self.bounds_s, accumulate(self.counts), strict=False) if n >= needed), None)

    def quantile(self, share: float) -> float | None:
        """Return the latency in seconds within which `share` of the responses arrived, interpolated within its bucket.

        The result is None if there are no responses, or if fewer than `share` of them are within the last bound.
        """
        value = quantile(self.bounds_s, self.counts, share)
        return None if value is None or math.isinf(value) else value


def growth(before: Sequence[int], now: Sequence[int]) -> tuple[int, ...] | None:
    """Return the growth of each counter of a histogram between two readings.

    Return None if a counter fell, because the process was then restarted and counts from zero.
    """
    grown = tuple(later - earlier for earlier, later in zip(before, now, strict=True))
    return None if min(grown) < 0 else grown


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Return the quantile of a histogram, in the unit of the bounds, computed like Prometheus' histogram_quantile.

    The values are assumed to be distributed evenly within each bucket. The result is infinite if the quantile is above the
    last bound, and None if there are no values.

    Args:
        bounds: upper bounds of the buckets, ascending.
        counts: number of values per bucket, followed by the number above all bounds.
        share: quantile to compute, 0 to 1.
    """
    needed = share * sum(counts)
    if not sum(counts):
        return None
    below = 0
    for (low, high), count in zip(pairwise((0, *bounds)), counts, strict=False):
        if below + count >= needed:
            return low + (high - low) * (needed - below) / count if count else high
        below += count
    return math.inf
