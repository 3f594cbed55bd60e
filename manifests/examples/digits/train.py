"""Trains the digits example and writes ../digits.yaml: the model in a ConfigMap, and the ModelDeployment that serves it.

    python manifests/examples/digits/train.py           # train, and write the manifest
    python manifests/examples/digits/train.py --check   # fail if the committed manifest isn't what this would write

Everything but the weights is compared byte by byte. Weights depend on the CPU in their last digits (BLAS chooses its kernels
by it), and many passes of training enlarge that. So if the bytes differ, --check compares what matters: operators, names,
types and shapes must be the same, and the accuracy within `TOLERANCE`.
"""
# ruff: noqa: INP001, T201  # a script beside the files it reads, which prints for the person who runs it

import argparse
import base64
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import yaml
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

HERE = Path(__file__).resolve().parent
MANIFEST = HERE.parent / "digits.yaml"
ACCURACY = 0.96
TOLERANCE = 0.02
_SEED = 0
_PASSES = 60
_BRIGHTEST = 16.0
_HEADER = """\
# Written by digits/train.py; edit digits/ and run it again. The docstring of model.py describes the model, and how it simulates
# a GPU. The network reads scikit-learn's copy of the UCI handwritten digits (CC BY 4.0).
"""


def split() -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Return the digits as (training pixels, held-out pixels, training labels, held-out labels).

    Pixels: FP32[n, 64], values 0 to 16. A quarter (450 of 1797) is held out, with the same share of each digit.
    """
    pixels, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        pixels.astype(np.float32), labels.astype(np.int64), test_size=0.25, random_state=_SEED, stratify=labels
    )
    return tuple(parts)


def train() -> bytes:
    """Return the network as ONNX, trained from a fixed seed: the same bytes on the same machine."""
    pixels, _, labels, _ = split()
    network = MLPClassifier(hidden_layer_sizes=(32,), batch_size=32, learning_rate_init=0.003, random_state=_SEED)
    for _ in range(_PASSES):
        network.partial_fit(pixels / _BRIGHTEST, labels, classes=np.arange(10))
    return _export(network.coefs_, network.intercepts_)


def accuracy(model: bytes) -> float:
    """Return the share of held-out digits that ONNX Runtime classifies correctly."""
    _, pixels, _, labels = split()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    probabilities = np.asarray(session.run(["probabilities"], {"pixels": pixels})[0])
    return float((probabilities.argmax(axis=1) == labels).mean())


def _export(weights: list[NDArray[Any]], biases: list[NDArray[Any]]) -> bytes:
    """Return the graph: pixels -> /16 -> dense, ReLU -> dense, softmax -> probabilities; FP32, with any number of rows."""
    constants: dict[str, NDArray[np.float32]] = {"brightest": np.asarray(_BRIGHTEST, np.float32)}
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        constants[f"weight_{layer}"] = weight.astype(np.float32)
        constants[f"bias_{layer}"] = bias.astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Div", ["pixels", "brightest"], ["scaled"]),
            helper.make_node("Gemm", ["scaled", "weight_0", "bias_0"], ["dense_0"]),
            helper.make_node("Relu", ["dense_0"], ["hidden"]),
            helper.make_node("Gemm", ["hidden", "weight_1", "bias_1"], ["dense_1"]),
            helper.make_node("Softmax", ["dense_1"], ["probabilities"], axis=1),
        ],
        "digits",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["rows", 64])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["rows", 10])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    # Old versions on purpose: any ONNX Runtime of the last years reads them.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="halcyon")
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def manifest(model: bytes) -> str:
    """Return the text of digits.yaml for a model."""
    encoded = base64.encodebytes(model).decode().rstrip("\n")
    return "".join(
        (
            _HEADER,
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: digits-model\ndata:\n",
            *(f"  {name}: |\n{_indent((HERE / name).read_text())}" for name in ("config.pbtxt", "model.py")),
            f"binaryData:\n  model.onnx: |\n{_indent(encoded)}",
            "---\n",
            (HERE / "modeldeployment.yaml").read_text(),
        )
    )


def model_in(text: str) -> bytes:
    """Return the ONNX file in a manifest."""
    for document in yaml.safe_load_all(text):
        if document["kind"] == "ConfigMap":
            return base64.b64decode(document["binaryData"]["model.onnx"])
    raise ValueError("no ConfigMap in the manifest; it must hold binaryData.model.onnx")


def structure(model: bytes) -> onnx.ModelProto:
    """Return the model without the values of its weights: operators, names, types and shapes."""
    proto = onnx.load_from_string(model)
    for constant in proto.graph.initializer:
        constant.ClearField("raw_data")
    return proto


def difference(committed: str, fresh: bytes) -> str | None:
    """Return why a committed manifest isn't what training gives now; None if it is."""
    model = model_in(committed)
    if manifest(model) != committed:
        return "its text differs from digits/ (model.py, config.pbtxt, modeldeployment.yaml, or the layout of train.py)"
    if model == fresh:
        return None
    if structure(model) != structure(fresh):
        return "the network's operators, names, types or shapes differ from what train.py exports"
    committed_accuracy, fresh_accuracy = accuracy(model), accuracy(fresh)
    if committed_accuracy < ACCURACY or abs(committed_accuracy - fresh_accuracy) > TOLERANCE:
        return f"its accuracy is {committed_accuracy:.4f}, training gives {fresh_accuracy:.4f}; at least {ACCURACY}, within {TOLERANCE}, is required"
    return None


def _indent(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


def main() -> int:
    """Write the manifest, or check it, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed manifest, write nothing")
    check = parser.parse_args().check
    fresh = train()
    print(f"accuracy on the held-out quarter: {accuracy(fresh):.4f}")
    if not check:
        MANIFEST.write_text(manifest(fresh))
        print(f"wrote {MANIFEST}")
        return 0
    reason = difference(MANIFEST.read_text(), fresh)
    if reason:
        print(f"{MANIFEST} is out of date: {reason}; run {Path(__file__).name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
