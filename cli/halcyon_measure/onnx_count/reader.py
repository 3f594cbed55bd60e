"""Reader of an ONNX file without its external data. It returns the graph with the shapes of its tensors.

The values of large constants are dropped, so that the graph takes no more memory than the file without external data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halcyon_measure.errors import ModelError
from halcyon_measure.onnx_count.graph import Graph, Node, Tensor
from halcyon_measure.results.sections.static import TensorShape

if TYPE_CHECKING:
    import onnx

MAX_BYTES = 2**31 - 1
"""Maximum size of an ONNX file without its external data, in bytes. It is a limit of protobuf."""
_KEPT_ELEMENTS = 1024
"""Maximum number of elements of a constant whose values are kept. Shapes, axes and indices are this small, and other
shapes depend on them."""
_DATATYPES = {
    "FLOAT": "FP32", "FLOAT16": "FP16", "BFLOAT16": "BF16", "DOUBLE": "FP64", "STRING": "BYTES",
    "FLOAT8E4M3FN": "FP8", "FLOAT8E4M3FNUZ": "FP8", "FLOAT8E5M2": "FP8", "FLOAT8E5M2FNUZ": "FP8", "FLOAT8E8M0": "FP8", "FLOAT4E2M1": "FP4",
}  # fmt: skip
"""Triton's name for each data type that has another name in ONNX, by ONNX's name."""


@dataclass(frozen=True)
class Model:
    """Model as stored in its file."""

    path: Path
    proto: onnx.ModelProto
    file_bytes: int
    """Size of the model including external data, in bytes."""

    @property
    def opsets(self) -> tuple[str, ...]:
        """Operator sets of the model, as pairs of domain and version."""
        return tuple(f"{opset.domain or 'ai.onnx'} {opset.version}" for opset in self.proto.opset_import)

    def inputs(self) -> tuple[TensorShape, ...]:
        """Return the inputs that a request must contain."""
        stored = {tensor.name for tensor in self.proto.graph.initializer}
        return tuple(_shape(value) for value in self.proto.graph.input if value.name not in stored)

    def outputs(self) -> tuple[TensorShape, ...]:
        """Return the outputs of the model."""
        return tuple(_shape(value) for value in self.proto.graph.output)

    def graph(self, sizes: Mapping[str, int]) -> Graph:
        """Return the graph for these sizes of the symbolic dimensions, given by name or as INPUT:INDEX.

        Raises:
            ModelError: the shapes contradict each other, or the nodes form a cycle.
        """
        import onnx  # noqa: PLC0415  # of the extra models

        bound = onnx.ModelProto()
        bound.CopyFrom(self.proto)
        for value in (*bound.graph.input, *bound.graph.output, *bound.graph.value_info):
            for index, dimension in enumerate(value.type.tensor_type.shape.dim):
                size = sizes.get(dimension.dim_param or f"{value.name}:{index}")
                if size is not None and not dimension.dim_value:
                    dimension.dim_value = size
        _sort(bound.graph, self.path)
        try:
            inferred = onnx.shape_inference.infer_shapes(bound, data_prop=True)
        except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
            text = " ".join(str(error).split())
            raise ModelError(
                f"{self.path}: its shapes contradict each other: {text}; the sizes are {_sizes(sizes)}"
            ) from None
        return _graph(inferred.graph)


def read(path: Path) -> Model:
    """Read a model file, or the newest version in a folder of a model repository.

    Raises:
        ModelError: there is no such file, it isn't a supported ONNX model, or its external data is missing.
    """
    import onnx  # noqa: PLC0415  # of the extra models
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    file = model_file(path)
    size = file.stat().st_size
    if size > MAX_BYTES:
        raise ModelError(
            f"{file}: it has {size / 2**30:.1f} GiB; an ONNX file has at most 2 GiB, so it is cut off or no ONNX; larger "
            "weights are external data, for example onnx.save(model, 'model.onnx', save_as_external_data=True)"
        )
    try:
        proto = onnx.load(str(file), load_external_data=False)
    except (DecodeError, RuntimeError, ValueError):
        raise ModelError(
            f"{file}: not an ONNX model, or cut off at {size} bytes; onnx.save(model, 'model.onnx') writes one"
        ) from None
    if not proto.graph.node and not proto.graph.output:
        raise ModelError(
            f"{file}: not an ONNX model: it has no graph in {size} bytes; onnx.save(model, 'model.onnx') writes one"
        )
    newest = onnx.defs.onnx_opset_version()
    for opset in proto.opset_import:
        if opset.domain in {"", "ai.onnx"} and opset.version > newest:
            raise ModelError(
                f"{file}: its operators are of opset {opset.version}; the installed onnx {onnx.__version__} knows up to {newest}: "
                "install a newer one, for example pip install --upgrade onnx"
            )
    if proto.functions:
        from onnx import inliner  # noqa: PLC0415

        proto = inliner.inline_local_functions(proto)
    external = _external_bytes(proto, file)
    _drop_values(proto.graph)
    return Model(file, proto, size + external)


def model_file(path: Path) -> Path:
    """Return the path of the ONNX file: `path` itself, or the newest version in a folder of a model repository.

    Raises:
        ModelError: there is no such file, or a folder has several files, none of which is named model.onnx.
    """
    if path.is_dir():
        versions = sorted(
            (int(file.parent.name), file) for file in path.glob("*/model.onnx") if file.parent.name.isdigit()
        )
        files = [file for _, file in versions] or sorted(path.glob("*.onnx"))
        if not files:
            raise ModelError(f"{path}: no ONNX model in this folder; for example {path}/1/model.onnx")
        direct = path / "model.onnx"
        if len(files) > 1 and not versions and direct not in files:
            names = ", ".join(file.name for file in files[:5])
            raise ModelError(f"{path}: this folder has {len(files)} models ({names}); name one, for example {files[0]}")
        return direct if direct in files else files[-1]
    if not path.is_file():
        raise ModelError(f"{path}: no such file or folder; for example model.onnx")
    return path


def _external_bytes(proto: onnx.ModelProto, file: Path) -> int:
    """Return the total size of all external data in bytes. Raise ModelError if data of a tensor is missing."""
    reached: dict[str, int] = {}
    users: dict[str, str] = {}
    for tensor in _tensors(proto.graph):
        if tensor.data_location != tensor.EXTERNAL:
            continue
        fields = {entry.key: entry.value for entry in tensor.external_data}
        location, size = fields.get("location", ""), _tensor(tensor).bytes or 0
        length = int(fields.get("length", size))
        if length < size:
            raise ModelError(
                f"{file}: tensor {tensor.name} has {length} bytes of external data; its shape {list(tensor.dims)} needs {size}"
            )
        reached[location] = max(reached.get(location, 0), int(fields.get("offset", 0)) + length)
        users.setdefault(location, tensor.name)
    total = 0
    for location, end in reached.items():
        data_file = (file.parent / location).resolve()
        if not data_file.is_relative_to(file.parent.resolve()):
            raise ModelError(
                f"{file}: tensor {users[location]} has its data in {location}; it must be in the model's folder, for example weights.bin"
            )
        if not data_file.is_file():
            raise ModelError(
                f"{file}: tensor {users[location]} has its data in {location}, which is missing; put it beside the model, into {file.parent}"
            )
        if (file_size := data_file.stat().st_size) < end:
            raise ModelError(
                f"{file}: its external data {location} has {file_size} bytes, and tensors of the model reach to byte "
                f"{end}: it is cut off"
            )
        total += file_size
    return total


def _tensors(graph: onnx.GraphProto) -> Any:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())):
                yield from _tensors(body)


def _drop_values(graph: onnx.GraphProto) -> None:
    """Remove the values of large constants. Only their sizes are needed, and shape inference would copy the values."""
    for tensor in _tensors(graph):
        elements = _tensor(tensor).elements or 0
        if elements > _KEPT_ELEMENTS:
            for name in (
                "raw_data",
                "float_data",
                "int32_data",
                "int64_data",
                "double_data",
                "uint64_data",
                "string_data",
            ):
                tensor.ClearField(name)


def _sort(graph: onnx.GraphProto, path: Path) -> None:
    """Sort the nodes so that each node comes after the nodes whose outputs it reads."""
    producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    dependencies = [{producers[name] for name in node.input if name in producers} for node in graph.node]
    if all(max(needed, default=-1) < index for index, needed in enumerate(dependencies)):
        return
    followers: dict[int, list[int]] = {}
    for index, needed in enumerate(dependencies):
        for dependency in needed:
            followers.setdefault(dependency, []).append(index)
    missing = [len(needed) for needed in dependencies]
    ready = [index for index, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        index = ready.pop()
        order.append(index)
        for follower in followers.get(index, ()):
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)
    if len(order) < len(graph.node):
        stuck = [graph.node[index].name or graph.node[index].output[0] for index, count in enumerate(missing) if count]
        raise ModelError(
            f"{path}: its nodes form a cycle: {', '.join(stuck[:5])}{' ...' if len(stuck) > 5 else ''}; an ONNX graph has none"
        )
    nodes = [graph.node[index] for index in order]
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _graph(proto: onnx.GraphProto) -> Graph:
    tensors: dict[str, Tensor] = {}
    for value in (*proto.input, *proto.output, *proto.value_info):
        value_tensor = _value(value)
        if value_tensor is not None:
            tensors[value.name] = value_tensor
    constants: set[str] = set()
    values: dict[str, int] = {}
    for tensor in proto.initializer:
        constants.add(tensor.name)
        tensors[tensor.name] = _tensor(tensor)
        _note_value(tensor, tensor.name, values)
    for sparse in proto.sparse_initializer:
        constants.add(sparse.values.name)
        tensors[sparse.values.name] = _tensor(sparse.values)
    nodes: list[Node] = []
    for node in proto.node:
        bodies = tuple(
            _graph(body)
            for attribute in node.attribute
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ()))
        )
        if node.op_type == "Constant" and node.output:
            for attribute in node.attribute:
                if attribute.name == "value":
                    tensors[node.output[0]] = _tensor(attribute.t)
                    _note_value(attribute.t, node.output[0], values)
        nodes.append(
            Node(
                name=node.name,
                operator=node.op_type,
                domain="" if node.domain == "ai.onnx" else node.domain,
                inputs=tuple(node.input),
                outputs=tuple(node.output),
                attributes={attribute.name: _attribute(attribute) for attribute in node.attribute},
                bodies=bodies,
            )
        )
    inputs = tuple(value.name for value in proto.input if value.name not in constants)
    outputs = tuple(value.name for value in proto.output)
    return Graph(tuple(nodes), tensors, inputs, outputs, frozenset(constants), values)


def _note_value(tensor: onnx.TensorProto, name: str, values: dict[str, int]) -> None:
    if tensor.data_type not in {tensor.INT32, tensor.INT64} or (_tensor(tensor).elements != 1):
        return
    if tensor.raw_data:
        values[name] = int.from_bytes(tensor.raw_data, "little", signed=True)
    elif tensor.int64_data or tensor.int32_data:
        values[name] = [*tensor.int64_data, *tensor.int32_data][0]


def _attribute(attribute: onnx.AttributeProto) -> Any:
    kind = attribute.type
    if kind == attribute.INT:
        return attribute.i
    if kind == attribute.FLOAT:
        return attribute.f
    if kind == attribute.STRING:
        return attribute.s.decode("utf-8", "replace")
    if kind == attribute.INTS:
        return tuple(attribute.ints)
    return None


def _tensor(tensor: onnx.TensorProto) -> Tensor:
    return Tensor(_datatype(tensor.data_type), tuple(tensor.dims))


def _value(value: onnx.ValueInfoProto) -> Tensor | None:
    if not value.type.HasField("tensor_type"):
        return None
    tensor_type = value.type.tensor_type
    if not tensor_type.HasField("shape"):
        return Tensor(_datatype(tensor_type.elem_type), None)
    known = all(dimension.HasField("dim_value") for dimension in tensor_type.shape.dim)
    return Tensor(
        _datatype(tensor_type.elem_type),
        tuple(dimension.dim_value for dimension in tensor_type.shape.dim) if known else None,
    )


def _shape(value: onnx.ValueInfoProto) -> TensorShape:
    tensor_type = value.type.tensor_type
    sizes = tuple(
        str(dimension.dim_value) if dimension.HasField("dim_value") else dimension.dim_param or "?"
        for dimension in tensor_type.shape.dim
    )
    return TensorShape(name=value.name, datatype=_datatype(tensor_type.elem_type), shape=sizes)


def _datatype(number: int) -> str:
    import onnx  # noqa: PLC0415  # of the extra models

    try:
        name = str(onnx.TensorProto.DataType.Name(number))
    except ValueError:
        return "UNKNOWN"
    return _DATATYPES.get(name, name)


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "those of the file"


def symbolic(shapes: Sequence[TensorShape]) -> list[str]:
    """Return the symbolic dimensions of the inputs, by name or as INPUT:INDEX, in order and without repetition."""
    names: dict[str, None] = {}
    for shape in shapes:
        for index, size in enumerate(shape.shape):
            if not size.isdigit():
                names[size if size != "?" else f"{shape.name}:{index}"] = None
    return list(names)
