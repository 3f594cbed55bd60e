"""Measured number, and base class of all parts of the document. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Unit = Literal[
    "s",
    "ms",
    "us",
    "requests/s",
    "rows/s",
    "requests",
    "rows",
    "executions",
    "ratio",
    "cores",
    "bytes",
    "W",
    "J",
    "mg",
    "g/kWh",
    "price/h",
    "price",
    "events",
    "FLOP/s",
    "bytes/s",
]


class Part(BaseModel):
    """Part of the document. Unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(Part):
    """A measured number."""

    value: float | None = Field(description="Measured number; null if it wasn't measured.")
    unit: Unit = Field(description="Unit of `value` and `interval`.")
    n: int = Field(description="Number of requests, samples or executions from which the figure is computed.")
    interval: tuple[float, float] | None = Field(
        default=None,
        description="95 % confidence interval; null if there is too little data. It comes from a bootstrap of one-second blocks, unless the description of the field states another method.",
    )
    source: str = Field(description="Data from which the figure was computed.")
    reason: str = Field(
        default="", description="Reason why the figure wasn't measured or is uncertain; otherwise empty."
    )


def unmeasured(unit: Unit, reason: str, source: str = "") -> Figure:
    """Return a figure without a value, for a quantity that wasn't measured."""
    return Figure(value=None, unit=unit, n=0, source=source, reason=reason)
