"""Durations of requests, stored either individually or as counts in logarithmic bins. Pure.

A bin is 1/256 octave wide, and the bins cover 1 us to 4.5 h. The middle of a bin differs from the values in it by at
most 0.2 %. Sum, number and maximum are exact in both forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halcyon_measure.results import statistics
from halcyon_measure.results.columns import Floats, Integers

SUB_BINS = 256
_LEAST, _MOST = -19, 14
"""Exponent of the first octave, and exponent after that of the last octave, as in `numpy.frexp`."""
BINS = (_MOST - _LEAST) * SUB_BINS
SOURCE = "a histogram, within 0.2 %"


def bins_of(values: Floats) -> Integers:
    """Return the bin of each value, given in seconds. Values outside the range are in the first or the last bin."""
    mantissa, exponent = np.frexp(np.clip(values, 2.0 ** (_LEAST - 1), 2.0 ** (_MOST - 1) * (1 - 1e-9)))
    return (exponent - _LEAST).astype(np.int64) * SUB_BINS + ((mantissa - 0.5) * 2 * SUB_BINS).astype(np.int64)


def middles(bins: Integers) -> Floats:
    """Return the value in the middle of each bin, in seconds."""
    exponent, sub_bin = np.divmod(bins, SUB_BINS)
    values: Floats = np.ldexp(0.5 + (sub_bin + 0.5) / (2 * SUB_BINS), exponent + _LEAST)
    return values


@dataclass(frozen=True)
class Durations:
    """Durations of one kind, for example latencies, in seconds."""

    n: int
    total: float
    largest: float
    is_known: bool
    """Whether all requests have this duration. If the protocol's client doesn't report it, some values are NaN."""
    values: Floats | None = None
    counts: Integers | None = None
    """Number of values in each bin; None if the values are stored individually."""

    @classmethod
    def of(cls, values: Floats) -> Durations:
        """Return durations with these values, stored individually."""
        if not len(values):
            return cls(0, 0.0, 0.0, is_known=True, values=values)
        return cls(
            len(values), float(np.sum(values)), float(np.max(values)), is_known=bool(np.isfinite(values).all()), values=values
        )  # fmt: skip

    @property
    def is_counted(self) -> bool:
        """Whether percentiles are computed from a histogram."""
        return self.counts is not None

    @property
    def mean(self) -> float | None:
        """Mean in seconds; None if there are no values."""
        return self.total / self.n if self.n else None

    def percentile(self, share: float) -> float | None:
        """Return the smallest value that is at least as large as the given share of the values.

        The result is None if there are no values.
        """
        if not self.n:
            return None
        if self.counts is None:
            assert self.values is not None  # noqa: S101  # one of both forms
            return statistics.percentile(self.values, share)
        return self.at([share])[0]

    def at(self, shares: Sequence[float]) -> list[float]:
        """Return the percentiles for these shares. There must be at least one value."""
        ranks = np.clip(np.ceil(np.array(shares) * self.n - 1e-9).astype(np.int64) - 1, 0, self.n - 1)
        if self.counts is None:
            assert self.values is not None  # noqa: S101  # one of both forms
            return [float(value) for value in np.sort(self.values)[ranks]]
        bins = np.searchsorted(np.cumsum(self.counts), ranks, side="right")
        return [min(float(value), self.largest) for value in middles(bins)]
