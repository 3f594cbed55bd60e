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
    made_by: str = Field(description="Program and version.")
    made_at: str = Field(description="When it was made, in RFC 3339.")
    static: Static = Field(description="Operations, parameters and bytes of the model's graph.")
    alone: Alone | None = Field(default=None, description="The model in one process, without a server.")
    roofline: Roofline | None = Field(
        default=None, description="What the machine could compute, and what the model did."
    )


class LeftOperator(Part):
    """Nodes of one operator that a variant still computes in FP32."""

    operator: str = Field(description="Operator of ONNX, with its domain if that isn't ai.onnx.")
    nodes: int = Field(description="Nodes of the graph.")
    examples: tuple[str, ...] = Field(description="Names of up to three nodes.")
    reason: str = Field(description="Why they weren't converted.")


class Variant(Part):
    """The model in one precision."""

    name: str = Field(description="fp32, fp16, int8-dynamic or int8-static.")
    path: str = Field(description="Folder of a model repository that has it; empty if it couldn't be made.")
    failure: str = Field(description="Why it couldn't be made or run; else empty.")
    size: Figure = Field(description="Size of its file.")
    size_ratio: Figure = Field(description="Its size divided by that of fp32.")
    accuracy: Figure = Field(description="Share of the rows whose label it finds, with its Wilson interval.")
    same_label: Figure = Field(description="Share of the rows for which it answers as fp32 does.")
    largest_deviation: Figure = Field(
        description="Largest difference of an output from fp32's, divided by the largest of fp32."
    )
    mean_deviation: Figure = Field(
        description="Mean difference of the outputs from fp32's, divided by the largest of fp32."
    )
    load: Figure = Field(description="Time to load it, in ms.")
    memory: Figure = Field(description="Growth of a process's memory by loading and running it.")
    rate: Figure = Field(
        description="Rows per second, one execution after the other: the mean of rounds in which the variants run in turns."
    )
    p99: Figure = Field(description="99th percentile of the time of an execution, in ms.")
    left: tuple[LeftOperator, ...] = Field(description="Operators that it computes in FP32.")


class VariantsDocument(Part):
    """Variants of a model, compared on the same rows."""

    version: Literal[1] = Field(default=1, description="Version of the document.")
    made_by: str = Field(description="Program and version.")
    made_at: str = Field(description="When it was made, in RFC 3339.")
    model: str = Field(description="File of the model.")
    data: str = Field(description="File with the rows.")
    rows: int = Field(description="Rows that the variants were compared on.")
    calibration_rows: int = Field(description="Rows that the static variant was calibrated with; they aren't compared.")
    batch: int = Field(description="Rows of a timed execution.")
    threads: int = Field(description="Threads of an execution.")
    library: str = Field(description="Library that ran the variants, and its version.")
    variants: tuple[Variant, ...] = Field(description="The model as it is, then its variants.")
