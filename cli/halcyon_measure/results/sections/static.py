"""Section `static`: the model's operations and bytes, counted from its graph without running it. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from halcyon_measure.results.figure import Part

UncountedKind = Literal["element-wise", "data movement", "unknown"]


class TensorShape(Part):
    """Name, data type and shape of an input or an output of the graph."""

    name: str = Field(description="Name of the tensor.")
    datatype: str = Field(description="Data type of Triton, for example FP32.")
    shape: tuple[str, ...] = Field(description="Sizes; the name of a symbolic dimension, or ? for one without a name.")


class Dimension(Part):
    """A symbolic dimension and its size."""

    name: str = Field(description="Name of the dimension, or INPUT:INDEX if it has none.")
    size: int = Field(description="Size that the counts are for.")


class OperatorCount(Part):
    """Counts of all nodes with the same operator."""

    operator: str = Field(description="Operator of ONNX, with its domain if that isn't ai.onnx.")
    nodes: int = Field(description="Nodes of the graph.")
    macs: int = Field(description="Multiply-accumulate operations.")
    flops: int = Field(description="Floating-point operations: two for each multiply-accumulate.")
    weight_bytes: int = Field(description="Bytes of constants that the nodes read.")
    activation_bytes: int = Field(description="Bytes of other tensors that the nodes read and write.")


class StaticSize(Part):
    """Counts of one execution with a certain batch size. Bytes are null if they are unknown."""

    batch: int = Field(description="Rows of the execution.")
    macs: int = Field(description="Multiply-accumulate operations of the counted operators.")
    flops: int = Field(description="Floating-point operations: two for each multiply-accumulate.")
    input_bytes: int | None = Field(description="Bytes of the inputs.")
    output_bytes: int | None = Field(description="Bytes of the outputs.")
    activation_bytes: int | None = Field(description="Bytes of all tensors between inputs and outputs.")
    peak_activation_bytes: int | None = Field(
        description="Most bytes of inputs, outputs and tensors that live at a time."
    )
    least_bytes: int | None = Field(description="Least traffic of memory: weights, inputs and outputs once each.")
    unfused_bytes: int | None = Field(
        description="Traffic if every operator reads and writes all its tensors in memory."
    )
    operators: tuple[OperatorCount, ...] = Field(description="By operator; the one with the most operations first.")


class UncountedOperator(Part):
    """Nodes with the same operator that add nothing to the number of operations."""

    operator: str = Field(description="Operator of ONNX, with its domain if that isn't ai.onnx.")
    nodes: int = Field(description="Nodes of the graph.")
    kind: UncountedKind = Field(description="element-wise, data movement or unknown.")
    reason: str = Field(description="Why its operations aren't counted.")
    examples: tuple[str, ...] = Field(description="Names of up to three nodes.")


class Static(Part):
    """Operations, parameters and bytes of a model, counted from its graph."""

    file: str = Field(description="File of the model, as it was given.")
    source: Literal["onnx", "given"] = Field(description="onnx, or given if the operations are those of --flops.")
    file_bytes: int | None = Field(description="Size of the file with its external data; null if it wasn't read.")
    opsets: tuple[str, ...] = Field(description="Domains and versions of the operators, for example ai.onnx 17.")
    inputs: tuple[TensorShape, ...] = Field(description="Inputs of the graph.")
    outputs: tuple[TensorShape, ...] = Field(description="Outputs of the graph.")
    batch_dimension: str = Field(description="Symbolic dimension that is the batch; empty if the batch is fixed.")
    dimensions: tuple[Dimension, ...] = Field(description="Sizes of the other symbolic dimensions.")
    parameters: int | None = Field(
        description="Elements of the floating-point constants and the quantised weights; null if it isn't known."
    )
    weight_bytes: int | None = Field(description="Bytes of all constants; null if it isn't known.")
    datatype: str = Field(description="Type of most parameters, for example FP32; empty if it isn't known.")
    sizes: tuple[StaticSize, ...] = Field(description="Counts by batch size.")
    uncounted: tuple[UncountedOperator, ...] = Field(description="Operators whose operations aren't counted.")
    complete: bool = Field(description="False if an operator is unknown, so that the counts are least ones.")
