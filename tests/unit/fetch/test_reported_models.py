"""Models of public reports (docs/quality/field-reports.md), each test with its number there, through the whole fetcher."""

from __future__ import annotations

import pytest

from halcyon.api.documents.model_overlay import Overlay
from halcyon.fetch.repository import STUB
from halcyon.model_config import config_pbtxt
from tests.unit.fetch.test_main import Pod, names_in, pod

__all__ = ["pod"]
PYTHON = 'backend: "python"\n'
TENSOR = 'name: "X" data_type: TYPE_FP32 dims: [ 4 ]'


def environment(path: str) -> str:
    return f'{PYTHON} parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}'


def refusal(pod: Pod, config: str, *files: str) -> str:
    """The message for a model with this config.pbtxt and these files."""
    pod.put("config.pbtxt", config)
    for file in files:
        pod.put(file, "content")
    reason, message = pod.refusal()
    assert reason in {"ModelConfigInvalid", "ModelConfigConflict", "ModelSourceNotFound"}
    return message


def accepted(pod: Pod, config: str, *files: str) -> None:
    pod.put("config.pbtxt", config)
    for file in files:
        pod.put(file, "content")
    assert pod.fetch() == 0


def test_185_variables_of_a_template_are_no_backend(pod: Pod) -> None:
    message = refusal(pod, 'backend: "${triton_backend}"', "1/model.py")
    assert 'config.pbtxt has backend: "${triton_backend}", a variable of a template' in message
    assert 'for example backend: "python"' in message


def test_186_typographic_quotes_are_named_with_plain_ones(pod: Pod) -> None:
    message = refusal(pod, "max_batch_size: 8\nbackend: “python”\n", "1/model.py")
    assert "config.pbtxt, line 2, column 10" in message
    assert "“python”" in message
    assert 'text in quotes, for example name: "digits"' in message


def test_189_dimensions_without_brackets_are_accepted(pod: Pod) -> None:
    ensemble = (
        'platform: "ensemble" input { name: "A" data_type: TYPE_FP32 dims: 4 } output { name: "B" data_type: TYPE_FP32 '
        'dims: 4 } ensemble_scheduling { step { model_name: "step" model_version: 1 input_map { key: "X" value: "A" } '
        'output_map { key: "Y" value: "B" } } }'
    )
    pod.put("m/config.pbtxt", ensemble)
    (pod.source / "m" / "1").mkdir()
    pod.put("step/config.pbtxt", PYTHON)
    pod.put("step/1/model.py", "code")
    assert pod.fetch() == 0
    assert names_in(pod.repository / "m") == ["1", "config.pbtxt"]


def test_190_steps_outside_the_repository_are_rejected(pod: Pod) -> None:
    step = 'step { model_name: "../secret" model_version: -1 }'
    pod.put("../secret/config.pbtxt", PYTHON)
    message = refusal(pod, f'platform: "ensemble" ensemble_scheduling {{ {step} }}', "1/x")
    assert "the step '../secret', and the source has no model folder of this name" in message


def test_191_cached_and_decoupled_responses_exclude_each_other(pod: Pod) -> None:
    config = PYTHON + "response_cache { enable: true } model_transaction_policy { decoupled: true }"
    assert "config.pbtxt has model_transaction_policy { decoupled: true }" in refusal(pod, config, "1/model.py")


def test_192_version_folders_with_a_leading_zero_are_named(pod: Pod) -> None:
    assert "Triton ignores the version 01; name it 1" in refusal(pod, PYTHON, "01/model.py")


def test_193_minus_one_is_no_version_of_a_policy(pod: Pod) -> None:
    message = refusal(pod, PYTHON + "version_policy { specific { versions: [ -1 ] } }", "1/model.py")
    assert "has only -1, and the source has the version folders 1" in message


def test_194_stubs_without_their_mode_become_executable(pod: Pod) -> None:
    accepted(pod, PYTHON, "1/model.py", STUB)
    assert (pod.repository / "m" / STUB).stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("name", ["env.tar.gz", "./env.tar.gz"])
def test_195_environments_by_bare_name_are_named_with_their_path(pod: Pod, name: str) -> None:
    message = refusal(pod, environment(name), "1/model.py", "env.tar.gz")
    assert f"EXECUTION_ENV_PATH is {name}" in message
    assert "for example $$TRITON_MODEL_DIRECTORY/env.tar.gz" in message


def test_196_absent_environments_of_a_model_are_named(pod: Pod) -> None:
    message = refusal(pod, environment("$$TRITON_MODEL_DIRECTORY/env.tar.gz"), "1/model.py", "environment.tar.gz")
    assert "EXECUTION_ENV_PATH" in message
    assert "env.tar.gz" in message
    assert "environment.tar.gz" in message


@pytest.mark.parametrize("path", ["$$TRITON_MODEL_DIRECTORY/1/env.tgz", "/opt/env.tar.gz", "in/the/image"])
def test_196_environments_that_exist_or_lie_in_the_image_are_accepted(pod: Pod, path: str) -> None:
    accepted(pod, environment(path), "1/model.py", "1/env.tgz")


def test_199_pointers_of_git_lfs_are_named_in_all_models(pod: Pod) -> None:
    pod.put("m/1/model.py", "code")
    pod.put("step/1/model.onnx", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 500000000\n")
    message = pod.refusal()[1]
    assert "model step of the source: 1/model.onnx" in message
    assert "git lfs pull" in message


def test_200_models_that_a_python_model_calls_are_in_the_repository(pod: Pod) -> None:
    for name in ("m", "add_sub", "pytorch"):
        pod.put(f"{name}/1/model.py", "code")
    assert pod.fetch() == 0
    assert {"m", "add_sub", "pytorch"} <= set(names_in(pod.repository))


@pytest.mark.parametrize(
    ("config", "file"),
    [
        ('backend: "onnxruntime"', "1/model.onnx/model.onnx"),
        ('platform: "tensorflow_savedmodel"', "1/model.savedmodel/saved_model.pb"),
        ('backend: "onnxruntime" default_model_filename: "resnet.onnx"', "1/resnet.onnx"),
        ('backend: "tensorrt" cc_model_filenames { key: "8.0" value: "a100.plan" }', "1/a100.plan"),
        ('backend: "fil" parameters { key: "model_type" value { string_value: "lightgbm" } }', "1/model.txt"),
        ('backend: "vllm"', "1/model.json"),
        ('backend: "identity"', "1/anything"),
        ('backend: "python"', "2/model.py"),
    ],
)
def test_201_model_files_of_every_form_are_accepted(pod: Pod, config: str, file: str) -> None:
    accepted(pod, config, file)


def test_202_absent_files_of_warm_up_data_are_named(pod: Pod) -> None:
    tensor = 'inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 4 ] input_data_file: "raw_x" } }'
    message = refusal(pod, f'{PYTHON} model_warmup {{ name: "w" batch_size: 1 {tensor} }}', "1/model.py", "warmup/raw")
    assert "config.pbtxt has input_data_file: 'raw_x' in model_warmup" in message
    assert "folder warmup has raw" in message


def test_203_folders_of_a_model_that_was_not_fetched_are_named(pod: Pod) -> None:
    (pod.source / "1").mkdir()
    message = refusal(pod, 'platform: "onnxruntime_onnx"')
    assert "the backend onnxruntime loads model.onnx" in message
    assert "version folder 1 is empty" in message


@pytest.mark.parametrize(
    ("config", "file", "expected"),
    [
        ('backend: "fil"', "nonhist.txt", "xgboost.model"),
        ('backend: "onnxruntime"', "resnet.onnx", "model.onnx"),
        ('backend: "python"', "main.py", "model.py"),
        ('backend: "onnxruntime" default_model_filename: "a.onnx"', "b.onnx", "a.onnx"),
    ],
)
def test_204_model_files_of_another_name_are_named(pod: Pod, config: str, file: str, expected: str) -> None:
    message = refusal(pod, config, f"1/{file}")
    assert f"loads {expected}" in message
    assert f"version folder 1 has {file}" in message
    assert f'default_model_filename: "{file}"' in message


def test_205_platforms_in_the_field_backend_are_named(pod: Pod) -> None:
    message = refusal(pod, 'backend: "tensorrt_plan"', "1/model.plan")
    assert 'config.pbtxt has backend: "tensorrt_plan", a value of the field platform' in message
    assert 'for example backend: "tensorrt"' in message


def test_206_absent_files_of_labels_are_named(pod: Pod) -> None:
    output = 'output { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" }'
    message = refusal(pod, PYTHON + output, "1/model.py", "Labels.txt")
    assert "config.pbtxt has label_filename: 'labels.txt' in the output 'Y'" in message
    assert "Labels.txt" in message


@pytest.mark.parametrize("named", ["labels.txt", "texts/en/labels.txt", "1/labels.txt", "/labels.txt"])
def test_212_files_of_labels_lie_inside_the_folder_of_their_model(pod: Pod, named: str) -> None:
    path = named.lstrip("/")
    output = f'output {{ name: "Y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "{named}" }}'
    for _ in range(2):
        accepted(pod, PYTHON + output, "1/model.py", "texts/en/other.txt", path)
    folder = (pod.repository / "m").resolve()
    # Triton from 26.02 on, src/filesystem/api.cc, IsChildPathEscapingParentPath.
    assert (folder / path).resolve().is_relative_to(folder)
    assert (folder / path).read_text() == "content"
    assert (folder / "1/model.py").read_text() == (folder / "texts/en/other.txt").read_text() == "content"
    assert names_in(pod.repository) == ["m"]


def test_libraries_of_a_runtime_lie_inside_the_folder_of_their_model(pod: Pod) -> None:
    accepted(pod, 'backend: "own" runtime: "libtriton_own.so"', "1/weights.bin", "libtriton_own.so", "libother.so")
    folder = (pod.repository / "m").resolve()
    assert (folder / "libtriton_own.so").resolve().is_relative_to(folder)
    assert (folder / "libother.so").is_symlink()


def test_207_absent_files_of_initial_states_are_named(pod: Pod) -> None:
    initial = 'initial_state { name: "s" data_type: TYPE_FP32 dims: [ 1 ] data_file: "s1" }'
    state = f'state {{ input_name: "s_in" output_name: "s_out" data_type: TYPE_FP32 dims: [ 1 ] {initial} }}'
    message = refusal(pod, f"{PYTHON} sequence_batching {{ {state} }}", "1/model.py", "s1")
    assert "config.pbtxt has data_file: 's1' in the state 's_in'" in message
    assert "initial_state/s1" in message


def test_208_preferred_sizes_without_a_maximum_are_named(pod: Pod) -> None:
    config = 'backend: "onnxruntime" dynamic_batching { preferred_batch_size: [ 2 ] }'
    assert "preferred_batch_size 2 is above max_batch_size 0" in refusal(pod, config, "1/model.onnx")


def test_209_configurations_as_triton_prints_them_are_accepted(pod: Pod) -> None:
    config = (
        (
            'name: "m"\nplatform: "onnxruntime_onnx"\nbackend: "onnxruntime"\nmax_batch_size: 100\n'
            'input: [ { name: "a", data_type: TYPE_INT64, format: FORMAT_NONE, dims: [8], is_shape_tensor: false, }, ]\n'
            'output: [ { name: "b" data_type: TYPE_FP32 dims: [8, 256] label_filename: "" } ]\nbatch_input: []\n'
            'instance_group: [ { name: "m" kind: KIND_CPU count: 1 gpus: [] profile: [] } ]\ndefault_model_filename: ""\n'
        )
        .replace(", },", " },")
        .replace(" ]\noutput", "]\noutput")
        .replace(",]", "]")
    )
    accepted(pod, config, "1/model.onnx")
    assert list(config_pbtxt.parse(pod.written().encode()).output[0].dims) == [8, 256]


def test_210_repositories_below_the_top_folder_are_found(pod: Pod) -> None:
    for name in ("m", "other"):
        pod.put(f"model_repository/{name}/1/model.py", "code")
    assert pod.fetch(Overlay("m")) == 0
    assert {"m", "other"} <= set(names_in(pod.repository))


SHARED = "$$TRITON_MODEL_DIRECTORY/../env.tar.gz"


@pytest.mark.parametrize("others", [(), ("n",), ("n", "o")])
def test_277_environments_beside_the_models_are_in_the_repository(pod: Pod, others: tuple[str, ...]) -> None:
    pod.put("env.tar.gz", "packed")
    for name in ("m", *others):
        pod.put(f"{name}/config.pbtxt", environment(SHARED))
        pod.put(f"{name}/1/model.py", "code")
    for _ in range(2):  # as after a restart of the pod
        assert pod.fetch() == 0
        assert (pod.repository / "m" / ".." / "env.tar.gz").read_text() == "packed"


def test_277_paths_that_return_to_the_repository_are_found(pod: Pod) -> None:
    pod.put("env.tar.gz", "packed")
    pod.put("m/config.pbtxt", environment("$$TRITON_MODEL_DIRECTORY/../../models/env.tar.gz"))
    pod.put("m/1/model.py", "code")
    assert pod.fetch() == 0
    assert (pod.repository / "m" / ".." / "env.tar.gz").read_text() == "packed"


def test_277_environments_beside_a_folder_in_the_source_are_found(pod: Pod) -> None:
    pod.put("team/env.tar.gz", "packed")
    pod.put("team/m/config.pbtxt", environment(SHARED))
    pod.put("team/m/1/model.py", "code")
    assert pod.fetch(Overlay("served"), "--path=team/m") == 0
    assert (pod.repository / "served" / ".." / "env.tar.gz").read_text() == "packed"


@pytest.mark.parametrize(
    ("path", "beside"),
    [
        (SHARED, "other.tar.gz"),
        ("$$TRITON_MODEL_DIRECTORY/../envs/env.tar.gz", "envs/env.tar.gz"),
        ("$$TRITON_MODEL_DIRECTORY/../../env.tar.gz", "env.tar.gz"),
        ("$$TRITON_MODEL_DIRECTORY/../../models/env.tar.gz", "other.tar.gz"),
        ("$$TRITON_MODEL_DIRECTORY/../../models/m/../env.tar.gz", "other.tar.gz"),
        ("$$TRITON_MODEL_DIRECTORY/..", "env.tar.gz"),
        ("$$TRITON_MODEL_DIRECTORY/../m", "env.tar.gz"),
    ],
)
def test_277_environments_that_triton_would_not_find_are_named(pod: Pod, path: str, beside: str) -> None:
    pod.put(beside, "packed")
    pod.put("m/config.pbtxt", environment(path))
    pod.put("m/1/model.py", "code")
    reason, message = pod.refusal()
    assert reason == "ModelConfigInvalid"
    assert f"EXECUTION_ENV_PATH is {path}, and the source has no such file" in message


def test_277_files_outside_the_source_are_no_environments(pod: Pod) -> None:
    (pod.root / "env.tar.gz").write_text("another tenant's")
    assert "the source has no such file" in refusal(pod, environment(SHARED), "1/model.py")
    pod.put("in/config.pbtxt", environment(SHARED))
    pod.put("in/1/model.py", "code")
    (pod.source / "env.tar.gz").symlink_to(pod.root / "env.tar.gz")
    reason, message = pod.refusal(Overlay("m"), "--path=in")
    assert "leads out of the volume" in message, reason


def test_277_environments_with_the_name_of_the_model_are_named(pod: Pod) -> None:
    pod.put("served", "packed")
    pod.put("m/config.pbtxt", environment("$$TRITON_MODEL_DIRECTORY/../served"))
    pod.put("m/1/model.py", "code")
    _, message = pod.refusal(Overlay("served"))
    assert "served in the model's source has the name of a model; rename the file" in message
