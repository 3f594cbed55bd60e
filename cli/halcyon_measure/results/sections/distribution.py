"""Section `distribution`: latency at many percentiles. Pure."""

from __future__ import annotations

from pydantic import Field

from halcyon_measure.results.figure import Part


class Distribution(Part):
    """Latency percentiles of the answered requests, evenly spaced by the number of nines (0.9, 0.99, 0.999)."""

    shares: tuple[float, ...] = Field(description="Shares of the requests in ascending order, at most 0.999.")
    latency_ms: tuple[float, ...] = Field(
        description="For each share, the latency from the due time that this share of the requests does not exceed, in ms."
    )
    from_send_ms: tuple[float, ...] = Field(
        description="For each share, the latency from sending that this share of the requests does not exceed, in ms."
    )
