"""Student's t distribution, and confidence intervals of a mean that are based on it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

Interval = tuple[float, float]
_STEPS = 20_001
MIN_VALUES = 3
"""Minimum number of values for an interval of their mean."""


@lru_cache(maxsize=256)
def quantile(share: float, freedom: int) -> float:
    """Return the value that a t-distributed variable exceeds with probability 1 - `share`.

    With the substitution t = sqrt(freedom) tan(angle), the density of the angle is cos(angle) ** (freedom - 1), on a
    finite range.

    Args:
        share: above 0 and below 1, for example 0.975.
        freedom: degrees of freedom, at least 1.
    """
    angle = np.linspace(-math.pi / 2, math.pi / 2, _STEPS)
    density = np.maximum(np.cos(angle), 0.0) ** (freedom - 1)
    mass = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2)))
    return float(math.sqrt(freedom) * math.tan(np.interp(share, mass / mass[-1], angle)))


def mean_interval(values: Sequence[float], *, share: float = 0.95) -> Interval | None:
    """Return the confidence interval of the mean of independent values; None if there are fewer than `MIN_VALUES`."""
    count = len(values)
    if count < MIN_VALUES:
        return None
    mean = math.fsum(values) / count
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)
    half_width = quantile((1 + share) / 2, count - 1) * error
    return mean - half_width, mean + half_width
