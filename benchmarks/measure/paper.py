"""Rows of section 5: counts, peaks, variants and the analysis of a large model, against values that are known without them.

python -m benchmarks.measure.paper [ROW...]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper
from sklearn.neural_network import MLPClassifier

from benchmarks.measure.table import measure
from benchmarks.quality.rows import Row
from e2e.cluster.progress import say
from halcyon_measure.cores import usable_cores
from halcyon_measure.in_process import alone
from halcyon_measure.onnx_count.analysis import analyse
from halcyon_measure.roofline.build import MAX_CV, roofline
from halcyon_measure.variants.make import VariantsRequest, make
from tests.unit.measure.onnx_count import networks
from tests.unit.measure.onnx_count.layers import NETWORKS, macs
from tests.unit.measure.onnx_count.networks import Network

ROOT = Path(__file__).resolve().parents[2]
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
PUBLISHED: Mapping[str, tuple[Callable[[], onnx.ModelProto], float, int]] = {
    "ResNet-50": (networks.resnet50, 4.089e9, 25_557_032 + 53_120),
    "VGG-19": (networks.vgg19, 19.632e9, 143_667_240),
    "DenseNet-121": (networks.densenet121, 2.834e9, 7_978_856 + 83_648),
    "SqueezeNet 1.1": (networks.squeezenet11, 0.349e9, 1_235_496),
}
"""Builder, published multiply-accumulates, and torchvision's parameters with the statistics of normalisation."""
_UNIT_TESTS = "tests/unit/measure/onnx_count/test_operators.py"


def row_1() -> Row:
    """Count operations and parameters of networks whose figures are known."""
    raw: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        for name, (build, published, parameters) in PUBLISHED.items():
            file.write_bytes(build().SerializeToString())
            analysis = analyse(file)
            raw.append((name, analysis.sizes[0].macs, published, analysis.parameters, parameters))
    worst = max(100 * abs(counted / published - 1) for _, counted, published, _, _ in raw)
    by_hand = {
        name: (analyse(LIGHT / f"light_{name}.onnx").sizes[0].macs, macs(layers)) for name, layers in NETWORKS.items()
    }
    closed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", _UNIT_TESTS],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    value = {
        "largest deviation from published MACs, %": round(worst, 3),
        "wrong parameters": sum(counted != parameters for _, _, _, counted, parameters in raw),
        "networks of onnx that differ from a count by hand": sum(
            counted != expected for counted, expected in by_hand.values()
        ),
        "closed forms that fail": closed.returncode,
    }
    limits = [(name, 1 if "%" in name else 0, "<=") for name in value]
    return Row(
        "5.1", "operations and parameters of a model's graph", value,
        "MACs of 4 networks within 1 % of the published ones, parameters exact; 9 networks and 30 operators equal to their count",
        limits, command="python -m benchmarks.measure.paper 5.1", n=len(raw) + len(by_hand),
        raw={"published": raw, "by hand": by_hand, "closed forms": closed.stdout.splitlines()[-1:]},
    )  # fmt: skip


def _filled(model: onnx.ModelProto, file: Path) -> Path:
    rng = np.random.default_rng(1)
    for weight in model.graph.initializer:
        if not weight.raw_data and not weight.int64_data:
            values = rng.normal(0, 0.05, tuple(weight.dims)).astype(np.float32)
            weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    file.write_bytes(model.SerializeToString())
    return file


def _dense() -> onnx.ModelProto:
    net = Network(("x", ("batch", 1024)))
    x = "x"
    for _ in range(3):
        x = net.add("Relu", net.dense(x, 1024, 1024))
    return net.model(x)


def _convolutions() -> onnx.ModelProto:
    net = Network(("x", ("batch", 16, 28, 28)))
    x = net.add("Relu", net.conv("x", 16, 64, 3, pad=1))
    return net.model(net.add("Relu", net.conv(x, 64, 64, 3, pad=1)))


def row_2() -> Row:
    """Measure peaks of this machine, and points of three models below them."""
    threads = usable_cores()
    raw: list[Any] = []
    worst, above, points = 0.0, 0, 0
    wrong_is_reported = True
    with tempfile.TemporaryDirectory() as folder:
        for name, build, sizes in (
            ("dense", _dense, {}), ("convolutions", _convolutions, {}), ("transformer block", networks.transformer_block, {"seq": 64}),
        ):  # fmt: skip
            file = _filled(build(), Path(folder) / "model.onnx")
            static = analyse(file, batches=(1, 2, 4, 8, 16, 32, 64), sizes=sizes)
            measured = alone.alone(
                file, batches=[size.batch for size in static.sizes], sizes=sizes, threads=threads, seconds=0.4
            )
            compute, memory = alone.peaks("FP32", threads=threads, working_set=static.sizes[0].least_bytes or 0)
            report = roofline(
                static, compute, memory, alone.executions(measured), datatype="FP32", source="the model alone"
            )
            worst = max(worst, compute.cv or 0, memory.cv or 0)
            above += len(report.above)
            points += len(report.points)
            wrong_is_reported &= report.answer.startswith("The roof is wrong") == bool(report.above)
            say(f"{name}: {report.answer}")
            raw.append(report.model_dump(mode="json") | {"model": name})
    value = {
        "largest CV of 5 samples, %": round(100 * worst, 2),
        "points above the roof that the report doesn't name": 0 if wrong_is_reported else above,
        "points above the roof": above,
    }
    return Row(
        "5.2", "peaks of the machine, and points below them", value,
        "CV <= 5 % over 5; no point of 20 above its roof, else the report says that the roof is wrong",
        [("largest CV of 5 samples, %", 100 * MAX_CV, "<="), ("points above the roof that the report doesn't name", 0, "<=")],
        command="python -m benchmarks.measure.paper 5.2", n=points, raw=raw,
        load=f"executions one after the other on {threads} cores", law="dense layers, convolutions, a transformer block",
        why="" if worst <= MAX_CV else "other work ran on the machine",
    )  # fmt: skip


def row_3() -> Row:
    """Measure variants of the digits: their accuracy against an independent count, and their sizes."""
    from manifests.examples.digits import train  # noqa: PLC0415  # scikit-learn takes a second to import

    pixels, held_out, labels, held_labels = train.split()
    network = MLPClassifier(hidden_layer_sizes=(256,), random_state=0, max_iter=25)
    wide = train._export(*_coefficients(network.fit(pixels / 16, labels)))  # noqa: SLF001  # the example's own export
    value: dict[str, Any] = {"accuracies that differ from the count": 0}
    raw: list[Any] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "val.npz", pixels=held_out, labels=held_labels)
        np.savez(folder / "calibration.npz", pixels=pixels)
        for title, model in (("10 kB", train.model_in(train.MANIFEST.read_text())), ("77 kB", wide)):
            file = folder / f"digits-{title.replace(' ', '-')}.onnx"
            file.write_bytes(model)
            request = VariantsRequest(
                model=file,
                data=folder / "val.npz",
                calibration=folder / "calibration.npz",
                out=folder / title,
                threads=1,
            )
            document = make(request, program="benchmarks", timestamp="")
            for variant in document.variants:
                right = _right(Path(variant.path) / "1" / "model.onnx", held_out, held_labels)
                value["accuracies that differ from the count"] += variant.accuracy.value != right / len(held_out)
                raw.append(variant.model_dump(mode="json") | {"of": title, "right by an independent count": right})
            sizes = {variant.name: 100 * (variant.size_ratio.value or 1) for variant in document.variants}
            value[f"INT8 of fp32's size, digits of {title}, %"] = round(
                max(sizes["int8-dynamic"], sizes["int8-static"]), 1
            )
            failed = sum(bool(variant.failure) for variant in document.variants)
            value["variants that don't load"] = value.get("variants that don't load", 0) + failed
    limits = [(name, 30 if "size" in name else 0, "<=") for name in value]
    return Row(
        "5.3", "variants of the digits on 450 rows", value,
        "accuracy equal to an independent count, files load in Triton, INT8 <= 30 % of FP32's size", limits,
        command="python -m benchmarks.measure.paper 5.3", n=450, raw=raw,
        stand_ins="onnxruntime loads the files: the Triton of this machine has no ONNX Runtime backend",
        why="of the example's 10 kB, 2.6 kB are its INT8 weights (26.5 % of FP32's) and the rest is the graph, which INT8 makes longer",
    )  # fmt: skip


def _coefficients(network: Any) -> tuple[Any, Any]:
    return network.coefs_, network.intercepts_


def _right(file: Path, pixels: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> int:
    """Count the right labels row by row, in executions of eight rows as the command makes them."""
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    right = 0
    for begin in range(0, len(pixels), 8):
        answers = session.run(None, {"pixels": pixels[begin : begin + 8]})[0].tolist()
        for answer, label in zip(answers, labels[begin : begin + 8].tolist(), strict=True):
            right += answer.index(max(answer)) == label
    return right


def row_4() -> Row:
    """Measure time and memory of the analysis of a model of 537 MB with external data."""
    net = Network(("x", ("batch", 4096)))
    x = "x"
    for _ in range(8):
        x = net.add("Relu", net.dense(x, 4096, 4096))
    model = net.model(x)
    with tempfile.TemporaryDirectory() as folder:
        end = 0
        for weight in model.graph.initializer:
            size = 4 * int(np.prod(weight.dims))
            weight.data_location = TensorProto.EXTERNAL
            for key, text in (("location", "weights.bin"), ("offset", str(end)), ("length", str(size))):
                weight.external_data.add(key=key, value=text)
            end += size
        with (Path(folder) / "weights.bin").open("wb") as stream:
            for _ in range(end // 2**20 + 1):
                stream.write(np.random.default_rng(1).bytes(2**20))
            stream.truncate(end)
        file = Path(folder) / "model.onnx"
        file.write_bytes(model.SerializeToString())
        begin = time.monotonic()
        process = subprocess.run(
            [sys.executable, "-m", "halcyon.main", "analyse", str(file), "-o", "json"],
            capture_output=True,
            text=True,
            check=True,
        )
        seconds = time.monotonic() - begin
        peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        static = json.loads(process.stdout)["static"]
    value = {
        "seconds": round(seconds, 2),
        "memory of its size, %": round(100 * peak_bytes / end, 1),
        "wrong operations": int(static["sizes"][0]["macs"] != 8 * 4096 * 4096),
    }
    return Row(
        "5.4", "analysis of a model of 537 MB with external data", value, "<= 10 s and <= 2 x its size in memory",
        [("seconds", 10, "<="), ("memory of its size, %", 200, "<="), ("wrong operations", 0, "<=")],
        command="python -m benchmarks.measure.paper 5.4", raw={"bytes": end, "most memory of all children": peak_bytes},
    )  # fmt: skip


ROWS: Mapping[str, Callable[[], Row]] = {"5.1": row_1, "5.2": row_2, "5.3": row_3, "5.4": row_4}


def main(argv: Sequence[str]) -> int:
    """Measure and record the named rows, or all."""
    # The memory of children is that of the largest, so the one that is measured by it is first.
    return measure(ROWS, sorted(argv or ROWS, reverse=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
