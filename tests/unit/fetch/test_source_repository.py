"""Sources with several models: which one is served, what goes along, and what is refused."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from halcyon.api.documents.model_overlay import DynamicBatching, Overlay
from halcyon.api.documents.repository_marker import COMPLETE, INSTANCES
from halcyon.api.sequence_batching import REPORT
from halcyon.fetch.source_repository import MAX_MODELS
from tests.unit.fetch.test_main import Pod, names_in

_TENSORS = """input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
PYTHON = f'backend: "python"\nmax_batch_size: 8 # rows\n{_TENSORS}'
CODE = "class TritonPythonModel:\n    pass\n"


def ensemble(*steps: str) -> str:
    """An ensemble that passes its input x through these steps to its output y."""
    tensors = ["x", *(f"after_{step}" for step in steps[:-1]), "y"]
    listed = ",\n".join(
        f'{{ model_name: "{step}" model_version: -1 input_map {{ key: "x" value: "{source}" }} '
        f'output_map {{ key: "y" value: "{target}" }} }}'
        for step, (source, target) in zip(steps, itertools.pairwise(tensors), strict=True)
    )
    return f'platform: "ensemble"\nmax_batch_size: 8\n{_TENSORS}ensemble_scheduling {{ step [ {listed} ] }}\n'


PIPELINE = {
    "pipeline/config.pbtxt": ensemble("pre", "main"),
    "pre/config.pbtxt": PYTHON,
    "pre/1/model.py": CODE,
    "main/config.pbtxt": PYTHON,
    "main/1/model.py": CODE,
    "main/2/model.py": CODE,
}


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    (tmp_path / "source").mkdir()
    return Pod(tmp_path)


def put(pod: Pod, files: dict[str, str], below: str = "") -> None:
    for path, content in files.items():
        pod.put(below + path, content)


@pytest.mark.parametrize(
    ("below", "arguments"),
    [
        ("", []),
        ("zoo/", ["--path=zoo"]),
        ("repository-main/", []),  # the only folder, as tar and git make one
        ("a/b/", ["--path=a"]),
    ],
)
def test_a_repository_s_other_models_are_loaded_with_the_served_one(
    pod: Pod, below: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    put(pod, PIPELINE | {"README.md": "", ".git/config.pbtxt": "x", ".cache/1/x": "", "docs/a.md": ""}, below)

    assert pod.fetch(Overlay("pipeline"), *arguments) == 0
    assert names_in(pod.repository) == [COMPLETE, INSTANCES, "main", "pipeline", "pre"]
    assert (pod.repository / "main" / "2").readlink() == pod.source / below / "main/2"
    assert pod.written("pre") == PYTHON
    assert "; models loaded with it: main, pre; loaded without auto-complete" in capsys.readouterr().out


def test_an_ensemble_without_a_version_folder_gets_an_empty_one(pod: Pod) -> None:
    put(pod, PIPELINE)
    for _ in range(2):  # the second run replaces what the first made
        assert pod.fetch(Overlay("pipeline")) == 0
        version = pod.repository / "pipeline" / "1"
        assert version.is_dir()
        assert not version.is_symlink()
        assert names_in(version) == [".halcyon-version"]


def test_an_empty_version_folder_of_an_ensemble_is_linked(pod: Pod) -> None:
    put(pod, PIPELINE)
    (pod.source / "pipeline" / "3").mkdir()

    assert pod.fetch(Overlay("pipeline")) == 0
    assert names_in(pod.repository / "pipeline") == ["3", "config.pbtxt"]
    assert (pod.repository / "pipeline" / "3").is_symlink()


def test_an_overlay_changes_the_served_model_alone(pod: Pod) -> None:
    put(pod, {"main/config.pbtxt": PYTHON, "main/1/model.py": CODE, "pre/config.pbtxt": PYTHON, "pre/1/model.py": CODE})

    assert pod.fetch(Overlay("main", dynamic_batching=DynamicBatching(max_queue_delay_us=2000))) == 0
    assert "dynamic_batching" in pod.written("main")
    assert pod.written("pre") == PYTHON


def test_a_companion_s_configuration_loses_only_its_byte_order_mark(pod: Pod) -> None:
    put(pod, PIPELINE)
    pod.put("pre/config.pbtxt", ("\ufeff" + PYTHON).encode())
    pod.put("main/config.pbtxt", PYTHON.encode("utf-16"))

    assert pod.fetch(Overlay("pipeline")) == 0
    assert (pod.written("pre"), pod.written("main")) == (PYTHON, PYTHON)


def test_a_companion_without_a_configuration_is_left_to_auto_complete(pod: Pod) -> None:
    put(pod, {path: text for path, text in PIPELINE.items() if path != "main/config.pbtxt"})

    assert pod.fetch(Overlay("pipeline")) == 0
    assert names_in(pod.repository / "main") == ["1", "2"]
    assert not (pod.repository / COMPLETE).exists()


def test_models_of_an_earlier_attempt_leave_the_repository(pod: Pod) -> None:
    put(pod, PIPELINE | {"old/1/model.py": CODE})
    assert pod.fetch(Overlay("pipeline")) == 0
    assert "old" in names_in(pod.repository)
    (pod.source / "old" / "1" / "model.py").unlink()
    (pod.source / "old" / "1").rmdir()

    assert pod.fetch(Overlay("pipeline")) == 0
    assert "old" not in names_in(pod.repository)


def test_a_repository_without_the_served_model_lists_its_folders(pod: Pod) -> None:
    put(pod, PIPELINE)
    reason, message = pod.refusal(Overlay("digits"))

    assert reason == "ModelSourceNotFound"
    assert "no version folder in its top folder, which has main, pipeline, pre" in message
    assert "Folders main, pipeline, pre have one: set one of them as the path of the source" in message
    assert message.endswith("for example spec.model.name: main")


@pytest.mark.parametrize("path", [[], ["--path=pipeline"]])
def test_a_missing_step_of_an_ensemble_is_named_with_the_models_there(pod: Pod, path: list[str]) -> None:
    put(pod, PIPELINE | {"pipeline/config.pbtxt": ensemble("pre", "post", "main")})
    reason, message = pod.refusal(Overlay("pipeline"), *path)

    assert reason == "ModelSourceNotFound"
    step, folders = ("pre", "pipeline") if path else ("post", "main, pipeline, pre")
    assert f"pipeline is an ensemble with the step '{step}', and the source has no model folder of this name" in message
    assert f"it has {folders}. " in message
    assert f"pipeline/config.pbtxt and {step}/1/model.py" in message
    assert not (pod.repository / "pipeline").exists()


def test_steps_of_an_ensemble_in_an_ensemble_are_checked(pod: Pod) -> None:
    put(pod, PIPELINE | {"outer/config.pbtxt": ensemble("pipeline"), "pipeline/config.pbtxt": ensemble("gone")})

    assert "pipeline is an ensemble with the step 'gone'" in pod.refusal(Overlay("outer"))[1]


@pytest.mark.parametrize(
    ("files", "reason", "part"),
    [
        ({"pre/config.pbtxt": "max_batch_size: x"}, "ModelConfigInvalid", "config.pbtxt, line 1, column 17"),
        ({"pre/config.pbtxt": f'name: "p"\n{PYTHON}'}, "ModelConfigInvalid", "config.pbtxt has name: 'p', and Triton"),
        ({"pre/config.pbtxt": 'name: "p"\nnewer: 1\n'}, "ModelConfigInvalid", "config.pbtxt has name: 'p', and Triton"),
        (
            {"pre/1/weights.bin": "version https://git-lfs.github.com/spec/v1\nsize 7\n"},
            "ModelSourceNotFound",
            "1/weights.bin in the model's source is a pointer of Git LFS",
        ),
    ],
)
def test_errors_of_a_companion_have_its_name(pod: Pod, files: dict[str, str], reason: str, part: str) -> None:
    put(pod, PIPELINE | files)
    actual, message = pod.refusal(Overlay("pipeline"))

    assert actual == reason
    assert message.startswith("model pre of the source: ")
    assert part in message


def test_a_companion_with_a_configuration_and_no_version_is_refused(pod: Pod) -> None:
    put(pod, PIPELINE | {"post/config.pbtxt": PYTHON})

    reason, message = pod.refusal(Overlay("pipeline"))

    assert reason == "ModelSourceNotFound"
    assert message == (
        "model post of the source: no version folder in folder post, which has config.pbtxt. A model's folder contains "
        "version folders and may contain a config.pbtxt, for example 1/model.onnx"
    )


def test_a_companion_s_newer_field_passes_through(pod: Pod) -> None:
    put(pod, PIPELINE | {"pre/config.pbtxt": f"{PYTHON}newer: 1\n"})

    assert pod.fetch(Overlay("pipeline")) == 0
    assert pod.written("pre").endswith("newer: 1\n")


def test_a_companion_that_is_a_link_out_of_the_volume_is_refused(pod: Pod) -> None:
    put(pod, PIPELINE)
    (pod.root / "outside" / "1").mkdir(parents=True)
    (pod.source / "other").symlink_to(pod.root / "outside")

    assert "other in the model's source is a link that leads out of the volume" in pod.refusal(Overlay("pipeline"))[1]


def test_a_repository_with_too_many_models_is_refused(pod: Pod) -> None:
    for number in range(MAX_MODELS + 1):
        pod.put(f"m{number}/1/model.onnx")
    message = pod.refusal(Overlay("m1"))[1]

    assert f"has {MAX_MODELS + 1} models; the limit is {MAX_MODELS}" in message
    assert "Set the path of the source to m1 " in message


def test_a_config_map_lays_out_several_models(pod: Pod) -> None:
    pod.project(PIPELINE)

    assert pod.fetch(Overlay("pipeline")) == 0
    assert names_in(pod.repository) == [COMPLETE, INSTANCES, "main", "pipeline", "pre"]
    assert (pod.repository / "main" / "1" / "model.py").read_text() == CODE


def test_a_folder_s_only_model_needs_no_name(pod: Pod) -> None:
    put(pod, {"digits/config.pbtxt": PYTHON, "digits/1/model.py": CODE, "notes/todo.txt": ""})

    assert pod.fetch(Overlay("m")) == 0
    assert names_in(pod.repository) == [COMPLETE, "m"]


def test_a_step_with_sequences_makes_the_ensemble_stateful(pod: Pod) -> None:
    put(pod, PIPELINE | {"main/config.pbtxt": f"{PYTHON}sequence_batching {{ }}\n"})

    assert pod.fetch(Overlay("pipeline")) == 0
    assert pod.termination_log.read_text() == REPORT


def test_a_site_s_list_of_backends_applies_to_every_model(pod: Pod) -> None:
    put(pod, PIPELINE)
    assert pod.fetch(Overlay("pipeline"), "--backends=python") == 0

    pod.put("main/config.pbtxt", PYTHON.replace("python", "pytorch"))
    reason, message = pod.refusal(Overlay("pipeline"), "--backends=python")
    assert reason == "ModelConfigInvalid"
    assert message.startswith("model main of the source: config.pbtxt names the backend pytorch")
    pod.put("main/config.pbtxt", PYTHON)
    pod.put("pipeline/config.pbtxt", f'backend: "evil"\n{ensemble("pre")}')
    assert "names the backend evil" in pod.refusal(Overlay("pipeline"), "--backends=python")[1]
    pod.put("pipeline/config.pbtxt", ensemble("pre"))
    pod.put("pre/libtriton_python.so")
    assert (
        "libtriton_python.so is a backend of the model's own"
        in pod.refusal(Overlay("pipeline"), "--backends=python")[1]
    )


def test_an_executable_stub_of_a_companion_is_copied(pod: Pod) -> None:
    put(pod, PIPELINE | {"pre/triton_python_backend_stub": "#!/bin/bash"})

    assert pod.fetch(Overlay("pipeline")) == 0
    stub = pod.repository / "pre" / "triton_python_backend_stub"
    assert not stub.is_symlink()
    assert os.access(stub, os.X_OK)


@pytest.mark.parametrize(
    ("files", "instances"),
    [
        ({"m/1/model.onnx": ""}, 2),
        ({"m/config.pbtxt": 'instance_group { count: 3 }\nbackend: "python"', "m/1/model.py": CODE}, 3),
        ({"m/config.pbtxt": PYTHON + "field_of_a_later_release: 1", "m/1/model.py": CODE}, 1),
        ({**PIPELINE, "pre/config.pbtxt": PYTHON + "instance_group { count: 4 }"}, 5),
    ],
    ids=["Triton's default", "of the model", "unknown field", "of all steps"],
)
def test_the_repository_names_the_instances_that_share_the_pod(pod: Pod, files: dict[str, str], instances: int) -> None:
    put(pod, files)
    assert pod.fetch(Overlay("pipeline" if "pipeline/config.pbtxt" in files else "m")) == 0
    file = pod.repository / INSTANCES
    assert (int(file.read_text()) if file.exists() else 1) == instances


@pytest.mark.parametrize(
    ("file", "parameter"),
    [("model.onnx", "intra_op_thread_count"), ("model.pt", "INTRA_OP_THREAD_COUNT"), ("model.py", "")],
)
def test_a_model_without_configuration_gets_threads_by_its_file(pod: Pod, file: str, parameter: str) -> None:
    pod.put(f"1/{file}", CODE)
    assert pod.fetch(Overlay("m", millicores=3000)) == 0
    assert parameter in pod.written()
    assert ("parameters" in pod.written()) == bool(parameter)
