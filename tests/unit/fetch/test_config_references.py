"""Models whose files Triton finds outside the source, or doesn't need: the fetcher accepts them.

The cases about the image, warm-up data and zero bytes were compared with Triton 2.51, which loads these models.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.fetch.test_main import Pod, pod

__all__ = ["pod"]
PYTHON = 'backend: "python"\n'
IMAGE = "/opt/tritonserver/models/digits"
"""Folder that exists only in Triton's image."""


def labels(name: str) -> str:
    return f'{PYTHON}output {{ name: "Y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "{name}" }}'


def warmup(fields: str) -> str:
    tensor = 'inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 4 ] input_data_file: "absent" } }'
    return f'{PYTHON}model_warmup {{ name: "w" {fields} {tensor} }}'


def environment(path: str) -> str:
    return f'{PYTHON}parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}'


def batching(path: str) -> str:
    return f'{PYTHON}parameters {{ key: "TRITON_BATCH_STRATEGY_PATH" value {{ string_value: "{path}" }} }}'


def model(pod: Pod, config: str, file: str = "1/model.py") -> Path:
    """Fetch a model with one file, and return its folder in the repository."""
    pod.put("config.pbtxt", config)
    pod.put(file, "content")
    assert pod.fetch() == 0, pod.termination_log.read_text()
    return pod.repository / "m"


def test_model_files_may_be_links_into_tritons_image(pod: Pod) -> None:
    pod.put("1/notes.txt")
    (pod.source / "1" / "model.py").symlink_to(f"{IMAGE}/1/model.py")
    assert (model(pod, PYTHON, "1/data.bin") / "1" / "model.py").readlink() == Path(f"{IMAGE}/1/model.py")


def test_files_of_labels_may_be_links_into_tritons_image(pod: Pod) -> None:
    pod.put("1/model.py")
    (pod.source / "1" / "labels.txt").symlink_to(f"{IMAGE}/labels.txt")
    assert (model(pod, labels("1/labels.txt")) / "1" / "labels.txt").is_symlink()


def test_files_outside_the_source_are_never_copied(pod: Pod) -> None:
    outside = pod.root / "token"
    outside.write_text("secret")
    pod.put("1/model.py")
    (pod.source / "1" / "labels.txt").symlink_to(outside)
    assert (model(pod, labels("1/labels.txt")) / "1" / "labels.txt").is_symlink()


def test_files_of_labels_in_a_cache_of_blobs_are_copied(pod: Pod) -> None:
    pod.put("blobs/0a1b", "zero\none\n")
    pod.put("model/1/model.py")
    pod.put("model/config.pbtxt", labels("labels.txt"))
    (pod.source / "model" / "labels.txt").symlink_to("../blobs/0a1b")
    assert pod.fetch() == 0
    assert not (pod.repository / "m" / "labels.txt").is_symlink()
    assert (pod.repository / "m" / "labels.txt").read_text() == "zero\none\n"


@pytest.mark.parametrize("fields", ["", "batch_size: 0"])
def test_data_of_warm_ups_that_triton_skips_may_be_absent(pod: Pod, fields: str) -> None:
    model(pod, warmup(fields))


def test_agents_of_the_repository_may_create_the_models_files(pod: Pod) -> None:
    agents = 'backend: "onnxruntime" model_repository_agents { agents [ { name: "decrypt" } ] }'
    model(pod, agents, "1/model.onnx.encrypted")


@pytest.mark.parametrize(
    "config",
    [
        environment("$$TRITON_MODEL_DIRECTORY/../../opt/environment.tar.gz"),
        environment("a" * 300),
        f'backend: "own" runtime: "{"a" * 300}"',
        labels(r"labels.txt\000"),
    ],
    ids=["in the image", "a long name", "a long name of a library", "a zero byte"],
)
def test_unusual_names_of_files_are_accepted(pod: Pod, config: str) -> None:
    pod.put("labels.txt")
    model(pod, config)


def test_links_without_a_file_inside_the_source_are_still_named(pod: Pod) -> None:
    pod.put("config.pbtxt", labels("texts/labels.txt"))
    pod.put("1/model.py")
    pod.put("texts/other.txt")
    (pod.source / "texts" / "labels.txt").symlink_to("absent.txt")
    assert "label_filename: 'texts/labels.txt'" in pod.refusal()[1]


def test_libraries_for_custom_batching_lie_inside_the_folder_of_their_model(pod: Pod) -> None:
    pod.put("1/model.py")
    pod.put("1/libother.so")
    for _ in range(2):
        folder = model(pod, batching(f"{pod.repository}/m/1/libbatching.so"), "1/libbatching.so")
        assert not (folder / "1/libbatching.so").is_symlink()
        assert (folder / "1/libbatching.so").resolve().is_relative_to(folder.resolve())
        assert (folder / "1/libother.so").is_symlink()


def test_libraries_for_custom_batching_of_the_image_change_nothing(pod: Pod) -> None:
    assert (model(pod, batching("/opt/libbatching.so")) / "1").is_symlink()
