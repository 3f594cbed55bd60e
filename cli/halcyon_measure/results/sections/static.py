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
    shape: tuple[str, ...] = Field(
        description="Sizes of the dimensions; for a symbolic dimension its name, or ? if it has no name."
    )


class Dimension(Part):
    """A symbolic dimension and its size."""

    name: str = Field(description="Name of the dimension, or INPUT:INDEX if it has no name.")
    size: int = Field(description="Size of the dimension on which the counts are based.")


class OperatorCount(Part):
    """Counts of all nodes with the same operator."""

    operator: str = Field(description="ONNX operator, with its domain if the domain isn't ai.onnx.")
    nodes: int = Field(description="Number of nodes with this operator.")
    macs: int = Field(description="Number of multiply-accumulate operations.")
    flops: int = Field(description="Number of floating-point operations: two per multiply-accumulate operation.")
    weight_bytes: int = Field(description="Size of the constants that the nodes read, in bytes.")
    activation_bytes: int = Field(description="Size of the other tensors that the nodes read and write, in bytes.")


class StaticSize(Part):
    """Counts of one execution with a certain batch size. Bytes are null if they are unknown."""

    batch: int = Field(description="Number of rows in the execution.")
    macs: int = Field(description="Number of multiply-accumulate operations of the counted operators.")
    flops: int = Field(description="Number of floating-point operations: two per multiply-accumulate operation.")
    input_bytes: int | None = Field(description="Size of the inputs in bytes.")
    output_bytes: int | None = Field(description="Size of the outputs in bytes.")
    activation_bytes: int | None = Field(description="Size of all tensors between inputs and outputs, in bytes.")
    peak_activation_bytes: int | None = Field(
        description="Maximum total size of the tensors that are needed at the same time, including inputs and outputs, in bytes."
    )
    least_bytes: int | None = Field(
        description="Smallest possible memory traffic in bytes: weights, inputs and outputs are each transferred once."
    )
    unfused_bytes: int | None = Field(
        description="Memory traffic in bytes if every operator reads its inputs from memory and writes its outputs to memory."
    )
    operators: tuple[OperatorCount, ...] = Field(
        description="Counts by operator, sorted by the number of operations, highest first."
    )


class UncountedOperator(Part):
    """Nodes with the same operator that add nothing to the number of operations."""

    operator: str = Field(description="ONNX operator, with its domain if the domain isn't ai.onnx.")
    nodes: int = Field(description="Number of nodes with this operator.")
    kind: UncountedKind = Field(description="Kind of the operator: element-wise, data movement or unknown.")
    reason: str = Field(description="Reason why its operations aren't counted.")
    examples: tuple[str, ...] = Field(description="Names of up to three nodes.")


class Static(Part):
    """Operations, parameters and bytes of a model, counted from its graph."""

    file: str = Field(description="Path of the model's file, as on the command line.")
    source: Literal["onnx", "given"] = Field(
        description="Source of the number of operations: onnx for the graph, given for --flops."
    )
    file_bytes: int | None = Field(
        description="Size of the file with its external data, in bytes; null if the file wasn't read."
    )
    opsets: tuple[str, ...] = Field(description="Operator sets that the graph uses, for example ai.onnx 17.")
    inputs: tuple[TensorShape, ...] = Field(description="Inputs of the graph.")
    outputs: tuple[TensorShape, ...] = Field(description="Outputs of the graph.")
    batch_dimension: str = Field(description="Name of the symbolic batch dimension; empty if the batch size is fixed.")
    dimensions: tuple[Dimension, ...] = Field(description="Sizes of the other symbolic dimensions.")
    parameters: int | None = Field(
        description="Number of parameters: elements of floating-point constants and of quantised weights; null if it is unknown."
    )
    weight_bytes: int | None = Field(description="Size of all constants in bytes; null if it is unknown.")
    datatype: str = Field(description="Data type of most parameters, for example FP32; empty if it is unknown.")
    sizes: tuple[StaticSize, ...] = Field(description="Counts, one entry per batch size.")
    uncounted: tuple[UncountedOperator, ...] = Field(description="Operators whose operations aren't counted.")
    complete: bool = Field(description="False if the graph has an unknown operator. The counts are then lower bounds.")
