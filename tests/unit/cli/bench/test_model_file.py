"""`halcyon bench --onnx FILE`: the server below a roof, what it costs, and files that can't be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from halcyon.main import main
from halcyon_cli.bench.model_file import check_file, executions, server_cost, with_model
from halcyon_cli.bench.options.model_file import ModelFileOptions
from halcyon_cli.errors import InputError
from halcyon_measure.errors import ModelError
from halcyon_measure.in_process.alone import point
from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.results.sections.alone import Alone
from halcyon_measure.results.sections.batches import Batches, BatchSize
from halcyon_measure.roofline.text import sections
from tests.bench_documents import bench_document
from tests.unit.measure.onnx_count.networks import Network

WEIGHT_BYTES = 45_000
"""A model runs in a process of its own."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    net = Network(("x", ("batch", 64)))
    onnx_model = net.model(net.add("MatMul", "x", net.weight(64, 64)))
    onnx_model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((64, 64), np.float32), "w0"))
    (tmp_path / "model.onnx").write_bytes(onnx_model.SerializeToString())
    return tmp_path / "model.onnx"


def alone(batch: int, seconds: float) -> Alone:
    return Alone(
        library="onnxruntime",
        threads=1,
        load=unmeasured("ms", "not loaded"),
        memory=unmeasured("bytes", "not loaded"),
        points=(point(batch, [seconds] * 100),),
        server_cost=unmeasured("ms", "no server"),
    )


def batches(*sizes: tuple[int, float]) -> Batches:
    none = unmeasured("ratio", "not of this test")
    time = unmeasured("ms", "not of this test")
    return Batches(
        sizes=tuple(
            BatchSize(rows=rows, executions=50, input=time, output=time, model=Figure(value=mean, unit="ms", n=50, source="Triton"))
            for rows, mean in sizes
        ),
        **dict.fromkeys(("executions", "mean_rows", "largest", "fill", "line_error", "busy", "instances"), none),
        **dict.fromkeys(("constant", "per_row"), time),
    )  # fmt: skip


def test_a_server_has_a_point_for_each_size_of_batch(model: Path) -> None:
    document = bench_document().model_copy(update={"batches": batches((1, 2.0), (4, 4.0))})
    result = with_model(document, ModelFileOptions(onnx=model, gpu="NVIDIA-L4"))
    assert result.roofline is not None
    assert [(point.batch, point.source) for point in result.roofline.points] == [
        (1, "the served model"),
        (4, "the served model"),
    ]
    flops = 2 * 64 * 64
    assert [point.rate.value for point in result.roofline.points] == pytest.approx([flops / 0.002, 4 * flops / 0.004])
    assert "published" in "\n".join(sections(result))
    assert result.throughput == document.throughput


def test_a_server_without_statistics_has_one_point_from_its_rate() -> None:
    document = bench_document(rows=2).model_copy(update={"batches": None})
    (execution,) = executions(document)
    assert execution.batch == 2
    assert execution.batch / execution.seconds == pytest.approx(document.rows.value)


def test_the_cost_of_a_server_is_the_difference_of_the_medians() -> None:
    document = bench_document(rows=1)
    median = document.latency.p50.value or 0
    cost = server_cost(document, alone(1, median / 2000))
    assert cost.value == pytest.approx(median / 2)
    assert cost.source == "median latency of 1 row minus the median alone"


def test_the_cost_of_a_server_needs_the_same_rows() -> None:
    cost = server_cost(bench_document(rows=1), alone(8, 0.001))
    assert (cost.value, cost.reason) == (None, "there is no median of 1 rows of both")


def test_a_model_runs_alone_beside_a_result(model: Path) -> None:
    result = with_model(bench_document(), ModelFileOptions(onnx=model, is_alone=True))
    assert result.alone is not None
    assert result.alone.points
    assert any(line.startswith("alone ") for line in sections(result))


def test_a_result_is_kept_if_the_file_has_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = bench_document()
    assert with_model(document, ModelFileOptions(onnx=tmp_path / "none.onnx")) == document
    assert "none.onnx: no such file or folder" in capsys.readouterr().err


def test_a_result_without_a_file_is_unchanged() -> None:
    document = bench_document()
    assert with_model(document, ModelFileOptions()) is document


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"is_alone": True}, "need the file of the model: --onnx model.onnx"),
        ({"onnx": Path("m"), "gpu": "NVIDIA-L4", "has_roofline": True}, "leave one of them out"),
    ],
)
def test_options_that_do_not_fit_are_an_error(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ModelFileOptions(**options).check()  # type: ignore[arg-type]  # each value has the type of its field


def test_a_file_is_checked_before_anything_is_measured(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError, match="the known products are"):
        check_file(ModelFileOptions(onnx=model, gpu="NVIDIA-X"))
    assert main(["bench", "--url", "localhost:1", "--model", "m", "--onnx", str(model.parent / "none.onnx")]) == 2
    assert "none.onnx: no such file or folder" in capsys.readouterr().err
