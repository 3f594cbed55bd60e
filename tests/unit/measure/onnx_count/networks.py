"""Builders of known networks as ONNX models, whose weights have shapes and no values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper

FLOAT = TensorProto.FLOAT


class Network:
    """A model under construction. Each method adds a node, and returns the name of its output."""

    def __init__(self, *inputs: tuple[str, Sequence[int | str]], datatype: int = FLOAT) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._inputs = [helper.make_tensor_value_info(name, datatype, shape) for name, shape in inputs]

    def weight(self, *shape: int, datatype: int = FLOAT) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(TensorProto(name=name, dims=shape, data_type=datatype))
        return name

    def constant(self, values: Sequence[int]) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        number = len(self.nodes)
        names = [f"t{number}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, name=f"n{number}", **attributes))
        return names[0]

    def conv(
        self, x: str, inputs: int, outputs: int, kernel: int = 1, *, stride: int = 1, pad: int = 0, group: int = 1
    ) -> str:
        weight = self.weight(outputs, inputs // group, kernel, kernel)
        return self.add("Conv", x, weight, strides=[stride] * 2, pads=[pad] * 4, group=group)

    def norm(self, x: str, channels: int, *, relu: bool = True) -> str:
        x = self.add("BatchNormalization", x, *(self.weight(channels) for _ in range(4)))
        return self.add("Relu", x) if relu else x

    def pool(self, kind: str, x: str, kernel: int, stride: int, pad: int = 0, *, ceil: int = 0) -> str:
        return self.add(kind, x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, ceil_mode=ceil)

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        return self.add("Gemm", x, self.weight(outputs, inputs), self.weight(outputs), transB=1)

    def model(self, *outputs: str, opset: int = 17, domains: Sequence[str] = ()) -> onnx.ModelProto:
        infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
        for info in infos:
            info.type.tensor_type.elem_type = FLOAT
        graph = helper.make_graph(self.nodes, "g", self._inputs, infos, self.weights)
        imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


def resnet50(rows: int | str = "batch") -> onnx.ModelProto:
    net = Network(("x", (rows, 3, 224, 224)))
    x = net.norm(net.conv("x", 3, 64, 7, stride=2, pad=3), 64)
    x, channels = net.pool("MaxPool", x, 3, 2, 1), 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            step = stride if block == 0 else 1
            short = x if block else net.norm(net.conv(x, channels, 4 * width, stride=step), 4 * width, relu=False)
            y = net.norm(net.conv(x, channels, width), width)
            y = net.norm(net.conv(y, width, width, 3, stride=step, pad=1), width)
            y = net.norm(net.conv(y, width, 4 * width), 4 * width, relu=False)
            x, channels = net.add("Relu", net.add("Add", y, short)), 4 * width
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.model(net.dense(x, 2048, 1000))


def vgg19() -> onnx.ModelProto:
    net = Network(("x", ("batch", 3, 224, 224)))
    x, inputs = "x", 3
    for width, convolutions in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(convolutions):
            weight, bias = net.weight(width, inputs, 3, 3), net.weight(width)
            x, inputs = net.add("Relu", net.add("Conv", x, weight, bias, pads=[1] * 4)), width
        x = net.pool("MaxPool", x, 2, 2)
    x = net.add("Flatten", x)
    for inputs, outputs in ((25088, 4096), (4096, 4096), (4096, 1000)):
        x = net.dense(x, inputs, outputs)
    return net.model(x)


def densenet121() -> onnx.ModelProto:
    net = Network(("x", ("batch", 3, 224, 224)))
    x = net.norm(net.conv("x", 3, 64, 7, stride=2, pad=3), 64)
    x, channels = net.pool("MaxPool", x, 3, 2, 1), 64
    for stage, layers in enumerate((6, 12, 24, 16)):
        for _ in range(layers):
            y = net.conv(net.norm(x, channels), channels, 128)
            y = net.conv(net.norm(y, 128), 128, 32, 3, pad=1)
            x, channels = net.add("Concat", x, y, axis=1), channels + 32
        if stage < 3:
            x = net.conv(net.norm(x, channels), channels, channels // 2)
            x, channels = net.pool("AveragePool", x, 2, 2), channels // 2
    x = net.add("Flatten", net.add("GlobalAveragePool", net.norm(x, channels)))
    return net.model(net.dense(x, 1024, 1000))


def squeezenet11() -> onnx.ModelProto:
    net = Network(("x", ("batch", 3, 224, 224)))

    def conv(x: str, inputs: int, outputs: int, kernel: int, *, stride: int = 1, pad: int = 0) -> str:
        weight, bias = net.weight(outputs, inputs, kernel, kernel), net.weight(outputs)
        return net.add("Relu", net.add("Conv", x, weight, bias, strides=[stride] * 2, pads=[pad] * 4))

    x, channels = conv("x", 3, 64, 3, stride=2), 64
    for number, (squeezed, expanded) in enumerate(
        ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
    ):
        if number in {0, 2, 4}:
            x = net.pool("MaxPool", x, 3, 2, ceil=1)
        y = conv(x, channels, squeezed, 1)
        x = net.add("Concat", conv(y, squeezed, expanded, 1), conv(y, squeezed, expanded, 3, pad=1), axis=1)
        channels = 2 * expanded
    return net.model(net.add("GlobalAveragePool", conv(x, 512, 1000, 1)))


def transformer_block(width: int = 64, heads: int = 4, inner: int = 256) -> onnx.ModelProto:
    """One encoder block as exporters write it: the shapes of its Reshapes are computed from Shape."""
    net = Network(("x", ("batch", "seq", width)))
    shape = net.add("Shape", "x")
    rows = net.add("Unsqueeze", net.add("Gather", shape, _scalar(net, 0)), net.constant([0]))
    steps = net.add("Unsqueeze", net.add("Gather", shape, _scalar(net, 1)), net.constant([0]))
    split = net.add("Concat", rows, steps, net.constant([heads]), net.constant([width // heads]), axis=0)
    joined = net.add("Concat", rows, steps, net.constant([width]), axis=0)

    def projected(x: str, perm: Sequence[int]) -> str:
        y = net.add("Add", net.add("MatMul", x, net.weight(width, width)), net.weight(width))
        return net.add("Transpose", net.add("Reshape", y, split), perm=perm)

    query, key, value = projected("x", (0, 2, 1, 3)), projected("x", (0, 2, 3, 1)), projected("x", (0, 2, 1, 3))
    mixed = net.add("MatMul", net.add("Softmax", net.add("MatMul", query, key), axis=-1), value)
    x = net.add("Reshape", net.add("Transpose", mixed, perm=(0, 2, 1, 3)), joined)
    x = net.add("MatMul", x, net.weight(width, width))
    x = net.add("LayerNormalization", x, net.weight(width), net.weight(width))
    x = net.add("MatMul", net.add("Relu", net.add("MatMul", x, net.weight(width, inner))), net.weight(inner, width))
    return net.model(x)


def _scalar(net: Network, value: int) -> str:
    name = f"w{len(net.weights)}"
    net.weights.append(helper.make_tensor(name, TensorProto.INT64, [], [value]))
    return name
