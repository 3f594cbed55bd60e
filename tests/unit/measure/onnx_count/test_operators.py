"""Multiply-accumulate operations of single operators, against closed forms."""

from __future__ import annotations

import math
from typing import Any

import pytest

from halcyon_measure.onnx_count import operators
from halcyon_measure.onnx_count.count import count
from halcyon_measure.onnx_count.graph import Graph, Node, Tensor

ROWS = 2


def macs(
    operator: str, shapes: list[tuple[int, ...]], out: tuple[int, ...], *, domain: str = "", **attributes: object
) -> int:
    names = tuple(f"i{index}" if shape else "" for index, shape in enumerate(shapes))
    tensors = {name: Tensor("FP32", shape) for name, shape in zip(names, shapes, strict=True) if name}
    node = Node("n", operator, names, ("y",), domain=domain, attributes=attributes)
    return operators.macs(node, {**tensors, "y": Tensor("FP32", out)})


@pytest.mark.parametrize(
    ("operator", "shapes", "out", "attributes", "expected"),
    [
        # x, weight -> y: y's elements times the channels of a group times the kernel.
        ("Conv", [(2, 8, 14, 14), (16, 8, 3, 3)], (2, 16, 12, 12), {}, 2 * 16 * 144 * 8 * 9),
        ("Conv", [(2, 8, 14, 14), (8, 1, 3, 3)], (2, 8, 12, 12), {"group": 8}, 2 * 8 * 144 * 9),
        ("Conv", [(2, 8, 14, 14), (16, 2, 3, 3)], (2, 16, 12, 12), {"group": 4}, 2 * 16 * 144 * 2 * 9),
        ("Conv", [(2, 8, 14, 14), (16, 8, 3, 3)], (2, 16, 10, 10), {"dilations": (2, 2)}, 2 * 16 * 100 * 8 * 9),
        ("Conv", [(2, 8, 100), (16, 8, 5)], (2, 16, 96), {}, 2 * 16 * 96 * 8 * 5),
        ("Conv", [(1, 3, 8, 8, 8), (4, 3, 2, 2, 2)], (1, 4, 7, 7, 7), {}, 4 * 343 * 3 * 8),
        ("ConvTranspose", [(2, 8, 7, 7), (8, 4, 3, 3)], (2, 4, 15, 15), {"strides": (2, 2)}, 2 * 8 * 49 * 4 * 9),
        ("ConvInteger", [(2, 8, 14, 14), (16, 8, 3, 3)], (2, 16, 12, 12), {}, 2 * 16 * 144 * 8 * 9),
        ("QLinearConv", [(2, 8, 14, 14), (), (), (16, 8, 3, 3)], (2, 16, 12, 12), {}, 2 * 16 * 144 * 8 * 9),
        ("Gemm", [(2, 32), (32, 10)], (2, 10), {}, 2 * 32 * 10),
        ("Gemm", [(32, 2), (10, 32)], (2, 10), {"transA": 1, "transB": 1}, 2 * 32 * 10),
        ("MatMul", [(2, 4, 8, 16), (2, 4, 16, 8)], (2, 4, 8, 8), {}, 2 * 4 * 8 * 16 * 8),
        ("MatMul", [(16,), (16, 3)], (3,), {}, 48),
        ("MatMulInteger", [(2, 32), (32, 10)], (2, 10), {}, 640),
        ("QLinearMatMul", [(2, 32), (), (), (32, 10)], (2, 10), {}, 640),
        ("Einsum", [(2, 4, 8, 16), (2, 4, 9, 16)], (2, 4, 8, 9), {"equation": "bhqd,bhkd->bhqk"}, 2 * 4 * 8 * 9 * 16),
        ("Einsum", [(3, 4), (4, 5), (5, 6)], (3, 6), {"equation": "ij,jk,kl->il"}, 3 * 4 * 5 + 3 * 5 * 6),
        ("Einsum", [(2, 3, 4), (4, 5)], (2, 3, 5), {"equation": "...i,ij->...j"}, 2 * 3 * 4 * 5),
        ("Einsum", [(3, 4), (4, 5)], (3, 5), {"equation": "ij,jk"}, 60),
        ("Einsum", [(3, 4)], (4, 3), {"equation": "ij->ji"}, 0),
        # steps, rows, features; directions, gates times width, features.
        ("RNN", [(10, 2, 16), (1, 32, 16), (1, 32, 32)], (10, 1, 2, 32), {}, 10 * 2 * 32 * (16 + 32)),
        ("GRU", [(10, 2, 16), (1, 96, 16), (1, 96, 32)], (10, 1, 2, 32), {}, 10 * 2 * 3 * 32 * (16 + 32)),
        ("LSTM", [(10, 2, 16), (2, 128, 16), (2, 128, 32)], (10, 2, 2, 32), {}, 2 * 10 * 2 * 4 * 32 * (16 + 32)),
        ("LSTM", [(2, 10, 16), (1, 128, 16), (1, 128, 32)], (2, 10, 1, 32), {"layout": 1}, 10 * 2 * 4 * 32 * 48),
        ("Attention", [(2, 4, 8, 16), (2, 4, 9, 16), (2, 4, 9, 12)], (2, 4, 8, 12), {}, 2 * 4 * 8 * 9 * (16 + 12)),
        # Four heads of queries share two of keys and values.
        (
            "Attention",
            [(2, 8, 64), (2, 9, 32), (2, 9, 24)],
            (2, 8, 48),
            {"q_num_heads": 4, "kv_num_heads": 2},
            2 * 4 * 8 * 9 * (16 + 12),
        ),
    ],
)  # fmt: skip
def test_operations_of_an_operator_follow_from_its_shapes(
    operator: str, shapes: list[tuple[int, ...]], out: tuple[int, ...], attributes: dict[str, Any], expected: int
) -> None:
    assert macs(operator, shapes, out, **attributes) == expected


@pytest.mark.parametrize(
    ("operator", "shapes", "out", "attributes", "expected"),
    [
        ("FusedConv", [(1, 3, 8, 8), (4, 3, 3, 3)], (1, 4, 6, 6), {}, 4 * 36 * 27),
        ("FusedMatMul", [(2, 16, 8), (2, 16, 8)], (2, 8, 8), {"transA": 1}, 2 * 8 * 8 * 16),
        ("MatMulNBits", [(2, 8, 64), (32, 2, 16), (64,)], (2, 8, 32), {"K": 64, "N": 32}, 2 * 8 * 32 * 64),
        ("Attention", [(2, 8, 64), (64, 192)], (2, 8, 64), {"num_heads": 4}, 2 * 8 * (64 * 192 + 2 * 8 * 64)),
        ("MultiHeadAttention", [(2, 8, 64), (2, 9, 64), (2, 9, 32)], (2, 8, 32), {"num_heads": 4}, 2 * 8 * 9 * 96),
    ],
)
def test_operators_of_onnxruntime_are_counted(
    operator: str, shapes: list[tuple[int, ...]], out: tuple[int, ...], attributes: dict[str, Any], expected: int
) -> None:
    assert macs(operator, shapes, out, domain="com.microsoft", **attributes) == expected


def graph(*nodes: Node, **shapes: tuple[int, ...] | None) -> Graph:
    tensors = {name: Tensor("FP32", shape) for name, shape in shapes.items()}
    weights = frozenset(name for name in shapes if name.startswith("w"))
    return Graph(nodes, tensors, ("x",), (nodes[-1].outputs[0],), weights)


def test_an_operator_of_another_domain_is_named_and_not_counted() -> None:
    counted = count(graph(Node("head", "Magic", ("x",), ("y",), domain="acme"), x=(1, 4), y=(1, 4)), 1)
    assert not counted.complete
    (unknown,) = counted.uncounted
    assert (unknown.operator, unknown.nodes, unknown.kind, unknown.examples) == ("acme.Magic", 1, "unknown", ("head",))


def test_an_operator_without_known_shapes_is_named_and_not_counted() -> None:
    counted = count(graph(Node("m", "MatMul", ("x", "w"), ("y",)), x=None, w=(4, 4), y=None), 1)
    assert [(unknown.kind, unknown.reason) for unknown in counted.uncounted] == [
        ("unknown", "the shape of tensor x isn't known; of its inputs, w [4, 4] are known")
    ]
    assert (counted.size.macs, counted.parameters) == (0, 16)


def test_a_body_is_counted_for_each_step() -> None:
    step = Node("m", "MatMul", ("s", "w"), ("z",))
    body = Graph((step,), {"s": Tensor("FP32", (1, 4)), "z": Tensor("FP32", (1, 4))}, ("s",), ("z",))
    scan = Node("scan", "Scan", ("x",), ("y",), attributes={"num_scan_inputs": 1}, bodies=(body,))
    counted = count(graph(scan, x=(7, 1, 4), y=(7, 1, 4), w=(4, 4)), 1)
    assert (counted.size.macs, counted.parameters, counted.complete) == (7 * 16, 16, True)


def test_tensors_that_a_body_reads_live_until_its_node() -> None:
    branch = Graph((Node("a", "Add", ("h", "h"), ("z",)),), {"z": Tensor("FP32", (4,))}, (), ("z",))
    counted = count(
        graph(
            Node("h", "Relu", ("x",), ("h",)),
            Node("c", "Relu", ("x",), ("c",)),
            Node("if", "If", ("c",), ("y",), bodies=(branch, branch)),
            x=(4,),
            h=(100,),
            c=(1,),
            y=(4,),
        ),
        1,
    )
    assert counted.size.peak_activation_bytes == 4 * (4 + 100 + 1 + 4)


def test_a_body_without_known_steps_is_counted_once_and_named() -> None:
    step = Node("m", "MatMul", ("s", "w"), ("z",))
    body = Graph((step,), {"s": Tensor("FP32", (1, 4)), "z": Tensor("FP32", (1, 4))}, ("s",), ("z",))
    counted = count(graph(Node("l", "Loop", ("n", "", "x"), ("y",), bodies=(body,)), x=(1, 4), y=(1, 4), w=(4, 4)), 1)
    assert (counted.size.macs, counted.complete) == (16, False)
    assert counted.uncounted[0].reason == "the number of its steps isn't known; one step is counted"


def test_scales_and_zero_points_are_no_parameters() -> None:
    tensors = {
        "x": Tensor("FP32", (1, 4)),
        "q": Tensor("INT8", (1, 4)),
        "d": Tensor("FP32", (1, 4)),
        "w": Tensor("INT8", (4, 3)),
        "f": Tensor("FP32", (4, 3)),
        "b": Tensor("INT32", (3,)),
        "c": Tensor("FP32", (3,)),
        "y": Tensor("FP32", (1, 3)),
        **{name: Tensor("FP32", ()) for name in ("s0", "s1", "s2")},
        "z": Tensor("INT8", ()),
    }
    nodes = (
        Node("", "QuantizeLinear", ("x", "s0", "z"), ("q",)),
        Node("", "DequantizeLinear", ("q", "s0", "z"), ("d",)),
        Node("", "DequantizeLinear", ("w", "s1", "z"), ("f",)),
        Node("", "DequantizeLinear", ("b", "s2"), ("c",)),
        Node("", "Gemm", ("d", "f", "c"), ("y",)),
    )
    counted = count(Graph(nodes, tensors, ("x",), ("y",), frozenset({"w", "b", "s0", "s1", "s2", "z"})), 1)
    assert (counted.size.macs, counted.parameters, counted.datatype) == (12, 4 * 3 + 3, "INT8")
    assert counted.weight_bytes == 12 + 4 * 3 + 3 * 4 + 1
    assert counted.complete


def test_a_sum_of_products_is_counted_for_each_label() -> None:
    assert operators.einsum("ab,bc->ac", [(3, 4), (4, 5)]) == math.prod((3, 4, 5))
