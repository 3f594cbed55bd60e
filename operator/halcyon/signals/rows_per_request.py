"""Rows per request, learnt from the pods' counters. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

MAX_REQUESTS = 1000.0
"""Number of requests over which the rows per request are averaged."""
_MIN_CHANGE = 0.05
"""Relative error from which the reported mean changes. It scales the capacity, and noise in it would be noise in the replicas."""
_MAX_FACTOR = 3.0
"""Factor above or below the mean from which a ratio of rows to requests counts as a faulty counter."""
_MIN_CONSECUTIVE = 5
"""Consecutive readings after which such a ratio is accepted."""


def with_ratios(
    shape: tuple[float, float], implausible: int, reported: float, ratios: Sequence[tuple[float, float]]
) -> tuple[tuple[float, float], int, float]:
    """Return (shape, odd, rows per request to report), the three of `SignalMemory`, with the pods' new counts.

    `ratios`: (rows per request, requests) of each pod, ascending; at least one.
    """
    new_requests = sum(weight for _, weight in ratios)
    ratio = _weighted_median(ratios, new_requests)
    requests, rows = shape
    if requests > 0 and not 1 / _MAX_FACTOR <= ratio * requests / rows <= _MAX_FACTOR:
        if implausible + 1 < _MIN_CONSECUTIVE:
            return shape, implausible + 1, reported
        requests = rows = 0.0
    keep = math.exp(-new_requests / MAX_REQUESTS)
    requests, rows = keep * requests + new_requests, keep * rows + new_requests * ratio
    return (requests, rows), 0, _steady_mean(reported, requests, rows)


def _weighted_median(weighted: Sequence[tuple[float, float]], total: float) -> float:
    """Return the weighted median of (value, weight) pairs in ascending order: one pod with invalid values does not shift it."""
    passed = 0.0
    for value, weight in weighted:
        passed += weight
        if passed >= total / 2:
            return value
    return weighted[-1][0]


def _steady_mean(reported: float, requests: float, rows: float) -> float:
    if requests <= 0 or rows <= 0 or abs(rows / requests / reported - 1) <= _MIN_CHANGE:
        return reported
    # Rounded to three digits: a mean of 2 must be 2, not the next float above, because whole requests per batch are counted.
    return float(f"{rows / requests:.3g}")
