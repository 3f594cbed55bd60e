"""Number of multiply-accumulate operations of a node, by operator.

Operators without such operations have a kind that gives the reason. Pure.

A multiply-accumulate (MAC) is one multiplication and one addition. Bias, activation and normalisation aren't counted,
as in the published figures of networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from halcyon_measure.onnx_count.graph import Node, Tensor
from halcyon_measure.onnx_count.uncounted_operators import ELEMENTS, ELEMENTS_MICROSOFT, MICROSOFT, MOVES

Shapes = list[tuple[int, ...]]
_QUANTIZED: Mapping[str, tuple[int, ...]] = {
    "QuantizeLinear": (0,),
    "DequantizeLinear": (0,),
    "QLinearConv": (0, 3, 8),
    "QLinearMatMul": (0, 3),
    "ConvInteger": (0, 1),
    "MatMulInteger": (0, 1),
    "QLinearAdd": (0, 3),
    "QLinearMul": (0, 3),
    "QGemm": (0, 3, 6),
    "DynamicQuantizeMatMul": (0, 1, 4),
    "MatMulIntegerToFloat": (0, 1, 6),
    "MatMulNBits": (0, 1),
}
"""Indices of the inputs that contain values, by quantised operator. The other inputs are scales and zero points."""


class UnknownShapeError(Exception):
    """A required shape is unknown, so that the operations can't be counted."""


def values(node: Node) -> tuple[int, ...]:
    """Return the indices of the inputs that aren't scales or zero points of quantisation."""
    return _QUANTIZED.get(node.operator, tuple(range(len(node.inputs))))


def kind_of(node: Node) -> Literal["counted", "element-wise", "data movement", "unknown"]:
    """Return the kind of a node: counted, element-wise, data movement or unknown."""
    if node.domain == MICROSOFT:
        if node.operator in _COUNTED_MICROSOFT:
            return "counted"
        return "element-wise" if node.operator in ELEMENTS_MICROSOFT else "unknown"
    if node.domain:
        return "unknown"
    if node.operator in _COUNTED:
        return "counted"
    if node.operator in MOVES:
        return "data movement"
    return "element-wise" if node.operator in ELEMENTS else "unknown"


def macs(node: Node, tensors: Mapping[str, Tensor]) -> int:
    """Return the number of multiply-accumulate operations of a node of the kind `counted`.

    Raises:
        UnknownShapeError: the shape of an input or an output is unknown.
    """
    table = _COUNTED_MICROSOFT if node.domain == MICROSOFT else _COUNTED
    return table[node.operator](_Call(node, tensors))


class _Call:
    """Node with access to the shapes of its tensors."""

    def __init__(self, node: Node, tensors: Mapping[str, Tensor]) -> None:
        self.node = node
        self._tensors = tensors

    def shape(self, index: int) -> tuple[int, ...]:
        return self._shape(self.node.inputs[index])

    def has(self, index: int) -> bool:
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def out(self) -> int:
        return math.prod(self._shape(self.node.outputs[0]))

    def attribute(self, name: str, default: Any) -> Any:
        return self.node.attributes.get(name, default)

    def _shape(self, name: str) -> tuple[int, ...]:
        tensor = self._tensors.get(name)
        if tensor is None or tensor.shape is None:
            raise UnknownShapeError(name)
        return tensor.shape


def _convolution(weight: int) -> Callable[[_Call], int]:
    """Return a function that counts the MACs of a convolution.

    Each output element is a sum over the kernel and the channels of its group.
    """
    return lambda call: call.out() * math.prod(call.shape(weight)[1:])


def _transposed(call: _Call) -> int:
    """Return the MACs of a transposed convolution.

    Each input element is multiplied by the kernel of each channel of its group.
    """
    return math.prod(call.shape(0)) * math.prod(call.shape(1)[1:])


def _product(call: _Call) -> int:
    left = call.shape(0)
    return call.out() * left[-2 if call.attribute("transA", 0) and len(left) > 1 else -1]


def _recurrent(gates: int) -> Callable[[_Call], int]:
    """Return a function that counts the MACs of a recurrent operator.

    Each step multiplies the input and the state by the weights of all gates.
    """

    def count(call: _Call) -> int:
        steps, rows, features = call.shape(0)
        directions, width, _ = call.shape(1)
        return steps * rows * directions * width * (features + width // gates)

    return count


def _einsum(call: _Call) -> int:
    shapes = [call.shape(index) for index in range(len(call.node.inputs))]
    return einsum(str(call.attribute("equation", b"")), shapes)


def einsum(equation: str, shapes: Shapes) -> int:
    """Return the number of MACs of an Einstein sum whose operands are contracted from left to right."""
    left, _, right = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    operands: list[list[str]] = []
    for term, shape in zip(left.split(","), shapes, strict=True):
        head, dots, tail = term.partition("...")
        broadcast = len(shape) - len(head) - len(tail) if dots else 0
        labels = [*head, *(f".{index}" for index in range(broadcast, 0, -1)), *tail]
        for label, size in zip(labels, shape, strict=True):
            sizes[label] = max(sizes.get(label, 1), size)
        operands.append(labels)
    all_labels = [label for labels in operands for label in labels]
    output_labels = set(right) if "->" in equation else {label for label in all_labels if all_labels.count(label) == 1}
    output_labels |= {label for label in all_labels if label.startswith(".")}
    total, accumulated = 0, set(operands[0])
    for index, labels in enumerate(operands[1:], 1):
        accumulated |= set(labels)
        total += math.prod(sizes[label] for label in accumulated)
        accumulated &= output_labels.union(*operands[index + 1 :])
    return total


def _attention(call: _Call) -> int:
    """Return the MACs of ai.onnx's Attention: queries times keys, and attention weights times values."""
    query, key, value = call.shape(0), call.shape(1), call.shape(2)
    if len(query) == 4:
        rows, heads, length, width = query
        keys, value_width = key[2], value[3]
    else:
        rows, length, features = query
        heads = int(call.attribute("q_num_heads", 1))
        width, keys = features // heads, key[1]
        value_width = value[2] // int(call.attribute("kv_num_heads", heads))
    if call.has(4):
        keys += call.shape(4)[2]
    return rows * heads * length * keys * (width + value_width)


def _attention_microsoft(call: _Call) -> int:
    """Return the MACs of ONNX Runtime's Attention, including the projections to query, key and value."""
    rows, length, features = call.shape(0)
    width = call.shape(1)[1]
    widths: tuple[int, ...] = call.attribute("qkv_hidden_sizes", (width // 3,) * 3)
    query, _, value = widths
    keys = length + (call.shape(4)[3] if call.has(4) else 0)
    return rows * length * (features * width + keys * (query + value))


def _heads_microsoft(call: _Call) -> int:
    rows, length, features = call.shape(0)
    if not (call.has(1) and call.has(2)):
        raise UnknownShapeError(call.node.inputs[0])
    key, value = call.shape(1), call.shape(2)
    return rows * length * (key[2] if len(key) == 4 else key[1]) * (features + (value[1] * value[3] if len(value) == 4 else value[2]))  # fmt: skip


def _blocks_microsoft(call: _Call) -> int:
    features: int = call.attribute("K", 0)
    return call.out() * features


_COUNTED: Mapping[str, Callable[[_Call], int]] = {
    "Conv": _convolution(1),
    "DeformConv": _convolution(1),
    "ConvInteger": _convolution(1),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed,
    "Gemm": _product,
    "MatMul": _product,
    "MatMulInteger": _product,
    "QLinearMatMul": _product,
    "Einsum": _einsum,
    "RNN": _recurrent(1),
    "GRU": _recurrent(3),
    "LSTM": _recurrent(4),
    "Attention": _attention,
}
_COUNTED_MICROSOFT: Mapping[str, Callable[[_Call], int]] = {
    "FusedConv": _convolution(1),
    "NhwcFusedConv": _convolution(1),
    "FusedGemm": _product,
    "FusedMatMul": _product,
    "QGemm": _product,
    "DynamicQuantizeMatMul": _product,
    "MatMulIntegerToFloat": _product,
    "MatMulNBits": _blocks_microsoft,
    "Attention": _attention_microsoft,
    "MultiHeadAttention": _heads_microsoft,
}
