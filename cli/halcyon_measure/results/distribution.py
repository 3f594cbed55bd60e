"""Latency at many shares of the requests, for a plot of percentiles. Pure."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from halcyon_measure.results.columns import Floats
from halcyon_measure.results.figure import Part

_NAMED = (0.5, 0.9, 0.95, 0.99, 0.999)
_STEPS_PER_NINE = 10
SHARES = tuple(sorted({*(round(1 - 10 ** (-step / _STEPS_PER_NINE), 4) for step in range(30)), *_NAMED}))
"""Shares of the requests, evenly spaced in nines, so that the last percent has as much room as the first ninety."""


class Distribution(Part):
    """Percentiles of the answered requests, evenly spaced in nines: 0.9, 0.99 and 0.999 are equally far apart."""

    shares: tuple[float, ...] = Field(description="Shares of the requests, rising, at most 0.999.")
    latency_ms: tuple[float, ...] = Field(description="Latency from due that each share doesn't exceed.")
    from_send_ms: tuple[float, ...] = Field(description="Latency from sending that each share doesn't exceed.")


def of(latency: Floats, from_send: Floats) -> Distribution | None:
    """Return the distribution of latencies in seconds; None if there are none."""
    if not len(latency):
        return None
    return Distribution(shares=SHARES, latency_ms=_at_shares(latency), from_send_ms=_at_shares(from_send))


def _at_shares(values: Floats) -> tuple[float, ...]:
    ordered = np.sort(values)
    rank = np.clip(np.ceil(np.array(SHARES) * len(ordered) - 1e-9).astype(int) - 1, 0, len(ordered) - 1)
    return tuple(round(1000 * float(value), 4) for value in ordered[rank])
