"""Mean number of rows per request, learnt from the pods' counters of rows and requests. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

MAX_REQUESTS = 1000.0
"""Time constant of the moving average of rows per request, as a number of requests."""
_MIN_CHANGE = 0.05
"""Minimum relative change of the mean rows per request for which the mean is updated. The capacity of a replica in
requests is computed from it, so noise in the mean would cause noise in the replicas."""
_MAX_FACTOR = 3.0
"""Maximum factor by which the rows per request may differ from their mean. A larger difference indicates a faulty
counter."""
_MIN_CONSECUTIVE = 5
"""Number of consecutive readings with implausible rows per request after which the new value is accepted."""


def with_ratios(
    shape: tuple[float, float], implausible: int, reported: float, ratios: Sequence[tuple[float, float]]
) -> tuple[tuple[float, float], int, float]:
    """Update the averages with the pods' new counts.

    Args:
        shape: `SignalMemory.shape`, decayed sums of requests and rows.
        implausible: `SignalMemory.implausible`, number of consecutive implausible readings.
        reported: `SignalMemory.rows_per_request`, the mean reported last.
        ratios: (rows per request, requests) of each pod in ascending order, at least one.

    Returns: the new values of the first three arguments.
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
    """Return the weighted median of (value, weight) pairs in ascending order.

    Unlike a mean, it is not shifted by a single pod with invalid values.
    """
    passed = 0.0
    for value, weight in weighted:
        passed += weight
        if passed >= total / 2:
            return value
    return weighted[-1][0]


def _steady_mean(reported: float, requests: float, rows: float) -> float:
    if requests <= 0 or rows <= 0 or abs(rows / requests / reported - 1) <= _MIN_CHANGE:
        return reported
    # Rounded to three digits, because requests per batch are rounded down later: a mean of 2 must not become 2.0000000001.
    return float(f"{rows / requests:.3g}")
