"""Test for a steady rise of the arrivals in equal blocks of time, and extrapolation of the rise. Pure.

Out of scope: the time span that the blocks cover (`arrival_rate`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

TREND_BLOCKS = 7
"""Number of equal blocks into which a time span is divided to search it for a trend. A trend is computed from the
median increase between blocks. With fewer blocks, a single step in the load would change the median."""
_TREND_SIGMAS = 5.0
"""Minimum rise of a line fitted to the arrivals in all blocks of time, in standard errors, before a trend is
extrapolated. The minimum is high because five time spans are tested continuously. The line with 5 standard errors
detects rises as well as a simpler test (last block against first, 4 standard errors), with a hundredth of the false
detections."""
_BEFORE_SIGMAS = 3.0
"""Minimum rise, in standard errors, of a line fitted to the arrivals in all blocks of time except the last. A step that
has just begun affects only the last block, so it does not reach this minimum."""
_STEP_BLOCKS = 3
"""Minimum number of blocks of time that are searched for a step of the load."""
_STEP_SIGMAS = 2.0
"""Number of standard errors by which a step must fit the arrivals better than a line for the rise to count as a
step."""
_MEDIAN_ERROR = 0.5
"""Amount that is subtracted from the median increase between blocks of time, in standard deviations of the number of
arrivals in a block. It is two thirds of the standard error of the median of six neighbouring differences, which is 0.72
(computed). If the whole error were subtracted, rises that last only as long as the start of a pod would be missed."""


def extrapolated(counts: Sequence[float], block_s: float, spread: float, horizon_s: float) -> float | None:
    """Return the arrival rate extrapolated to `horizon_s` seconds from now; None if it doesn't rise.

    The rate rises if the number of arrivals increases between most blocks. `counts` are the arrivals in blocks of
    `block_s` seconds, and `spread` is their dispersion.
    """
    increases = sorted(b - a for a, b in pairwise(counts))
    half = len(increases) // 2
    median = (increases[half - 1] + increases[half]) / 2
    # For counts with standard deviation s, the median of six neighbouring differences has a standard error of about
    # 0.72 s.
    slope = (median - _MEDIAN_ERROR * math.sqrt(spread * sum(counts) / len(counts))) / block_s**2
    return counts[-1] / block_s + slope * (block_s / 2 + min(horizon_s, block_s * len(counts))) if slope > 0 else None


def rises_steadily(counts: Sequence[float], spread: float) -> bool:
    """Return whether the counts of equal blocks rise steadily and by more than chance.

    The last block is not included in the search for a step, so a higher last block never prevents a trend. The other
    blocks are searched for a step repeatedly, each time without the oldest block of the previous search. This detects
    two steps in a row, for example from no load to some load and then to more: together they resemble a line, but the
    newest blocks contain only one of them.
    """
    before = counts[:-1]
    if _rise(counts) <= _TREND_SIGMAS * math.sqrt(spread) or _rise(before) <= _BEFORE_SIGMAS * math.sqrt(spread):
        return False
    return not any(_is_step(before[skipped:], spread) for skipped in range(len(before) - _STEP_BLOCKS + 1))


def _rise(counts: Sequence[float]) -> float:
    """Return the rise of a line through the counts of equal blocks, in standard errors of Poisson arrivals."""
    middle = (len(counts) - 1) / 2
    rise = error = 0.0
    for index, count in enumerate(counts):
        rise += (index - middle) * count
        error += (index - middle) ** 2 * count
    return rise / math.sqrt(error) if error > 0 else 0.0


def _is_step(counts: Sequence[float], spread: float) -> bool:
    """Return whether a step fits the arrivals in equal blocks better than a line, by more than chance.

    The best step and the best line are compared. Each has two parameters for the level. The difference between their
    sums of squared errors is measured in units of the variance of the arrivals.
    """
    size, total = len(counts), sum(counts)
    mean = total / size
    middle = (size - 1) / 2
    tilt = sum((index - middle) * count for index, count in enumerate(counts))
    by_line = 12 * tilt**2 / (size * (size**2 - 1))
    by_step = below = 0.0
    for index in range(1, size):
        below += counts[index - 1]
        by_step = max(by_step, (below - index * mean) ** 2 * size / (index * (size - index)))
    return by_step - by_line > _STEP_SIGMAS**2 * spread * mean
