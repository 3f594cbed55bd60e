"""A model in a process of its own: its times, its memory, and models that don't run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from halcyon_measure.errors import ModelError
from halcyon_measure.in_process import alone
from halcyon_measure.in_process.process import call
from halcyon_measure.results.statistics import percentile
from halcyon_measure.roofline.text import alone_lines
from tests.unit.measure.onnx_count.networks import Network


def stored(folder: Path, *, operator: str = "MatMul", domain: str = "") -> Path:
    net = Network(("x", ("batch", 8)))
    model = net.model(net.add(operator, "x", net.weight(8, 4), domain=domain), domains=[domain] if domain else [])
    values = np.random.default_rng(1).random((8, 4), np.float32)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w0"))
    file = folder / "model.onnx"
    file.write_bytes(model.SerializeToString())
    return file


def test_a_model_runs_with_each_batch_size(tmp_path: Path) -> None:
    result = alone.alone(stored(tmp_path), batches=(1, 4), sizes={}, threads=1, seconds=0.01)
    assert [point.batch for point in result.points] == [1, 4]
    assert all(point.p50.n >= 30 and (point.rate.value or 0) > 0 for point in result.points)
    assert (result.load.value or 0) > 0
    assert (result.memory.value or 0) > 0
    assert result.server_cost.value is None
    assert "no server was measured" in result.server_cost.reason
    assert max(map(len, alone_lines(result))) <= 80
    (first, _) = alone.executions(result)
    assert first.batch / first.seconds == pytest.approx(result.points[0].rate.value)


@pytest.mark.parametrize("domain", ["acme", ""])
def test_a_model_that_does_not_run_is_an_error(domain: str, tmp_path: Path) -> None:
    file = stored(tmp_path, operator="Magic" if domain else "Conv", domain=domain)
    with pytest.raises(ModelError, match=r"model\.onnx: it doesn't run: .*\n?"):
        alone.alone(file, batches=(1,), sizes={}, threads=1, seconds=0.01)


def test_an_input_without_random_values_is_an_error(tmp_path: Path) -> None:
    text = helper.make_tensor_value_info("x", onnx.TensorProto.STRING, ["batch"])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.STRING, ["batch"])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [text], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"input x has the type tensor\(string\)"):
        alone.alone(tmp_path / "m.onnx", batches=(1,), sizes={}, threads=1, seconds=0.01)


def test_a_process_that_a_signal_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halcyon_measure.in_process.process.sys.executable", "/bin/false")
    with pytest.raises(ModelError, match="m: it doesn't run: no message"):
        call({"kind": "run"}, "m")


def test_the_figures_of_times_are_exact_and_within_their_intervals() -> None:
    times = np.random.default_rng(3).gamma(4, 0.001, 2000)
    point = alone.point(8, list(times))
    assert point.p99.value == pytest.approx(1000 * (percentile(times, 0.99) or 0))
    assert point.rate.value == pytest.approx(8 / times.mean())
    for figure in (point.mean, point.p50, point.p99, point.rate):
        assert figure.interval is not None
        assert figure.interval[0] <= (figure.value or 0) <= figure.interval[1]
    assert point.p99.reason == ""
    assert alone.point(8, list(times[:100])).p99.reason == "fewer than ten executions lie above it"


def test_the_interval_of_few_times_uses_all_of_them() -> None:
    point = alone.point(1, [0.001] * 29 + [0.101])
    assert point.mean.interval is not None
    assert point.mean.interval[1] > (point.mean.value or 0)
