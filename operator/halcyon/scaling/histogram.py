"""Latencies counted by bucket. Pure; counts of several pods, or of several times, add up."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many answers took how long."""

    bounds_s: tuple[float, ...]
    """Upper bounds of the buckets, ascending; what lies on a bound is in the bucket below it."""
    counts: tuple[int, ...]
    """Answers per bucket, and last those above all bounds: one more than there are bounds."""

    def __post_init__(self) -> None:
        """Checked where it is made.

        Raises:
            ValueError: bounds don't ascend, or counts don't fit.
        """
        if not self.bounds_s or list(self.bounds_s) != sorted(set(self.bounds_s)) or self.bounds_s[0] <= 0:
            raise ValueError(f"histogram: bounds_s {self.bounds_s} must be above 0 and ascend, such as (0.1, 0.2, 0.4)")
        if len(self.counts) != len(self.bounds_s) + 1 or min(self.counts) < 0:
            raise ValueError(
                f"histogram: counts {self.counts} must be {len(self.bounds_s) + 1} numbers from 0 up, one per bucket and "
                "one for what is above the last bound"
            )

    def __add__(self, other: Histogram) -> Histogram:
        """Both together.

        Raises:
            ValueError: they have other bounds.
        """
        if self.bounds_s != other.bounds_s:
            raise ValueError(
                f"histograms with bounds {self.bounds_s} and {other.bounds_s} can't be added: count both with the same bounds"
            )
        return Histogram(self.bounds_s, tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)))

    @property
    def total(self) -> int:
        """Answers."""
        return sum(self.counts)

    def above(self, bound_s: float) -> int:
        """Answers that took longer than one of the bounds."""
        return sum(self.counts[bisect_left(self.bounds_s, bound_s) + 1 :])

    def bound_above(self, seconds: float) -> float | None:
        """The first bound that is not below so many seconds, by more than a hundredth; None where the last one is."""
        # Bounds are rounded numbers: 1.199 ms must do where 1.2 are asked for.
        place = bisect_left(self.bounds_s, 0.99 * seconds)
        return self.bounds_s[place] if place < len(self.bounds_s) else None

    def least_bound(self, share: float) -> float | None:
        """The smallest bound that at least this share of the answers did not exceed.

        None of no answers, and where even the last bound was exceeded by more.
        """
        needed = share * self.total
        if not self.total:
            return None
        return next((b for b, n in zip(self.bounds_s, accumulate(self.counts), strict=False) if n >= needed), None)

    def quantile(self, share: float) -> float | None:
        """The time that this share of the answers did not exceed, linear within its bucket; None as for `least_bound`."""
        bound = self.least_bound(share)
        if bound is None:
            return None
        place = self.bounds_s.index(bound)
        low = self.bounds_s[place - 1] if place else 0.0
        below = sum(self.counts[:place])
        return low + (bound - low) * (share * self.total - below) / self.counts[place] if self.counts[place] else bound
