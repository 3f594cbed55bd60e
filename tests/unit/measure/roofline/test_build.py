"""The roof over a model and its points, against figures computed by hand."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from halcyon_measure.errors import ModelError
from halcyon_measure.onnx_count.analysis import analyse, static_from_flops
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.sections.roofline import Peak, Roofline
from halcyon_measure.results.sections.static import Static
from halcyon_measure.roofline import published
from halcyon_measure.roofline.build import Execution, measured_peak, percent, roofline
from halcyon_measure.roofline.text import roofline_lines
from tests.unit.measure.onnx_count.networks import Network

WEIGHTS = 4 * 256 * 256
ROW = 4 * (256 + 256)
FLOPS = 2 * 256 * 256


@pytest.fixture
def static(tmp_path: Path) -> Static:
    """One matrix: 131,072 FLOPs a row, 262,144 bytes of weights, 2,048 bytes of inputs and outputs a row."""
    net = Network(("x", ("batch", 256)))
    model: onnx.ModelProto = net.model(net.add("MatMul", "x", net.weight(256, 256)))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return analyse(tmp_path / "m.onnx")


def peak(value: float, unit: str) -> Peak:
    figure = Figure.model_validate({"value": value, "unit": unit, "n": 5, "source": "test"})
    return Peak(kind="measured", rate=figure, cv=0.01, how="test")


def roofline_of(static: Static, *executions: Execution) -> Roofline:
    compute, memory = peak(10e9, "FLOP/s"), peak(2e9, "bytes/s")
    return roofline(static, compute, memory, executions, datatype="FP32", source="the model alone")


def test_a_roof_bends_at_the_ridge(static: Static) -> None:
    roof = roofline_of(static, Execution(1, 1e-3, None, 100), Execution(32, 1e-3, (0.8e-3, 1.25e-3), 100))
    assert roof.ridge == 5
    low, high = roof.points
    assert low.intensity == pytest.approx(FLOPS / (WEIGHTS + ROW))
    assert low.roof == pytest.approx(2e9 * FLOPS / (WEIGHTS + ROW))
    assert (low.bound, high.bound) == ("bandwidth", "compute")
    assert high.roof == 10e9
    assert high.rate.value == pytest.approx(32 * FLOPS / 1e-3)
    assert high.share.interval == pytest.approx((32 * FLOPS / 1.25e-3 / 10e9, 32 * FLOPS / 0.8e-3 / 10e9))


def test_the_batch_at_the_ridge_is_the_smallest_that_compute_limits(static: Static) -> None:
    roof = roofline_of(static)
    crossing = roof.bandwidth_bound_below
    assert crossing is not None
    intensities = [batch * FLOPS / (WEIGHTS + batch * ROW) for batch in (crossing - 1, crossing)]
    assert intensities[0] < roof.ridge <= intensities[1]
    assert roof.answer == f"Bandwidth-bound below batch {crossing}; nothing was measured."


def test_the_answer_has_the_largest_share(static: Static) -> None:
    roof = roofline_of(static, Execution(1, 1e-3, None, 100), Execution(32, 1e-3, None, 100))
    crossing = roof.bandwidth_bound_below
    assert roof.answer == f"42 % of the roof at batch 32, bandwidth-bound below batch {crossing}."
    assert roof.above == ()


def test_a_point_above_the_roof_makes_it_wrong(static: Static) -> None:
    roof = roofline_of(static, Execution(32, 1e-5, None, 100))
    assert roof.above == (32,)
    assert roof.answer.startswith("The roof is wrong: batch 32 is above it")
    assert any("ABOVE THE ROOF" in line for line in roofline_lines(roof))


def test_a_model_without_bytes_has_no_roofline(tmp_path: Path) -> None:
    (tmp_path / "m.pt").write_bytes(b"x")
    with pytest.raises(ModelError, match="its bytes aren't known"):
        roofline_of(static_from_flops(tmp_path / "m.pt", 1e9))


def test_a_peak_is_the_largest_sample() -> None:
    compute_peak = measured_peak((9.0, 10.0, 11.0), "FLOP/s", "product")
    assert (compute_peak.rate.value, compute_peak.rate.interval, compute_peak.rate.n) == (11.0, (9.0, 11.0), 3)
    assert compute_peak.cv == pytest.approx(0.1)
    assert "the machine was busy" in compute_peak.rate.reason
    assert measured_peak((9.9, 10.0, 10.1), "FLOP/s", "product").rate.reason == ""


def test_a_published_peak_says_so(static: Static) -> None:
    compute, memory = published.peaks("NVIDIA-L4", "FP16")
    assert (compute.kind, compute.rate.value, memory.rate.value) == ("published", 121e12, 300e9)
    text = "\n".join(roofline_lines(roofline(static, compute, memory, (), datatype="FP16", source="")))
    assert "published: NVIDIA's data sheet of the L4 Tensor Core GPU" in " ".join(text.split())


@pytest.mark.parametrize(
    ("product", "datatype", "message"),
    [
        ("NVIDIA-B999", "FP32", "the known products are Tesla-T4"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "FP32", "a part of a GPU has no published peaks"),
        ("Tesla-V100-SXM2-16GB", "INT8", "no peak is published for INT8; there is one for FP32, FP16, BF16"),
    ],
)
def test_an_unknown_peak_is_an_error(product: str, datatype: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        published.peaks(product, datatype)
    assert message in str(caught.value)


def test_a_small_share_has_two_digits() -> None:
    assert [percent(share) for share in (1.0, 0.314, 0.0314, 0.00038, 0, None)] == [
        "100 %",
        "31 %",
        "3.1 %",
        "0.038 %",
        "0 %",
        "0 %",
    ]
