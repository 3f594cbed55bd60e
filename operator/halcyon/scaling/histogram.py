"""Latencies counted by bucket. Pure; counts of several pods or several times can be added."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True, slots=True)
class Histogram:
    """Number of responses by latency."""

    bounds_s: tuple[float, ...]
    """Upper bounds of the buckets, ascending; a value equal to a bound belongs to the bucket below it."""
    counts: tuple[int, ...]
    """Responses per bucket, then those above all bounds: one more entry than there are bounds."""

    def __post_init__(self) -> None:
        """Check bounds and counts.

        Raises:
            ValueError: bounds don't ascend, or counts don't match them.
        """
        if not self.bounds_s or list(self.bounds_s) != sorted(set(self.bounds_s)) or self.bounds_s[0] <= 0:
            raise ValueError(f"histogram: bounds_s {self.bounds_s} must be above 0 and ascend, such as (0.1, 0.2, 0.4)")
        if len(self.counts) != len(self.bounds_s) + 1 or min(self.counts) < 0:
            raise ValueError(
                f"histogram: counts {self.counts} must be {len(self.bounds_s) + 1} numbers from 0 up, one per bucket and "
                "one for what is above the last bound"
            )

    def __add__(self, other: Histogram) -> Histogram:
        """Add two histograms.

        Raises:
            ValueError: their bounds differ.
        """
        if self.bounds_s != other.bounds_s:
            raise ValueError(
                f"histograms with bounds {self.bounds_s} and {other.bounds_s} can't be added: count both with the same bounds"
            )
        return Histogram(self.bounds_s, tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)))

    @property
    def total(self) -> int:
        """Return the number of responses."""
        return sum(self.counts)

    def above(self, bound_s: float) -> int:
        """Return the number of responses that took longer than one of the bounds."""
        return sum(self.counts[bisect_left(self.bounds_s, bound_s) + 1 :])

    def bound_above(self, seconds: float) -> float | None:
        """Return the first bound of at least `seconds`, with a tolerance of 1 %; None if the last bound is lower."""
        # Bounds are rounded numbers: 1.199 ms must do for 1.2 ms.
        place = bisect_left(self.bounds_s, 0.99 * seconds)
        return self.bounds_s[place] if place < len(self.bounds_s) else None

    def least_bound(self, share: float) -> float | None:
        """Return the smallest bound that at least this share of the responses did not exceed.

        None if there are no responses, or if a larger share exceeded even the last bound.
        """
        needed = share * self.total
        if not self.total:
            return None
        return next((b for b, n in zip(self.bounds_s, accumulate(self.counts), strict=False) if n >= needed), None)

    def quantile(self, share: float) -> float | None:
        """Return the latency that this share of responses did not exceed, interpolated within its bucket.

        None as for `least_bound`.
        """
        found = quantile(self.bounds_s, self.counts, share)
        return None if found is None or math.isinf(found) else found


def growth(before: Sequence[int], now: Sequence[int]) -> tuple[int, ...] | None:
    """Return the counts between two readings of the same counters; None if one fell: another process counts from zero."""
    grown = tuple(later - earlier for earlier, later in zip(before, now, strict=True))
    return None if min(grown) < 0 else grown


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Return the value that this share did not exceed, in the unit of the bounds, as Prometheus' histogram_quantile has it.

    The values of a bucket are taken to be spread evenly over it. Infinity: a larger share exceeded even the last bound.
    None: there are no values.

    Args:
        bounds: upper bounds of the buckets, ascending.
        counts: values per bucket, then those above all bounds.
        share: 0 to 1.
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
