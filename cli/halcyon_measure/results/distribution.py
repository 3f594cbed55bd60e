"""Latency at many percentiles, for a plot. Pure."""

from __future__ import annotations

from halcyon_measure.results.durations import Durations
from halcyon_measure.results.sections.distribution import Distribution

_NAMED = (0.5, 0.9, 0.95, 0.99, 0.999)
_STEPS_PER_NINE = 10
SHARES = tuple(sorted({*(round(1 - 10 ** (-step / _STEPS_PER_NINE), 4) for step in range(30)), *_NAMED}))
"""Shares of the requests for which the latency is stored. They are evenly spaced on the scale 1 - 10^-x, so that the
last percent has as much space as the first ninety."""


def of(latency: Durations, from_send: Durations) -> Distribution | None:
    """Return the distribution of latencies given in seconds; None if there are none."""
    if not latency.n:
        return None
    return Distribution(shares=SHARES, latency_ms=_at_shares(latency), from_send_ms=_at_shares(from_send))


def _at_shares(values: Durations) -> tuple[float, ...]:
    return tuple(round(1000 * value, 4) for value in values.at(SHARES))
