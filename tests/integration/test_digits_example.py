"""The digits example as it is committed; that Triton runs it is for the scenarios to show."""

import importlib
import sys
from types import ModuleType
from typing import Any

import onnx
import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from manifests.examples.digits import train

TEXT = train.MANIFEST.read_text()


def document(kind: str) -> dict[str, Any]:
    (manifest,) = (entry for entry in yaml.safe_load_all(TEXT) if entry["kind"] == kind)
    return dict(manifest)


@pytest.fixture(scope="module")
def model() -> ModuleType:
    """model.py, imported where Triton's module is not: what is tested here does not use it."""
    sys.modules["triton_python_backend_utils"] = ModuleType("triton_python_backend_utils")
    try:
        return importlib.import_module("manifests.examples.digits.model")
    finally:
        del sys.modules["triton_python_backend_utils"]


def test_the_manifests_network_labels_held_out_digits_as_well_as_claimed() -> None:
    assert train.accuracy(train.model_in(TEXT)) >= train.ACCURACY


def test_training_again_gives_the_committed_manifest() -> None:
    assert train.difference(TEXT, train.train()) is None


def test_a_manifest_edited_by_hand_is_distinguished_from_a_trained_one() -> None:
    edited = TEXT.replace('gpu_ms: "5"', 'gpu_ms: "6"')
    assert edited != TEXT
    reason = train.difference(edited, train.model_in(TEXT))
    assert reason is not None
    assert "text differs" in reason


def test_a_network_of_another_shape_is_distinguished_from_the_trained_one() -> None:
    proto = onnx.load_from_string(train.model_in(TEXT))
    proto.graph.initializer[1].dims[1] = 16
    reason = train.difference(TEXT, proto.SerializeToString(deterministic=True))
    assert reason is not None
    assert "shapes" in reason


def test_every_item_of_the_source_is_in_the_config_map() -> None:
    config_map = document("ConfigMap")
    source = document("ModelDeployment")["spec"]["model"]["source"]["configMap"]
    assert source["name"] == config_map["metadata"]["name"]
    assert {item["key"] for item in source["items"]} == config_map["data"].keys() | config_map["binaryData"].keys()


def test_the_model_in_the_config_map_equals_the_files_beside_it() -> None:
    code = document("ConfigMap")["data"]["model.py"]
    assert code == (train.HERE / "model.py").read_text()
    compile(code, "model.py", "exec")


def test_the_configuration_agrees_with_the_network_and_the_resource() -> None:
    text = document("ConfigMap")["data"]["config.pbtxt"]
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    graph = onnx.load_from_string(train.model_in(TEXT)).graph
    assert config.max_batch_size == document("ModelDeployment")["spec"]["batching"]["maxBatchSize"]
    assert [(tensor.name, list(tensor.dims)) for tensor in config.input] == [
        (tensor.name, [tensor.type.tensor_type.shape.dim[1].dim_value]) for tensor in graph.input
    ]
    assert [tensor.name for tensor in config.output] == ["probabilities", "label", "BATCH", "WHO"]
    assert not config.instance_group  # Triton's KIND_AUTO: the GPU where one is, else the CPU


@pytest.mark.parametrize(
    ("spans", "now_s", "expected"),
    [
        ([], 10.0, 0.0),
        ([(9.0, 10.0)], 10.0, 0.5),
        ([(7.0, 9.0)], 10.0, 0.5),  # only what lies in the window counts
        ([(1.0, 2.0)], 10.0, 0.0),
        ([(8.0, 8.5), (9.0, 9.5)], 10.0, 0.5),
        ([(5.0, 10.0)], 10.0, 1.0),
        ([(9.0, None)], 10.0, 0.5),  # under way
        ([(1.0, None)], 10.0, 1.0),
    ],
)
def test_the_busy_share_is_that_of_the_last_two_seconds(
    model: ModuleType, spans: list[tuple[float, float | None]], now_s: float, expected: float
) -> None:
    share = model.BusyShare(window_s=2.0)
    for start_s, stop_s in spans:
        share.start(start_s)
        if stop_s is not None:
            share.stop(stop_s)
    assert share.value(now_s) == pytest.approx(expected)
