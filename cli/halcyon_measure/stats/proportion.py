"""Confidence interval of a share. Pure."""

from __future__ import annotations

import math

from halcyon_measure.stats.student import Interval

_Z = 1.959964
"""97.5 % quantile of the standard normal distribution."""


def share_interval(share: float, count: int) -> Interval:
    """Return Wilson's 95 % confidence interval of a share that was measured in `count` cases, at least 1.

    Unlike an interval based on the normal distribution, it is within 0 and 1, and has a width even if the share is 0 or
    1.
    """
    middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    half_width = _Z * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2)) / (1 + _Z**2 / count)
    return max(middle - half_width, 0.0), min(middle + half_width, 1.0)
