"""Documents of `halcyon analyse` and `halcyon variants`, version 1. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from halcyon_measure.results.figure import Figure, Part
from halcyon_measure.results.sections.alone import Alone
from halcyon_measure.results.sections.roofline import Roofline
from halcyon_measure.results.sections.static import Static


class AnalysisDocument(Part):
    """Counts of a model, and its measurement without a server on this machine if it was requested."""

    version: Literal[1] = Field(default=1, description="Version of the document.")
    made_by: str = Field(description="Program that wrote the document, and its version.")
    made_at: str = Field(description="Time at which the document was written, in the format of RFC 3339.")
    static: Static = Field(description="Operations, parameters and bytes of the model's graph.")
    alone: Alone | None = Field(default=None, description="Measurement of the model in one process, without a server.")
    roofline: Roofline | None = Field(
        default=None, description="Roofline of the machine, and the performance that the model reached."
    )


class LeftOperator(Part):
    """Nodes of one operator that a variant still computes in FP32."""

    operator: str = Field(description="ONNX operator, with its domain if the domain isn't ai.onnx.")
    nodes: int = Field(description="Number of nodes with this operator.")
    examples: tuple[str, ...] = Field(description="Names of up to three nodes.")
    reason: str = Field(description="Reason why the nodes weren't converted.")


class Variant(Part):
    """The model in one precision."""

    name: str = Field(description="Name of the variant: fp32, fp16, int8-dynamic or int8-static.")
    path: str = Field(
        description="Folder of the model repository with the variant; empty if the variant couldn't be made."
    )
    failure: str = Field(description="Reason why the variant couldn't be made or run; otherwise empty.")
    size: Figure = Field(description="Size of the variant's file.")
    size_ratio: Figure = Field(description="Size of the variant divided by the size of fp32.")
    accuracy: Figure = Field(
        description="Share of the rows for which the variant predicts the correct label, with a Wilson interval."
    )
    same_label: Figure = Field(description="Share of the rows for which the variant predicts the same label as fp32.")
    largest_deviation: Figure = Field(
        description="Largest absolute difference between an output value and that of fp32, divided by the largest absolute output value of fp32."
    )
    mean_deviation: Figure = Field(
        description="Mean absolute difference between output values and those of fp32, divided by the largest absolute output value of fp32."
    )
    load: Figure = Field(description="Time to load the variant, in ms.")
    memory: Figure = Field(description="Memory that the process used in addition after it loaded and ran the variant.")
    rate: Figure = Field(
        description="Rows per second with one execution after the other. It is the mean of several rounds, in which the variants run alternately."
    )
    p99: Figure = Field(description="99th percentile of the time of an execution, in ms.")
    left: tuple[LeftOperator, ...] = Field(description="Operators that the variant still computes in FP32.")


class VariantsDocument(Part):
    """Variants of a model, compared on the same rows."""

    version: Literal[1] = Field(default=1, description="Version of the document.")
    made_by: str = Field(description="Program that wrote the document, and its version.")
    made_at: str = Field(description="Time at which the document was written, in the format of RFC 3339.")
    model: str = Field(description="Path of the model's file.")
    data: str = Field(description="Path of the file with the rows.")
    rows: int = Field(description="Number of rows with which the variants were compared.")
    calibration_rows: int = Field(
        description="Number of rows that calibrated the static variant. They aren't used in the comparison."
    )
    batch: int = Field(description="Number of rows in a timed execution.")
    threads: int = Field(description="Number of threads of an execution.")
    library: str = Field(description="Library that ran the variants, and its version.")
    variants: tuple[Variant, ...] = Field(description="The original model, followed by its variants.")
