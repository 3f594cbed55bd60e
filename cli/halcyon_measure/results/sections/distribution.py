"""Section `distribution`: latency at many percentiles. Pure."""

from __future__ import annotations

from pydantic import Field

from halcyon_measure.results.figure import Part


class Distribution(Part):
    """Latency percentiles of the answered requests, evenly spaced by the number of nines (0.9, 0.99, 0.999)."""

    shares: tuple[float, ...] = Field(description="Shares of the requests, rising, at most 0.999.")
    latency_ms: tuple[float, ...] = Field(description="Latency from due that each share doesn't exceed.")
    from_send_ms: tuple[float, ...] = Field(description="Latency from sending that each share doesn't exceed.")
