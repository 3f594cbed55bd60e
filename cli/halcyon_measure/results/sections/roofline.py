"""Section `roofline`: the machine's maximum compute rate for the model, and the share that the model reaches.

Pure.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part


class Peak(Part):
    """Maximum rate of one resource of the machine."""

    kind: Literal["measured", "published"] = Field(description="measured here, or published by the manufacturer.")
    rate: Figure = Field(description="Largest of its samples, in FLOP/s or bytes/s.")
    cv: float | None = Field(description="Coefficient of variation of the samples; null if it was published.")
    how: str = Field(description="Program that was run, with the number of cores, or the name of the product.")


class RooflinePoint(Part):
    """Measured executions with one batch size, in relation to the roofline."""

    batch: int = Field(description="Rows of an execution.")
    intensity: float = Field(description="Operations for each byte of the least possible memory traffic.")
    rate: Figure = Field(description="Operations per second that the model reached.")
    roof: float = Field(description="Operations per second that are possible at this intensity.")
    share: Figure = Field(description="Share of the roof that the model reached.")
    bound: Literal["compute", "bandwidth"] = Field(description="Peak that limits the roof at this intensity.")
    source: str = Field(description="Measured model: the served one, or the model alone.")


class Roofline(Part):
    """Roofline for the model, with measured points below it."""

    datatype: str = Field(description="Data type that the peak of compute is for, for example FP32.")
    compute: Peak
    memory: Peak
    ridge: float = Field(description="Operations per byte above which the compute peak is the limit.")
    points: tuple[RooflinePoint, ...] = Field(description="Measured points by batch size.")
    bandwidth_bound_below: int | None = Field(
        description="Smallest batch size that compute limits; null if there is none up to 4096."
    )
    above: tuple[int, ...] = Field(
        description="Batch sizes of points above the roof: if there is one, the roof is wrong."
    )
    answer: str = Field(description="The result in one sentence.")
