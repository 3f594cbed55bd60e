"""`halcyon analyse`: its text and data, and the arguments that it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnx
import pytest

from halcyon.main import main
from halcyon_measure.results.sections.analysis import AnalysisDocument

SQUEEZENET = str(Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx")


def test_the_text_begins_with_operations_and_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyse", SQUEEZENET]) == 0
    text = capsys.readouterr().out
    assert "light_squeezenet.onnx: 349 M MACs (698 M FLOPs) a row, 1.24 M parameters in 4.94 MB (FP32)." in " ".join(
        text.split()
    )
    assert "no MACs: element-wise: Dropout" not in text
    assert max(len(line) for line in text.splitlines()[1:]) <= 80


def test_text_of_a_small_model_has_plain_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 8])
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 8])
    bias = onnx.helper.make_tensor("b", onnx.TensorProto.FLOAT, [8], [0.5] * 8)
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "b"], ["y"])], "g", [values], [out], [bias])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "add.onnx")
    assert main(["analyse", str(tmp_path / "add.onnx")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "add.onnx: 0 MACs (0 FLOPs) a row, 8 parameters in 32 B (FP32)." in text


def test_the_data_is_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyse", SQUEEZENET, "-o", "json"]) == 0
    document = AnalysisDocument.model_validate(json.loads(capsys.readouterr().out))
    assert document.static.sizes[0].macs == 349_151_936


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch", "0"], "'0' isn't a positive whole number; for example --batch 1,8,32"),
        (["--batch", "1,x"], "'x' isn't a positive whole number"),
        (["--dim", "seq"], "--dim seq: it must be NAME=N, for example --dim sequence=128"),
        (["--dim", "seq=1", "--dim", "seq=2"], "seq has the size 1 already"),
        (["--flops", "1e9", "--batch", "8"], "no other option has an effect with it"),
        (["--flops", "1e9", "--threads", "2"], "no other option has an effect with it"),
        (["--gpu", "NVIDIA-L4", "--alone"], "--gpu has published peaks, and --alone measures on this machine"),
        (["--threads", "2"], "--threads is for --alone and --roofline, which run the model"),
    ],
)
def test_an_impossible_argument_is_an_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyse", SQUEEZENET, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)  # None makes an import fail
    assert main(["analyse", SQUEEZENET]) == 2
    assert (
        "needs onnx, which the extra models of the distribution halcyon-cli installs: pip install './cli[models]', in a clone"
        in capsys.readouterr().err
    )
