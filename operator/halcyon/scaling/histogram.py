"""Latencies counted by bucket. Pure; counts of several pods or several times can be added."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate


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
        bound = self.least_bound(share)
        if bound is None:
            return None
        place = self.bounds_s.index(bound)
        low = self.bounds_s[place - 1] if place else 0.0
        below = sum(self.counts[:place])
        return low + (bound - low) * (share * self.total - below) / self.counts[place] if self.counts[place] else bound
