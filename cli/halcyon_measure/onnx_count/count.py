"""Counts of a graph: operations, parameters, and bytes of weights and activations. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Literal

from halcyon_measure.onnx_count import operators, uncounted_operators
from halcyon_measure.onnx_count.graph import Graph, Node, Tensor
from halcyon_measure.results.sections.static import OperatorCount, StaticSize, UncountedKind, UncountedOperator

_FLOATS = frozenset({"FP64", "FP32", "FP16", "BF16", "FP8", "FP4"})
_QUANTIZED = frozenset({"INT8", "UINT8", "INT4", "UINT4", "INT2", "UINT2"})
_GENERATORS = frozenset({"Constant", "ConstantOfShape", "EyeLike", "Range", "RandomNormal", "RandomUniform"})
_GATHERS = frozenset({"Gather", "GatherElements", "GatherND"})
_DEQUANTIZES = frozenset({"DequantizeLinear", "QLinearConv", "QGemm"})
_VALUE, _SCALE, _DEQUANTIZED = "value", "scale", "dequantized"
_MAX_EXAMPLES = 3
_REASONS: Mapping[str, str] = {
    "element-wise": "it has no multiply-accumulate operations; published figures leave it out too",
    "data movement": "it computes nothing",
}


@dataclass(frozen=True)
class Counted:
    """Counts of a graph for one batch size, and counts that don't depend on the batch size."""

    size: StaticSize
    parameters: int
    weight_bytes: int
    datatype: str
    uncounted: tuple[UncountedOperator, ...]
    complete: bool


@dataclass
class _Totals:
    nodes: int = 0
    macs: int = 0
    weight_bytes: int = 0
    activation_bytes: int = 0


@dataclass
class _Uncounted:
    nodes: int = 0
    examples: list[str] = field(default_factory=list)


def count(graph: Graph, batch: int) -> Counted:
    """Return the counts of a graph whose tensor shapes are those for the batch size `batch`."""
    constants = _Constants(graph)
    totals: defaultdict[str, _Totals] = defaultdict(_Totals)
    uncounted: defaultdict[tuple[str, UncountedKind, str], _Uncounted] = defaultdict(_Uncounted)
    for node, scope, times in _nodes(graph, constants, 1):
        if node.outputs and all(name in scope.names for name in node.outputs if name):
            continue
        entry = totals[node.kind]
        entry.nodes += 1
        entry.weight_bytes += times * scope.read_by(node)
        entry.activation_bytes += times * _activations(node, scope)
        kind, reason = _kind(node, scope)
        if kind == "counted":
            entry.macs += times * operators.macs(node, scope.tensors)
            continue
        group = uncounted[node.kind, kind, reason]
        group.nodes += 1
        if len(group.examples) < _MAX_EXAMPLES:
            group.examples.append(node.name or next(iter(node.outputs), ""))
    by_operator = tuple(
        OperatorCount(
            operator=name,
            nodes=entry.nodes,
            macs=entry.macs,
            flops=2 * entry.macs,
            weight_bytes=entry.weight_bytes,
            activation_bytes=entry.activation_bytes,
        )
        for name, entry in sorted(totals.items(), key=lambda item: (-item[1].macs, -item[1].activation_bytes, item[0]))
    )
    total = sum(entry.macs for entry in by_operator)
    inputs, outputs = (
        sum(_bytes(graph.tensors, name) for name in set(names)) for names in (graph.inputs, graph.outputs)
    )
    intermediate, peak = _live(graph, constants.names)
    size = StaticSize(
        batch=batch,
        macs=total,
        flops=2 * total,
        input_bytes=inputs,
        output_bytes=outputs,
        activation_bytes=intermediate,
        peak_activation_bytes=peak,
        least_bytes=constants.traffic() + inputs + outputs,
        unfused_bytes=sum(entry.weight_bytes + entry.activation_bytes for entry in by_operator),
        operators=by_operator,
    )
    listed = tuple(
        UncountedOperator(operator=name, nodes=group.nodes, kind=kind, reason=reason, examples=tuple(group.examples))
        for (name, kind, reason), group in sorted(
            uncounted.items(), key=lambda item: (item[0][1] != "unknown", item[0])
        )
    )
    parameters, datatype = constants.parameters()
    complete = all(operator.kind != "unknown" for operator in listed)
    return Counted(size, parameters, constants.stored(), datatype, listed, complete)


class _Constants:
    """Constant tensors of a graph: those that are stored in the model, and those computed only from constants."""

    def __init__(self, graph: Graph, outer: _Constants | None = None) -> None:
        self.tensors: Mapping[str, Tensor] = {**(outer.tensors if outer else {}), **graph.tensors}
        self.values: Mapping[str, int] = {**(outer.values if outer else {}), **graph.values}
        self._roots: dict[str, dict[str, str]] = dict(outer._roots) if outer else {}  # noqa: SLF001  # its own class
        self._roots |= {name: {name: _VALUE} for name in graph.constants}
        self._used: dict[str, set[str]] = outer._used if outer else {}  # noqa: SLF001  # its own class
        self._sizes: dict[str, Tensor] = outer._sizes if outer else {}  # noqa: SLF001  # its own class
        self._traffic: dict[str, int] = outer._traffic if outer else {}  # noqa: SLF001  # its own class
        for node in graph.nodes:
            inputs = [name for name in node.inputs if name]
            if node.bodies or not all(name in self._roots for name in inputs):
                continue
            if not inputs and node.operator not in _GENERATORS:
                continue
            roots: dict[str, str] = {}
            for index in range(len(node.inputs)):
                roots |= self._roles(node, index)
            for name in node.outputs:
                self._roots[name] = {name: _VALUE} if node.operator in _GENERATORS else roots

    @property
    def names(self) -> AbstractSet[str]:
        return self._roots.keys()

    def read_by(self, node: Node) -> int:
        """Return the number of bytes of constants that a node reads, and mark these constants as used."""
        total = 0
        for index in range(len(node.inputs)):
            for root, role in self._roles(node, index).items():
                tensor = self.tensors.get(root)
                if tensor is None:
                    continue
                self._used.setdefault(root, set()).add(role)
                self._sizes[root] = tensor
                size = tensor.bytes or 0
                if node.operator in _GATHERS and index == 0 and node.outputs:
                    # Only the rows that the indices select are read.
                    size = min(size, _bytes(self.tensors, node.outputs[0]) or size)
                self._traffic[root] = max(self._traffic.get(root, 0), size)
                total += size
        return total

    def _roles(self, node: Node, index: int) -> dict[str, str]:
        """Return the stored tensors from which an input of a node is computed, with their roles."""
        roots = self._roots.get(node.inputs[index], {})
        if index not in operators.values(node):
            return dict.fromkeys(roots, _SCALE)
        if node.operator in _DEQUANTIZES:
            return {root: _SCALE if role == _SCALE else _DEQUANTIZED for root, role in roots.items()}
        return roots

    def parameters(self) -> tuple[int, str]:
        """Return the number of parameters, and their most frequent data type."""
        by_type: Counter[str] = Counter()
        for root, roles in self._used.items():
            tensor = self._sizes[root]
            quantized = tensor.datatype in _QUANTIZED or (tensor.datatype == "INT32" and _DEQUANTIZED in roles)
            if (tensor.datatype in _FLOATS or quantized) and roles != {_SCALE}:
                by_type[tensor.datatype] += tensor.elements or 0
        return by_type.total(), by_type.most_common(1)[0][0] if by_type else ""

    def stored(self) -> int:
        return sum(tensor.bytes or 0 for tensor in self._sizes.values())

    def traffic(self) -> int:
        return sum(self._traffic.values())


def _nodes(graph: Graph, scope: _Constants, times: int) -> Iterator[tuple[Node, _Constants, int]]:
    """Yield each node with the constants in its scope and the number of its executions.

    The bodies of control flow operators are included.
    """
    for node in graph.nodes:
        yield node, scope, times
        for body in node.bodies:
            yield from _nodes(body, _Constants(body, scope), times * (_steps(node, scope) or 1))


def _steps(node: Node, scope: _Constants) -> int | None:
    """Return the number of iterations of a control flow node's body; None if it is unknown."""
    if node.operator == "Loop" and node.inputs and node.inputs[0]:
        return scope.values.get(node.inputs[0])
    if node.operator == "Scan":
        scanned = node.inputs[-int(node.attributes.get("num_scan_inputs", 1)) :]
        tensor = scope.tensors.get(scanned[0])
        axes = node.attributes.get("scan_input_axes", (0,))
        return tensor.shape[axes[0]] if tensor is not None and tensor.shape else None
    return None


def _kind(node: Node, scope: _Constants) -> tuple[UncountedKind | Literal["counted"], str]:
    if node.operator == "If" and node.bodies:
        return "unknown", "which branch runs isn't known; both are counted"
    if node.bodies:
        if _steps(node, scope) is None:
            return "unknown", "the number of its steps isn't known; one step is counted"
        return "data movement", "the operators in it are counted for each step"
    kind = operators.kind_of(node)
    if kind == "counted":
        try:
            operators.macs(node, scope.tensors)
        except operators.UnknownShapeError as error:
            return "unknown", f"the shape of tensor {error} isn't known; {_inputs(node, scope.tensors)}"
        except (ValueError, IndexError, ZeroDivisionError, TypeError):
            return "unknown", f"its shapes don't fit it: {_inputs(node, scope.tensors)}"
        return "counted", ""
    if kind == "unknown":
        operator_text = f"an operator of domain {node.domain}" if node.domain else "an operator of ai.onnx"
        return "unknown", f"it is {operator_text} whose operations aren't known"
    return kind, _REASONS[kind]


def _inputs(node: Node, tensors: Mapping[str, Tensor]) -> str:
    shapes = {name: tensors[name].shape for name in node.inputs if name in tensors}
    known = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items() if shape is not None)
    return f"of its inputs, {known} are known" if known else "none of its inputs' shapes is known"


def _activations(node: Node, scope: _Constants) -> int:
    """Return the number of bytes of non-constant tensors that a node reads and writes."""
    if node.operator in uncounted_operators.VIEWS and not node.domain:
        return 0
    names = {name for name in (*node.inputs, *node.outputs) if name and name not in scope.names}
    return sum(_bytes(scope.tensors, name) for name in names)


def _bytes(tensors: Mapping[str, Tensor], name: str) -> int:
    tensor = tensors.get(name)
    return (tensor.bytes if tensor is not None else None) or 0


def _reads(node: Node) -> Iterator[str]:
    """Yield the tensors that a node reads, including those that its bodies read from the enclosing graph."""
    yield from node.inputs
    for body in node.bodies:
        for inner in body.nodes:
            yield from _reads(inner)
        yield from body.outputs


def _live(graph: Graph, constants: AbstractSet[str]) -> tuple[int, int]:
    """Return the total bytes of intermediate tensors, and the peak bytes of tensors that are live at the same time."""
    storage: dict[str, str] = {}
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for name in _reads(node):
            last[storage.get(name, name)] = index
        if node.operator in uncounted_operators.VIEWS and not node.domain and node.inputs:
            storage[node.outputs[0]] = storage.get(node.inputs[0], node.inputs[0])
    interface = {storage.get(name, name) for name in (*graph.inputs, *graph.outputs)}
    live = {name: _bytes(graph.tensors, name) for name in set(graph.inputs)}
    total = peak = sum(live.values())
    intermediate = 0
    for index, node in enumerate(graph.nodes):
        for name in node.outputs:
            if name and name not in constants and name not in storage and name not in live:
                live[name] = _bytes(graph.tensors, name)
                total += live[name]
                intermediate += 0 if name in interface else live[name]
        peak = max(peak, total)
        for name in [tensor for tensor in live if tensor not in interface and last.get(tensor, -1) <= index]:
            total -= live.pop(name)
    return intermediate, peak
