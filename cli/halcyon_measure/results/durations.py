"""Durations of requests: each of them, or counted in log-linear bins. Pure.

Bins are 1/256 of an octave, from 1 us to 4.5 h: the middle of a bin differs from its values by 0.2 % at most. Sum, number and
largest value are exact in both forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halcyon_measure.results import statistics
from halcyon_measure.results.columns import Floats, Integers

SUB_BINS = 256
_LEAST, _MOST = -19, 14
"""Exponents of the first and behind the last octave, as of `numpy.frexp`."""
BINS = (_MOST - _LEAST) * SUB_BINS
SOURCE = "a histogram, within 0.2 %"


def bins_of(values: Floats) -> Integers:
    """Return the bin of each value in seconds. Values outside of the bins are in the first or the last one."""
    mantissa, exponent = np.frexp(np.clip(values, 2.0 ** (_LEAST - 1), 2.0 ** (_MOST - 1) * (1 - 1e-9)))
    return (exponent - _LEAST).astype(np.int64) * SUB_BINS + ((mantissa - 0.5) * 2 * SUB_BINS).astype(np.int64)


def middles(bins: Integers) -> Floats:
    """Return the value in seconds in the middle of each bin."""
    exponent, part = np.divmod(bins, SUB_BINS)
    found: Floats = np.ldexp(0.5 + (part + 0.5) / (2 * SUB_BINS), exponent + _LEAST)
    return found


@dataclass(frozen=True)
class Durations:
    """The durations of one kind, in seconds."""

    n: int
    total: float
    largest: float
    is_known: bool
    """Whether each request has one: a part that the protocol's client doesn't report is NaN."""
    values: Floats | None = None
    counts: Integers | None = None
    """Number of values by bin, instead of the values."""

    @classmethod
    def of(cls, values: Floats) -> Durations:
        """Return all of these values."""
        if not len(values):
            return cls(0, 0.0, 0.0, is_known=True, values=values)
        return cls(
            len(values), float(np.sum(values)), float(np.max(values)), is_known=bool(np.isfinite(values).all()), values=values
        )  # fmt: skip

    @property
    def is_counted(self) -> bool:
        """Whether percentiles are those of a histogram."""
        return self.counts is not None

    @property
    def mean(self) -> float | None:
        """Mean; None if there is no value."""
        return self.total / self.n if self.n else None

    def percentile(self, share: float) -> float | None:
        """Return the smallest value that at least `share` of the values don't exceed; None if there are none."""
        if not self.n:
            return None
        if self.counts is None:
            assert self.values is not None  # noqa: S101  # one of both forms
            return statistics.percentile(self.values, share)
        return self.at([share])[0]

    def at(self, shares: Sequence[float]) -> list[float]:
        """Return the percentiles of these shares. There must be a value."""
        ranks = np.clip(np.ceil(np.array(shares) * self.n - 1e-9).astype(np.int64) - 1, 0, self.n - 1)
        if self.counts is None:
            assert self.values is not None  # noqa: S101  # one of both forms
            return [float(value) for value in np.sort(self.values)[ranks]]
        found = np.searchsorted(np.cumsum(self.counts), ranks, side="right")
        return [min(float(value), self.largest) for value in middles(found)]
