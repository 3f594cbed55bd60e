"""Backends and GPU support of Triton images, as far as the name of an image shows them.

The name distinguishes NVIDIA's variants of the image and the CPU-only build for Halcyon's tests. An image with another
name, or one that was loaded by hand, isn't checked.

Source: the release notes of the Triton Inference Server containers, 26.07.
"""

# | image | backends | GPUs |
# | --- | --- | --- |
# | `.../nvidia/tritonserver:YY.MM-py3` | all but those for language models | yes |
# | `.../nvidia/tritonserver:YY.MM-vllm-python-py3` | python, vllm | yes |
# | `.../nvidia/tritonserver:YY.MM-trtllm-python-py3` | python, tensorrtllm | yes |
# | `.../nvidia/tritonserver:YY.MM-pyt-python-py3` | python, pytorch | yes |
# | `.../nvidia/tritonserver:YY.MM-py3-min`, `-py3-sdk` | none: they have no server | - |
# | `.../tritonserver-cpu` | python: Halcyon's own build for tests | no |
# | `localhost/...` | an image that was loaded into the node by hand, as in the demo: nothing is checked | - |
# | any other name | unknown, so nothing is checked | unknown |

from __future__ import annotations

import re

from halcyon.api.spec import Spec

EXAMPLE = "nvcr.io/nvidia/tritonserver:26.07-py3"
SAFE_RELEASE = "26.03"
"""First Triton release without CVE-2026-24206 and CVE-2026-24207, which bypass the restriction of APIs."""
CURRENT_RELEASE = "26.07"
"""Release of the chart's default image. It is the first release without the vulnerabilities that were published after
`SAFE_RELEASE`."""
_RELEASE = re.compile(r"(?:^|/)tritonserver:(\d\d\.\d\d)(?:[-.][A-Za-z0-9_.-]*)?$")
_NVIDIA = re.compile(r"(?:^|/)nvidia/tritonserver:(\d\d\.\d\d)-(?:([a-z0-9]+)-python-)?py3(?:-(min|sdk))?$")
_FLAVOURS = {"vllm": "vllm", "trtllm": "tensorrtllm", "pyt": "pytorch"}
_LANGUAGE_MODELS = {"vllm": "vllm", "tensorrtllm": "trtllm"}
"""Variant of the Triton image that contains each of the backends that the full image lacks."""
_NEED_GPU = frozenset(("tensorrt", "tensorrt_plan", "tensorrtllm", "vllm"))


def outdated(image: str) -> list[str]:
    """Return a sentence if the image's tag shows a Triton release with known vulnerabilities, else an empty list."""
    match = _RELEASE.search(image)
    if match is None or image.startswith("localhost/") or match[1] >= CURRENT_RELEASE:
        return []
    fault = (
        f"has known vulnerabilities in its restricted APIs (CVE-2026-24206, CVE-2026-24207, fixed in {SAFE_RELEASE})"
        if match[1] < SAFE_RELEASE
        else f"lacks the security fixes of {CURRENT_RELEASE}"
    )
    return [
        f"the image {image} is Triton {match[1]}, which {fault}; use {CURRENT_RELEASE} or newer, for example {EXAMPLE}"
    ]


def mismatches(spec: Spec, image: str) -> list[str]:
    """Return the reasons why the model can't use the image, or why a reserved GPU would stay idle.

    Args:
        spec: spec of the model.
        image: Triton image of the model: the image in the spec, or the site's default.
    """
    backend = spec.model.backend
    texts: list[str] = []
    if image.startswith("localhost/"):
        return texts
    if re.search(r"/tritonserver-cpu(?:[:@]|$)", image):
        if spec.runtime.gpus:
            texts.append(
                f"spec.runtime.gpu reserves {spec.runtime.gpus} GPU{'s' * (spec.runtime.gpus > 1)} for each pod, but the image {image} is a CPU build and can't "
                f"use them; remove spec.runtime.gpu, or set spec.runtime.image, for example {EXAMPLE}"
            )
        if backend not in {None, "python"}:
            texts.append(
                f"spec.model.backend is {backend}, but the image {image} has only python; set spec.runtime.image, for example {EXAMPLE}"
            )
    elif nvidia := _NVIDIA.search(image):
        release, flavour, variant = nvidia.groups()
        if variant:
            texts.append(f"the image {image} contains no Triton server; set spec.runtime.image, for example {EXAMPLE}")
        elif flavour is None and backend in _LANGUAGE_MODELS:
            good = image.replace(f"{release}-py3", f"{release}-{_LANGUAGE_MODELS[backend]}-python-py3")
            texts.append(
                f"spec.model.backend is {backend}, which the image {image} doesn't have; set spec.runtime.image to {good}"
            )
        elif flavour in _FLAVOURS and backend not in {None, "python", _FLAVOURS[flavour]}:
            texts.append(
                f"spec.model.backend is {backend}, but the image {image} has only python and {_FLAVOURS[flavour]}; "
                f"set spec.runtime.image, for example {EXAMPLE}"
            )
    if backend in _NEED_GPU and not spec.runtime.gpus:
        texts.append(
            f"spec.model.backend is {backend}, which needs a GPU, but spec.runtime.gpu is not set or has a count of 0; set for example gpu: {{count: 1}}"
        )
    return texts
