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

    value: float | None = Field(description="The number; null if it wasn't measured.")
    unit: Unit = Field(description="Unit of `value` and `interval`.")
    n: int = Field(description="Requests, samples or executions that it is computed from.")
    interval: tuple[float, float] | None = Field(
        default=None,
        description="Its 95 % interval, from a bootstrap of one-second blocks if the field says nothing else; null if there are too few.",
    )
    source: str = Field(description="What it was computed from.")
    reason: str = Field(default="", description="Why it wasn't measured, or why it is uncertain; else empty.")


def unmeasured(unit: Unit, reason: str, source: str = "") -> Figure:
    """Return a figure without a value, for a quantity that wasn't measured."""
    return Figure(value=None, unit=unit, n=0, source=source, reason=reason)
