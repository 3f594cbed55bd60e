"""Models that can't be counted: each error names the file, what is wrong, and what it must be."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from halcyon_measure.errors import ModelError
from halcyon_measure.onnx_count import analysis, reader
from halcyon_measure.onnx_count.analysis import analyse
from tests.unit.measure.onnx_count.networks import Network, transformer_block


def small(batch: int | str = "batch") -> onnx.ModelProto:
    net = Network(("x", (batch, 16)))
    return net.model(net.dense("x", 16, 4))


def stored(model: onnx.ModelProto, folder: Path) -> Path:
    file = folder / "model.onnx"
    file.write_bytes(model.SerializeToString())
    return file


def external(folder: Path, *, location: str = "weights.bin", size: int = 256, length: int = 256) -> Path:
    model = small()
    weight = model.graph.initializer[0]
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
        weight.external_data.add(key=key, value=value)
    (folder / "weights.bin").write_bytes(bytes(size))
    return stored(model, folder)


def test_external_data_counts_by_its_size_and_is_not_read(tmp_path: Path) -> None:
    file = external(tmp_path)
    static = analyse(file)
    assert static.file_bytes == file.stat().st_size + 256
    assert static.parameters == 16 * 4 + 4


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"location": "other.bin"}, "has its data in other.bin, which is missing"),
        ({"location": "../weights.bin"}, "must be in the model's folder"),
        ({"size": 100}, "weights.bin has 100 bytes, and tensors of the model reach to byte 256: it is cut off"),
        ({"length": 8}, "tensor w0 has 8 bytes of external data; its shape [4, 16] needs 256"),
    ],
)
def test_missing_external_data_is_an_error(fault: dict[str, str | int], message: str, tmp_path: Path) -> None:
    file = external(tmp_path, **fault)  # type: ignore[arg-type]  # each value has the type of its parameter
    with pytest.raises(ModelError) as caught:
        analyse(file)
    assert str(file) in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"PK\x03\x04 zip", b"\x00" * 64]
)
def test_a_file_of_another_format_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.onnx: not an ONNX model"):
        analyse(tmp_path / "model.onnx")


def test_a_cut_off_file_is_an_error(tmp_path: Path) -> None:
    content = small().SerializeToString()
    (tmp_path / "model.onnx").write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match="not an ONNX model, or cut off at"):
        analyse(tmp_path / "model.onnx")


def test_a_file_above_two_gibibytes_is_an_error(tmp_path: Path) -> None:
    with (tmp_path / "model.onnx").open("wb") as stream:
        stream.truncate(reader.MAX_BYTES + 1)
    with pytest.raises(ModelError, match=r"it has 2\.0 GiB; an ONNX file has at most 2 GiB"):
        analyse(tmp_path / "model.onnx")


def test_a_newer_opset_is_an_error(tmp_path: Path) -> None:
    model = small()
    model.opset_import[0].version = 999
    with pytest.raises(ModelError, match=r"opset 999; the installed onnx .* knows up to \d+"):
        analyse(stored(model, tmp_path))


def test_a_cycle_is_an_error_with_its_nodes(tmp_path: Path) -> None:
    model = small()
    model.graph.node[0].input[0] = "z"
    model.graph.node.append(helper.make_node("Relu", [model.graph.output[0].name], ["z"], name="back"))
    with pytest.raises(ModelError, match="its nodes form a cycle: n0, back"):
        analyse(stored(model, tmp_path))


def test_nodes_in_another_order_are_counted(tmp_path: Path) -> None:
    net = Network(("x", ("batch", 16)))
    model = net.model(net.dense(net.add("Relu", "x"), 16, 4))
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in reversed(model.graph.node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    static = analyse(stored(model, tmp_path))
    assert (static.sizes[0].macs, static.sizes[0].peak_activation_bytes) == (64, 64 + 64 + 16)


def test_contradicting_shapes_are_named(tmp_path: Path) -> None:
    net = Network(("x", ("batch", 16)))
    model = net.model(net.add("MatMul", "x", net.weight(8, 4)))
    static = analyse(stored(model, tmp_path))
    assert not static.complete
    assert (
        static.uncounted[0].reason
        == "the shape of tensor t0_0 isn't known; of its inputs, x [1, 16], w0 [8, 4] are known"
    )


def test_a_dimension_without_a_size_is_an_error_with_an_example(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="dimensions without a size: seq; for example --dim seq=128"):
        analyse(stored(transformer_block(), tmp_path))


@pytest.mark.parametrize(
    ("sizes", "batches", "message"),
    [
        ({"sequence": 5}, (), "--dim sequence=5: no input has this dimension; it has batch, seq"),
        ({"seq": 0}, (), "--dim seq=0: a size must be 1 to"),
        ({"seq": 8}, (5000,), "batch size 5000: it must be 1 to 4096, for example 8"),
    ],
)
def test_an_impossible_size_is_an_error(
    sizes: dict[str, int], batches: tuple[int, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError) as caught:
        analyse(stored(transformer_block(), tmp_path), sizes=sizes, batches=batches)
    assert message in str(caught.value)


def test_a_batch_that_the_model_has_fixed_is_an_error(tmp_path: Path) -> None:
    file = stored(small(1), tmp_path)
    assert [size.batch for size in analyse(file).sizes] == [1]
    with pytest.raises(ModelError, match="batch size 8: the first dimension of its input x is 1; it must be symbolic"):
        analyse(file, batches=(1, 8))


def test_a_batch_can_be_given_as_a_dimension(tmp_path: Path) -> None:
    static = analyse(stored(small(), tmp_path), sizes={"batch": 5})
    assert [(size.batch, size.macs) for size in static.sizes] == [(5, 5 * 64)]


def test_a_folder_of_a_repository_has_its_newest_version(tmp_path: Path) -> None:
    for version in ("1", "10", "9"):
        (tmp_path / version).mkdir()
        stored(small(), tmp_path / version)
    assert reader.read(tmp_path).path == tmp_path / "10" / "model.onnx"


def test_a_model_in_a_folder_of_several_must_be_named(tmp_path: Path) -> None:
    for name in ("encoder.onnx", "decoder.onnx"):
        (tmp_path / name).touch()
    with pytest.raises(ModelError, match=r"this folder has 2 models \(decoder.onnx, encoder.onnx\); name one, for ex"):
        reader.model_file(tmp_path)
    (tmp_path / "model.onnx").touch()
    assert reader.model_file(tmp_path).name == "model.onnx"


@pytest.mark.parametrize("name", ["", "none.onnx"])
def test_a_missing_model_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no such file or folder|no ONNX model in this folder"):
        analyse(tmp_path / name)


def test_functions_of_a_model_are_counted(tmp_path: Path) -> None:
    model = small()
    body = helper.make_node("MatMul", ["a", "b"], ["c"])
    function = helper.make_function("mine", "Layer", ["a", "b"], ["c"], [body], [helper.make_opsetid("", 17)])
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    model.graph.initializer.append(TensorProto(name="v", dims=(4, 3), data_type=TensorProto.FLOAT))
    model.graph.node.append(helper.make_node("Layer", [model.graph.output[0].name, "v"], ["out"], domain="mine"))
    model.graph.output.append(helper.make_empty_tensor_value_info("out"))
    static = analyse(stored(model, tmp_path))
    assert (static.sizes[0].macs, static.complete) == (64 + 12, True)


def test_operations_can_be_given_for_another_format(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"x")
    static = analysis.static_from_flops(tmp_path / "model.pt", 8.2e9)
    assert (static.source, static.sizes[0].flops, static.sizes[0].least_bytes) == ("given", 8_200_000_000, None)
    with pytest.raises(ModelError, match="it must be 1 to 1e18 for one row"):
        analysis.static_from_flops(tmp_path / "model.pt", float("nan"))
