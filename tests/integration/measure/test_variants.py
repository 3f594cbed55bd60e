"""Variants of a small classifier: their repositories and figures, and data that can't be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from google.protobuf import text_format
from onnx import numpy_helper
from tritonclient.grpc.model_config_pb2 import ModelConfig

from halcyon_measure.errors import HookError, MeasureError, ModelError
from halcyon_measure.onnx_count.analysis import analyse
from halcyon_measure.results.sections.analysis import VariantsDocument
from halcyon_measure.variants import text
from halcyon_measure.variants.make import VariantsRequest, make
from tests.unit.measure.onnx_count.networks import Network

ROWS, FEATURES, LABELS = 200, 64, 10
RNG = np.random.default_rng(5)


def classifier(folder: Path, *, custom: bool = False) -> Path:
    """Two dense layers and a softmax, whose INT8 form is a quarter of the size."""
    net = Network(("x", ("batch", FEATURES)))
    hidden = net.add("Relu", net.dense("x", FEATURES, 128))
    output_name = net.add("Softmax", net.dense(hidden, 128, LABELS), axis=1)
    if custom:
        output_name = net.add("Magic", output_name, domain="acme")
    model = net.model(output_name, opset=13, domains=["acme"] if custom else [])
    rng = np.random.default_rng(1)
    for weight in model.graph.initializer:
        weight.CopyFrom(numpy_helper.from_array(rng.normal(0, 0.2, weight.dims).astype(np.float32), weight.name))
    (output,) = model.graph.output
    output.type.tensor_type.shape.dim.add(dim_param="batch")
    output.type.tensor_type.shape.dim.add(dim_value=LABELS)
    file = folder / "tiny.onnx"
    file.write_bytes(model.SerializeToString())
    return file


def rows(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "val.npz", **arrays)
    return folder / "val.npz"


@pytest.fixture(scope="module")
def result(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[VariantsDocument, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    folder = tmp_path_factory.mktemp("variants")
    model = classifier(folder)
    x = RNG.random((ROWS, FEATURES)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    labels = np.asarray(session.run(None, {"x": x})[0]).argmax(axis=1)
    # One label in ten is another one, so that accuracy isn't 1.
    labels[::10] = (labels[::10] + 1) % LABELS
    data = rows(folder, x=x, labels=labels)
    request = VariantsRequest(model=model, data=data, out=folder / "out", seconds=0.01, rounds=3)
    return make(request, program="test", timestamp="now"), x, labels


def test_each_variant_is_a_repository_for_triton(result: tuple[VariantsDocument, Any, Any]) -> None:
    document, _, _ = result
    assert [variant.name for variant in document.variants] == ["fp32", "fp16", "int8-dynamic", "int8-static"]
    for variant in document.variants:
        assert variant.failure == ""
        folder = Path(variant.path)
        config = text_format.Parse((folder / "config.pbtxt").read_text(), ModelConfig())
        assert (config.name, config.backend, config.max_batch_size) == (folder.name, "onnxruntime", 32)
        assert [(tensor.name, list(tensor.dims)) for tensor in config.input] == [("x", [FEATURES])]
        assert [list(tensor.dims) for tensor in config.output] == [[LABELS]]
        assert variant.size.value == (folder / "1" / "model.onnx").stat().st_size


def test_accuracy_is_that_of_an_independent_count(result: tuple[VariantsDocument, Any, Any]) -> None:
    document, x, labels = result
    assert (document.rows, document.calibration_rows) == (150, 50)
    for variant in document.variants:
        session = onnxruntime.InferenceSession(
            str(Path(variant.path) / "1" / "model.onnx"), providers=["CPUExecutionProvider"]
        )
        # INT8's ranges are those of an execution, so the rows are executed as they were: eight at a time.
        answers = [session.run(None, {"x": x[begin : min(begin + 8, ROWS)]})[0] for begin in range(50, ROWS, 8)]
        predicted = [max(range(LABELS), key=lambda label: row[label]) for answer in answers for row in answer.tolist()]
        right = sum(label == expected for label, expected in zip(predicted, labels[50:], strict=True))
        assert variant.accuracy.value == right / 150
        assert variant.accuracy.n == 150


def test_variants_have_the_operations_of_the_model(result: tuple[VariantsDocument, Any, Any]) -> None:
    counts = {variant.name: analyse(Path(variant.path)) for variant in result[0].variants}
    macs = FEATURES * 128 + 128 * LABELS
    assert {name: static.sizes[0].macs for name, static in counts.items()} == dict.fromkeys(counts, macs)
    assert all(static.complete for static in counts.values())
    # Scales are parameters only if they are multiplied as numbers, as in the dynamic form.
    assert [counts[name].parameters for name in ("fp32", "fp16", "int8-static")] == [macs + 128 + LABELS] * 3
    assert [static.datatype for static in counts.values()] == ["FP32", "FP16", "INT8", "INT8"]


def test_rates_are_means_of_rounds_in_turns(result: tuple[VariantsDocument, Any, Any]) -> None:
    for variant in result[0].variants:
        assert variant.rate.source == "mean of 3 rounds in turns"
        assert variant.rate.interval is not None
        assert variant.rate.interval[0] <= (variant.rate.value or 0) <= variant.rate.interval[1]
        assert (variant.rate.n, variant.load.n) == (variant.p99.n, 3)


def test_int8_is_smaller_and_deviates(result: tuple[VariantsDocument, Any, Any]) -> None:
    base, half, dynamic, static = result[0].variants
    assert (base.size_ratio.value, base.largest_deviation.value, base.same_label.value) == (1, 0, 1)
    assert 0.45 < (half.size_ratio.value or 0) < 0.55
    assert (dynamic.size_ratio.value or 1) < 0.35
    assert (static.size_ratio.value or 1) < 0.35
    assert 0 < (half.largest_deviation.value or 0) < (static.largest_deviation.value or 0) < 0.5
    assert all(variant.left == () for variant in (half, dynamic, static))
    assert max(map(len, text.page(result[0]).splitlines()[1:])) <= 80


def test_a_function_can_score_the_rows(tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text(
        "def right(outputs, data):\n    return outputs['t3_0'].argmax(axis=1) == data['want']\n"
    )
    x = RNG.random((60, FEATURES)).astype(np.float32)
    data = rows(tmp_path, x=x, want=np.zeros(60, np.int64))
    request = VariantsRequest(
        model=classifier(tmp_path),
        data=data,
        out=tmp_path / "out",
        only=("fp16",),
        score=f"{tmp_path / 'score.py'}:right",
        seconds=0.01,
        rounds=2,
    )
    (base, _) = make(request, program="test", timestamp="now").variants
    assert (base.accuracy.n, base.accuracy.source) == (60, f"mean of {tmp_path / 'score.py'}:right")


def test_rows_without_labels_have_no_accuracy(tmp_path: Path) -> None:
    data = rows(tmp_path, x=RNG.random((60, FEATURES)).astype(np.float32))
    request = VariantsRequest(
        model=classifier(tmp_path), data=data, out=tmp_path / "out", only=("fp16",), seconds=0.01, rounds=2
    )
    document = make(request, program="test", timestamp="now")
    assert document.variants[1].accuracy.value is None
    assert "the data has no array labels" in document.variants[1].accuracy.reason
    assert "not measured: the data has no array labels" in text.page(document)


@pytest.mark.parametrize(
    ("arrays", "labels", "message"),
    [
        ({"y": np.zeros((60, 64), np.float32)}, "", "no array x, which is an input of the model; it has y"),
        (
            {"x": np.zeros((60, 32), np.float32)},
            "",
            "array x is float32 [60, 32]; the model's input is float32 [batch, 64]",
        ),
        ({"x": np.array([["a"] * 64] * 60)}, "", "the model's input is float32 [batch, 64]"),
        ({"x": np.zeros((0, 64), np.float32)}, "", "must have the same number of rows, at least one; they have x 0"),
        ({"x": np.zeros((60, 64), np.float32), "labels": np.zeros(59, int)}, "", "labels must be 60 whole numbers"),
        ({"x": np.zeros((60, 64), np.float32)}, "truth", "no array truth with labels; it has x"),
        (
            {"x": np.zeros((4, 64), np.float32)},
            "",
            "a quarter of its 4 rows would calibrate, 1; it must be at least 10",
        ),
    ],
)
def test_data_that_does_not_fit_is_an_error(arrays: dict[str, Any], labels: str, message: str, tmp_path: Path) -> None:
    request = VariantsRequest(
        model=classifier(tmp_path), data=rows(tmp_path, **arrays), out=tmp_path / "out", labels=labels
    )
    with pytest.raises(ModelError) as caught:
        make(request, program="test", timestamp="now")
    assert str(tmp_path / "val.npz") in str(caught.value)
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_calibration_of_one_row_is_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", x=np.zeros((1, FEATURES), np.float32))
    data = rows(tmp_path, x=np.zeros((60, FEATURES), np.float32))
    request = VariantsRequest(
        model=classifier(tmp_path), data=data, calibration=tmp_path / "one.npz", out=tmp_path / "out"
    )
    with pytest.raises(ModelError, match=r"one\.npz: it has 1 row to calibrate with; at least 10 are needed"):
        make(request, program="test", timestamp="now")


def test_a_folder_with_files_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    data = rows(tmp_path, x=np.zeros((60, FEATURES), np.float32))
    with pytest.raises(ModelError, match="it isn't empty, and nothing is overwritten"):
        make(
            VariantsRequest(model=classifier(tmp_path), data=data, out=tmp_path / "out"),
            program="test",
            timestamp="now",
        )


def test_a_model_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    data = rows(tmp_path, x=np.zeros((60, FEATURES), np.float32))
    with pytest.raises(MeasureError, match="it doesn't run"):
        make(
            VariantsRequest(model=classifier(tmp_path, custom=True), data=data, out=tmp_path / "out"),
            program="test",
            timestamp="now",
        )


def test_a_score_that_raises_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text("def right(outputs, data):\n    return outputs['none']\n")
    data = rows(tmp_path, x=np.zeros((60, FEATURES), np.float32))
    request = VariantsRequest(
        model=classifier(tmp_path),
        data=data,
        out=tmp_path / "out",
        only=("fp16",),
        score=f"{tmp_path / 'score.py'}:right",
        seconds=0.01,
        rounds=2,
    )
    with pytest.raises(HookError, match=r"score\.py:right raised KeyError: 'none'"):
        make(request, program="test", timestamp="now")
    assert not (tmp_path / "out").exists()


def test_a_variant_that_cannot_be_made_has_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("no such form")

    monkeypatch.setattr("halcyon_measure.variants.conversion.VARIANTS", {"fp16": broken})
    data = rows(tmp_path, x=np.zeros((60, FEATURES), np.float32))
    request = VariantsRequest(
        model=classifier(tmp_path), data=data, out=tmp_path / "out", only=("fp16",), seconds=0.01, rounds=2
    )
    document = make(request, program="test", timestamp="now")
    assert document.variants[1].failure.endswith("onnxruntime can't make fp16: no such form")
    assert document.variants[1].rate.value is None
    assert [folder.name for folder in (tmp_path / "out").iterdir()] == ["tiny_fp32"]


def test_a_model_with_a_fixed_batch_runs_with_it(tmp_path: Path) -> None:
    net = Network(("x", (4, FEATURES)))
    model = net.model(net.dense("x", FEATURES, LABELS), opset=13)
    for weight in model.graph.initializer:
        weight.CopyFrom(numpy_helper.from_array(np.ones(weight.dims, np.float32), weight.name))
    for size in (4, LABELS):
        model.graph.output[0].type.tensor_type.shape.dim.add(dim_value=size)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    data = rows(tmp_path, x=RNG.random((62, FEATURES)).astype(np.float32))
    document = make(
        VariantsRequest(
            model=tmp_path / "m.onnx", data=data, out=tmp_path / "out", only=("int8-static",), seconds=0.01, rounds=2
        ),
        program="test",
        timestamp="now",
    )
    # 15 of 62 rows calibrate, and 44 of the others are whole executions.
    assert (document.batch, document.rows, document.calibration_rows) == (4, 44, 15)
    assert [variant.failure for variant in document.variants] == ["", ""]
    assert "max_batch_size: 0" in (Path(document.variants[0].path) / "config.pbtxt").read_text()


def test_operators_that_stay_in_fp32_are_named(tmp_path: Path) -> None:
    net = Network(("x", ("batch", 16, 16)))
    product = net.add("MatMul", net.add("MatMul", "x", net.weight(16, 16)), "x")
    model: onnx.ModelProto = net.model(product, opset=13)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(RNG.random((16, 16)).astype(np.float32), "w0"))
    for name in ("batch", "16", "16"):
        dimension = model.graph.output[0].type.tensor_type.shape.dim.add()
        dimension.dim_param, dimension.dim_value = (name, 0) if name == "batch" else ("", int(name))
        if name == "batch":
            dimension.dim_param = name
    (tmp_path / "two.onnx").write_bytes(model.SerializeToString())
    data = rows(tmp_path, x=RNG.random((60, 16, 16)).astype(np.float32))
    request = VariantsRequest(
        model=tmp_path / "two.onnx", data=data, out=tmp_path / "out", only=("int8-dynamic",), seconds=0.01, rounds=2
    )
    (left,) = make(request, program="test", timestamp="now").variants[1].left
    assert (left.operator, left.nodes, left.examples) == ("MatMul", 1, ("n1",))
