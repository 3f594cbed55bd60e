"""Section `roofline`: the machine's maximum compute rate for the model, and the share that the model reaches.

Pure.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part


class Peak(Part):
    """Maximum rate of one resource of the machine."""

    kind: Literal["measured", "published"] = Field(
        description="measured: measured on this machine; published: published by the manufacturer."
    )
    rate: Figure = Field(description="Largest measured sample, or the published value, in FLOP/s or bytes/s.")
    cv: float | None = Field(description="Coefficient of variation of the samples; null for a published value.")
    how: str = Field(
        description="Program that measured the rate, with its number of cores; for a published value, the name of the product."
    )


class RooflinePoint(Part):
    """Measured executions with one batch size, in relation to the roofline."""

    batch: int = Field(description="Number of rows in an execution.")
    intensity: float = Field(
        description="Arithmetic intensity: operations per byte of the smallest possible memory traffic."
    )
    rate: Figure = Field(description="Operations per second that the model reached.")
    roof: float = Field(description="Operations per second that the machine can reach at this intensity.")
    share: Figure = Field(description="Rate that the model reached, divided by the roof.")
    bound: Literal["compute", "bandwidth"] = Field(description="Resource that limits the roof at this intensity.")
    source: str = Field(description="What was measured: the served model, or the model alone without a server.")


class Roofline(Part):
    """Roofline for the model, with measured points below it."""

    datatype: str = Field(description="Data type for which the compute peak applies, for example FP32.")
    compute: Peak
    memory: Peak
    ridge: float = Field(
        description="Arithmetic intensity above which the compute peak is the limit, in operations per byte."
    )
    points: tuple[RooflinePoint, ...] = Field(description="Measured points, one per batch size.")
    bandwidth_bound_below: int | None = Field(
        description="Smallest batch size at which compute is the limit; null if there is none up to 4096."
    )
    above: tuple[int, ...] = Field(
        description="Batch sizes whose measured points are above the roof. If the list isn't empty, the roof is wrong."
    )
    answer: str = Field(description="Result in one sentence.")
