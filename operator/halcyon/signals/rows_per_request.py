"""Rows of a request, learnt from what pods count. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

KEPT_REQUESTS = 1000.0
"""Requests that the mean rows of one are taken over."""
_CALM = 0.05
"""The mean rows of a request that are told change when they are off by more: they scale the capacity, and noise in it would
be noise in the count."""
_ODD = 3.0
"""A ratio of rows to requests so many times higher or lower than the mean is a counter's fault,"""
_BELIEVED = 5
"""unless this many readings in a row say so."""


def shaped(
    shape: tuple[float, float], odd: int, told: float, ratios: Sequence[tuple[float, float]]
) -> tuple[tuple[float, float], int, float]:
    """(shape, odd, rows of a request as told from now on), the three of `SignalMemory`, with what pods have counted since.

    `ratios`: (rows of a request, requests) of each pod, ascending; at least one.
    """
    more = sum(weight for _, weight in ratios)
    ratio = _middle(ratios, more)
    requests, rows = shape
    if requests > 0 and not 1 / _ODD <= ratio * requests / rows <= _ODD:
        if odd + 1 < _BELIEVED:
            return shape, odd + 1, told
        requests = rows = 0.0
    keep = math.exp(-more / KEPT_REQUESTS)
    requests, rows = keep * requests + more, keep * rows + more * ratio
    return (requests, rows), 0, _calm(told, requests, rows)


def _middle(weighted: Sequence[tuple[float, float]], total: float) -> float:
    """The weighted median of (value, weight), ascending: one pod that tells nonsense does not move it."""
    passed = 0.0
    for value, weight in weighted:
        passed += weight
        if passed >= total / 2:
            return value
    return weighted[-1][0]


def _calm(told: float, requests: float, rows: float) -> float:
    if requests <= 0 or rows <= 0 or abs(rows / requests / told - 1) <= _CALM:
        return told
    # To three digits: a mean of 2 is to be 2, not the next float above, where whole requests of a batch are counted.
    return float(f"{rows / requests:.3g}")
