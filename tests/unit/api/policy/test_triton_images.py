"""Triton images that don't fit the model or its GPUs, by their names."""

from typing import Any

import pytest

from halcyon.api.policy.triton_images import EXAMPLE, mismatches, outdated
from halcyon.api.spec.parse import parse

CPU = "registry.example.com/halcyon/tritonserver-cpu@sha256:" + "0" * 64
FULL = "nvcr.io/nvidia/tritonserver:26.07-py3"
VLLM = "nvcr.io/nvidia/tritonserver:26.07-vllm-python-py3"


def mismatch_text(image: str, *, backend: str | None = None, gpus: int = 0) -> str:
    model: dict[str, Any] = {"source": {"persistentVolumeClaim": {"claimName": "models"}}}
    model |= {} if backend is None else {"backend": backend}
    spec = parse("m", {"model": model, "runtime": {"gpu": {"count": gpus}}})
    return "; ".join(mismatches(spec, image))


@pytest.mark.parametrize(
    ("image", "backend", "gpus", "words"),
    [
        (CPU, None, 2, "spec.runtime.gpu reserves 2 GPUs for each pod, but the image"),
        (CPU, "onnxruntime", 0, "spec.model.backend is onnxruntime, but the image"),
        (FULL, "vllm", 1, f"doesn't have; set spec.runtime.image to {VLLM}"),
        (FULL, "tensorrtllm", 1, "set spec.runtime.image to nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"),
        (VLLM, "onnxruntime", 1, "has only python and vllm"),
        ("nvcr.io/nvidia/tritonserver:26.07-py3-sdk", None, 0, "contains no Triton server"),
        ("mirror.example.com/nvidia/tritonserver:26.07-py3-min", None, 0, "contains no Triton server"),
        (VLLM, "vllm", 0, "needs a GPU, but spec.runtime.gpu is not set"),
        ("registry.example.com/own:1", "tensorrt", 0, "needs a GPU, but spec.runtime.gpu is not set"),
    ],
)
def test_an_unsuitable_image_is_reported(image: str, backend: str | None, gpus: int, words: str) -> None:
    assert words in mismatch_text(image, backend=backend, gpus=gpus)


@pytest.mark.parametrize(
    ("image", "backend", "gpus"),
    [
        (CPU, "python", 0),
        (FULL, "tensorrt", 1),
        (FULL, "onnxruntime", 0),
        (FULL, None, 0),
        (VLLM, "vllm", 1),
        ("registry.example.com/own:1", "mine", 1),
        ("localhost/tritonserver-cpu:24.10", None, 1),
        ("nvcr.io/nvidia/tritonserver:26.07-py3-igpu", None, 1),
        ("", None, 1),
    ],
)
def test_a_suitable_or_unknown_image_is_not(image: str, backend: str | None, gpus: int) -> None:
    assert mismatch_text(image, backend=backend, gpus=gpus) == ""


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (
            "nvcr.io/nvidia/tritonserver:24.10-py3",
            "is Triton 24.10, which has known vulnerabilities in its restricted APIs (CVE-2026-24206",
        ),
        ("mirror.example.com:5000/nvidia/tritonserver:26.02", "CVE-2026-24207, fixed in 26.03); use 26.07 or newer"),
        (
            "nvcr.io/nvidia/tritonserver:26.03-vllm-python-py3",
            "is Triton 26.03, which lacks the security fixes of 26.07",
        ),
    ],
)
def test_a_release_with_known_vulnerabilities_is_reported(image: str, words: str) -> None:
    (message,) = outdated(image)
    assert words in message
    assert message.endswith(f"for example {EXAMPLE}")


@pytest.mark.parametrize(
    "image",
    [
        "",
        FULL,
        "nvcr.io/nvidia/tritonserver:27.01-py3",
        CPU,
        "localhost/tritonserver-cpu:24.10",
        "registry.example.com/own:1.0",
    ],
)
def test_a_release_that_is_current_or_unknown_is_not_reported(image: str) -> None:
    assert outdated(image) == []
