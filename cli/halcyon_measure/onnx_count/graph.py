"""Graph of operators with the shapes of its tensors, for counting operations and bytes. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BITS: Mapping[str, int] = {
    "FP32": 32, "FP16": 16, "BF16": 16, "FP64": 64, "FP8": 8, "FP4": 4, "BOOL": 8,
    "INT2": 2, "INT4": 4, "INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64,
    "UINT2": 2, "UINT4": 4, "UINT8": 8, "UINT16": 16, "UINT32": 32, "UINT64": 64,
}  # fmt: skip
"""Number of bits of an element, by data type. Types that aren't listed, such as BYTES, have no fixed size."""


@dataclass(frozen=True)
class Tensor:
    """Data type and shape of a tensor."""

    datatype: str
    shape: tuple[int, ...] | None
    """Shape; None if unknown."""

    @property
    def elements(self) -> int | None:
        """Number of elements; None if the shape is unknown."""
        return None if self.shape is None else math.prod(self.shape)

    @property
    def bytes(self) -> int | None:
        """Size in bytes; None if the shape or the type is unknown."""
        bits = BITS.get(self.datatype)
        return None if self.shape is None or bits is None else -(-math.prod(self.shape) * bits // 8)


@dataclass(frozen=True)
class Node:
    """One operator of the graph. An omitted optional input has an empty name."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    domain: str = ""
    """Domain of the operator; empty for ai.onnx."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes by name: integers, floats, texts, and tuples of them."""
    bodies: tuple[Graph, ...] = ()
    """Bodies of a control flow operator, in the order of its attributes."""

    @property
    def kind(self) -> str:
        """Name of the operator, with the domain as a prefix unless the domain is ai.onnx."""
        return f"{self.domain}.{self.operator}" if self.domain else self.operator


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order, with the tensors that they read and write."""

    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    """Tensors by name. Tensors whose type is unknown are missing."""
    inputs: tuple[str, ...]
    """Names of the inputs that a request must contain."""
    outputs: tuple[str, ...]
    constants: frozenset[str] = frozenset()
    """Names of the tensors that are stored in the model."""
    values: Mapping[str, int] = field(default_factory=dict)
    """Values of constants that consist of a single integer, by name."""
