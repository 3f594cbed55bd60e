"""Operations and parameters of known networks: against published figures, and against the layers counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import helper

from halcyon_measure.onnx_count.analysis import analyse
from halcyon_measure.results.sections.static import Static
from tests.unit.measure.onnx_count import networks
from tests.unit.measure.onnx_count.layers import NETWORKS, macs

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def counted(model: onnx.ModelProto, folder: Path, **sizes: int) -> Static:
    file = folder / "model.onnx"
    file.write_bytes(model.SerializeToString())
    return analyse(file, sizes=sizes)


@pytest.mark.parametrize(
    ("build", "published", "parameters"),
    [
        # torchvision's parameters, and the mean and variance of each normalised channel, which it calls buffers.
        (networks.resnet50, 4.089e9, 25_557_032 + 53_120),
        (networks.vgg19, 19.632e9, 143_667_240),
        (networks.densenet121, 2.834e9, 7_978_856 + 83_648),
        (networks.squeezenet11, 0.349e9, 1_235_496),
    ],
)
def test_operations_of_a_network_are_the_published_ones(
    build: Callable[[], onnx.ModelProto], published: float, parameters: int, tmp_path: Path
) -> None:
    static = counted(build(), tmp_path)
    assert static.sizes[0].macs == pytest.approx(published, rel=0.01)
    assert static.parameters == parameters
    assert static.weight_bytes is not None
    assert 0 <= static.weight_bytes - 4 * parameters <= 64
    assert static.complete
    assert [size.batch for size in static.sizes] == [1, 8, 32]
    assert [size.macs for size in static.sizes] == [batch * static.sizes[0].macs for batch in (1, 8, 32)]


@pytest.mark.parametrize("name", NETWORKS)
def test_operations_of_a_network_are_those_of_its_layers(name: str) -> None:
    static = analyse(LIGHT / f"light_{name}.onnx")
    assert (static.sizes[0].batch, static.sizes[0].macs) == (1, macs(NETWORKS[name]))
    assert static.sizes[0].flops == 2 * static.sizes[0].macs
    assert static.complete


def test_operations_of_a_transformer_block_follow_from_its_sizes(tmp_path: Path) -> None:
    width, inner, seq = 64, 256, 128
    static = counted(networks.transformer_block(width, 4, inner), tmp_path, seq=seq)
    # Four projections, queries by keys, weights by values, and the two layers behind them.
    each = seq * (4 * width * width + 2 * seq * width + 2 * width * inner)
    assert [size.macs for size in static.sizes] == [rows * each for rows in (1, 8, 32)]
    assert static.parameters == 4 * width * width + 3 * width + 2 * width + 2 * width * inner
    assert (static.batch_dimension, static.dimensions[0].name, static.dimensions[0].size) == ("batch", "seq", seq)
    assert static.complete


def test_bytes_of_a_layer_are_those_of_its_tensors(tmp_path: Path) -> None:
    net = networks.Network(("x", ("batch", 16)))
    x = net.add("Relu", net.dense("x", 16, 8))
    size = counted(net.model(net.dense(x, 8, 4)), tmp_path).sizes[0]
    weights = 4 * (16 * 8 + 8 + 8 * 4 + 4)
    assert (size.input_bytes, size.output_bytes, size.activation_bytes) == (64, 16, 64)
    assert size.least_bytes == weights + 64 + 16
    assert size.unfused_bytes == weights + (64 + 32) + (32 + 32) + (32 + 16)
    # The input, and what the first layer and its activation make.
    assert size.peak_activation_bytes == 64 + 32 + 32


def test_a_table_is_read_by_its_rows(tmp_path: Path) -> None:
    net = networks.Network(("ids", ("batch", 4)), datatype=onnx.TensorProto.INT64)
    static = counted(net.model(net.add("Gather", net.weight(1000, 16), "ids")), tmp_path)
    assert static.parameters == 16_000
    assert static.weight_bytes == 64_000
    assert [size.least_bytes for size in static.sizes] == [rows * (4 * 8 + 2 * 4 * 64) for rows in (1, 8, 32)]


@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrent_layer_is_counted_for_each_step(operator: str, gates: int, tmp_path: Path) -> None:
    net = networks.Network(("x", ("seq", "batch", 16)))
    weights = (net.weight(2, gates * 32, 16), net.weight(2, gates * 32, 32), net.weight(2, 2 * gates * 32))
    output = net.add(operator, "x", *weights, hidden_size=32, direction="bidirectional", outputs=2)
    static = counted(net.model(output), tmp_path, seq=10)
    assert static.batch_dimension == "batch"
    assert [size.macs for size in static.sizes] == [rows * 10 * 2 * gates * 32 * (16 + 32) for rows in (1, 8, 32)]
    assert static.parameters == 2 * gates * 32 * (16 + 32 + 2)


def test_a_loop_is_counted_for_each_step(tmp_path: Path) -> None:
    value, kind = helper.make_tensor_value_info, onnx.TensorProto
    body = helper.make_graph(
        [helper.make_node("MatMul", ["s", "w"], ["z"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [value("i", kind.INT64, []), value("c", kind.BOOL, []), value("s", kind.FLOAT, [1, 4])],
        [value("d", kind.BOOL, []), value("z", kind.FLOAT, [1, 4])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)],
        "g",
        [value("x", kind.FLOAT, [1, 4])],
        [value("y", kind.FLOAT, [1, 4])],
        [helper.make_tensor("n", kind.INT64, [], [5]), onnx.TensorProto(name="w", dims=(4, 4), data_type=kind.FLOAT)],
    )
    static = counted(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path)
    assert (static.sizes[0].macs, static.parameters, static.complete) == (5 * 16, 16, True)
