"""Steps of an ensemble: the errors that Triton would find, each with its step, tensor and value, and what passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from halcyon.api.documents.model_overlay import Overlay
from tests.unit.fetch.test_main import Pod
from tests.unit.fetch.test_source_repository import CODE, PIPELINE, PYTHON, ensemble, put

ONNX = PYTHON.replace("python", "onnxruntime")
PIPE = ensemble("pre", "main")
LONG = ensemble("pre", "main", "pre")


def changed(config: str, old: str, new: str, nth: int = 0) -> str:
    """Return a configuration in which the nth occurrence of `old` is `new`."""
    parts = config.split(old)
    assert len(parts) > nth + 1, f"{old} is not in it"
    return old.join(parts[: nth + 1]) + new + old.join(parts[nth + 1 :])


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    (tmp_path / "source").mkdir()
    put(Pod(tmp_path), PIPELINE | dict.fromkeys(("pre/1/model.onnx", "main/1/model.onnx"), "a model"))
    return Pod(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"pipeline": changed(PIPE, 'key: "x"', 'key: "X"', 1)},
            (
                ", step 2 (main): input_map has the key 'X', and the model main has no input of this name; it has x. For example "
                'input_map { key: "x" value: "after_pre" }'
            ),
        ),
        (
            {"pipeline": changed(PIPE, 'key: "y"', 'key: "Y"')},
            (
                ", step 1 (pre): output_map has the key 'Y', and the model pre has no output of this name; it has y. For example "
                'output_map { key: "y" value: "after_pre" }'
            ),
        ),
        (
            {"pre": changed(PYTHON, "] }", '] }, { name: "z" data_type: TYPE_FP32 dims: [ 1 ] }')},
            (
                ", step 1 (pre): input_map lacks the input 'z' of the model pre; for example "
                'input_map { key: "z" value: "image" }, or optional: true at the input'
            ),
        ),
        (
            {"main": changed(PYTHON, "FP32", "INT64")},
            (
                ", step 2 (main): the ensemble tensor 'after_pre' has the data type TYPE_INT64 in the input 'x' of main, and "
                "TYPE_FP32 in the output 'y' of pre; both must be equal, for example data_type: TYPE_FP32"
            ),
        ),
        (
            {"main": changed(PYTHON, "[ 1 ]", "[ 3, 4 ]", 1)},
            (
                ", step 2 (main): the ensemble tensor 'y' has the shape [ -1, 3, 4 ] in the output 'y' of main, and [ -1, 1 ] in the "
                "output of pipeline, batch dimensions included; sizes must be equal or -1, for example dims: [ 1 ]"
            ),
        ),
        (
            {"main": changed(PYTHON, "size: 8", "size: 4")},
            (
                ", step 2 (main): the model main has max_batch_size: 4, less than the ensemble's 8; for example "
                "max_batch_size: 4 in the ensemble"
            ),
        ),
        (
            {"pipeline": changed(PIPE, 'value: "after_pre"', 'value: "after"', 1)},
            (
                ", step 2 (main): input_map gives the input 'x' the ensemble tensor 'after', which is neither an input of the "
                "ensemble nor in the output_map of a step; there are x, after_pre, y. For example "
                'input_map { key: "x" value: "after_pre" }'
            ),
        ),
        (
            {"pipeline": changed(LONG, 'value: "after_main"', 'value: "x"', 1)},
            (
                ", step 2 (main): output_map writes the output 'y' to the ensemble tensor 'after_main', which is neither an output of the "
                "ensemble nor in the input_map of a step. Remove this output_map, or use the tensor, for example "
                'output [ { name: "after_main" ... } ]'
            ),
        ),
        (
            {"pipeline": changed(PIPE, "output [", 'output [ { name: "z" data_type: TYPE_FP32 dims: [ 1 ] },')},
            (
                ": no step writes the output 'z'; the steps write after_pre, y. For example "
                'output_map { key: "y" value: "z" } in the last step'
            ),
        ),
        (
            {"pipeline": changed(PIPE, "input [", 'input [ { name: "z" data_type: TYPE_FP32 dims: [ 1 ] },')},
            ": no step uses the input 'z'; the steps use ",
        ),
        (
            {"pipeline": changed(changed(LONG, "after_main", "y"), "after_main", "after_pre")},
            ", step 3 (pre): the ensemble tensor 'y' is in more than one output_map; name each tensor once",
        ),
        (
            {"pipeline": changed(PIPE, 'input_map { key: "x" value: "x" }', "")},
            ", step 1 (pre): no input_map, which Triton requires; for example ",
        ),
        (
            {"pipeline": changed(PIPE, "model_version: -1", "")},
            (
                ", step 1 (pre): model_version is 0, which is the value without this field; the model pre has the version folders "
                "1. For example model_version: -1 for the latest"
            ),
        ),
        (
            {"pipeline": changed(PIPE, "version: -1", "version: 1", 1)},
            (
                ", step 2 (main): model_version is 1; the model main has the version folders 1, 2, of which its version_policy loads "
                "2. For example model_version: -1 for the latest"
            ),
        ),
    ],
)
def test_an_ensemble_error_names_step_tensor_and_value(pod: Pod, files: dict[str, str], message: str) -> None:
    put(pod, {f"{name}/config.pbtxt": content for name, content in files.items()})
    reason, refusal = pod.refusal(Overlay("pipeline"))

    assert reason == "ModelConfigInvalid"
    assert refusal.startswith("config.pbtxt of the ensemble pipeline" + message)


@pytest.mark.parametrize(
    "files",
    [
        {"main": changed(ONNX, "FP32", "INT64")},  # Triton may complete it
        {"main": changed(PYTHON, "[ 1 ]", "[ -1 ]")},
        {"main": PYTHON.replace("[ 1 ]", "[ -1, 1 ]").replace("size: 8", "size: 0")},
        {"main": changed(PYTHON, "] }", '] }, { name: "z" data_type: TYPE_FP32 dims: [ 1 ] optional: true }')},
        {"pipeline": changed(PIPE, "version: -1", "version: 2", 1)},
        {
            "pipeline": changed(PIPE, "version: -1", "version: 1", 1),
            "main": PYTHON + "version_policy { specific { versions: [ 1 ] } }",
        },
        {"pipeline": changed(PIPE, "version: -1", "version: 1", 1), "main": PYTHON + "version_policy { all { } }"},
        {"pipeline": changed(PIPE, 'key: "x"', 'key: "X"', 1) + "newer: 1\n"},
        {"main": changed(PYTHON, "FP32", "INT64") + "newer: 1\n"},
    ],
)
def test_an_ensemble_that_triton_may_accept_passes(pod: Pod, files: dict[str, str]) -> None:
    put(pod, {f"{name}/config.pbtxt": content for name, content in files.items()})

    assert pod.fetch(Overlay("pipeline")) == 0


def test_shapes_around_a_step_without_known_shapes_are_not_compared(pod: Pod) -> None:
    """Triton compares the two later declarations with the first one alone, which may have a size of -1."""
    pipe = changed(
        PIPE,
        'output_map { key: "y" value: "y" } }',
        'output_map { key: "y" value: "y" } }, { model_name: "post" model_version: -1 input_map { key: "x" value: "after_pre" } output_map { key: "y" value: "z" } }',
    )
    pipe = changed(pipe, "output [", 'output [ { name: "z" data_type: TYPE_FP32 dims: [ 1 ] },')
    put(pod, {"pipeline/config.pbtxt": pipe, "post/1/model.py": CODE, "post/config.pbtxt": changed(PYTHON, "1", "3")})
    assert "'after_pre' has the shape [ -1, 3 ] in the input 'x' of post" in pod.refusal(Overlay("pipeline"))[1]

    pod.put("pre/config.pbtxt", ONNX)
    assert pod.fetch(Overlay("pipeline")) == 0
