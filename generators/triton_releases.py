"""Generator of docs/reference/triton-releases.md, from the server options and Triton releases that the code knows."""

from __future__ import annotations

import sys

from halcyon.api.policy.triton_images import CURRENT_RELEASE, SAFE_RELEASE
from halcyon.render.server_start import OPTIONAL, RESTRICTED

OLDEST = "24.10"
"""Oldest Triton release that was tested: 2.51, from the wheel nvidia-pytriton 0.7, on CPU."""


def releases_page() -> str:
    """Return the text of docs/reference/triton-releases.md."""
    closed = "the pod fails with `traffic.mode: Direct` or `Gateway`; behind balancers, which close these APIs too, it starts"
    options = [*OPTIONAL.items(), *((name, closed) for name in RESTRICTED)]
    return "\n".join(
        [
            "# Triton releases",
            "",
            "This page is for cluster operators who choose a Triton image. `make docs` generates this page from",
            "`operator/halcyon/render/server_start.py` and `operator/halcyon/api/policy/triton_images.py`; do not edit it.",
            "",
            "## By release",
            "",
            "| release | what to know | warning |",
            "| --- | --- | --- |",
            (
                f"| before {OLDEST} | not run. The start script leaves out options that the release lacks; this was tried with {OLDEST} behind a "
                "script that hides two options | yes |"
            ),
            (
                f"| {OLDEST} (2.51) | every test and the demo run on it, on CPU. Known ways around the restricted APIs: CVE-2026-24206, "
                "CVE-2026-24207 | yes, except for images in `localhost/` |"
            ),
            f"| up to {SAFE_RELEASE} | the same vulnerabilities | yes |",
            f"| {SAFE_RELEASE} to {CURRENT_RELEASE} | without these two, but without the fixes of {CURRENT_RELEASE} | yes |",
            f"| {CURRENT_RELEASE} | the chart's default. Its image was compared with its documentation, not run | no |",
            "| newer | not run. Options are looked up in `tritonserver --help` at each start | no |",
            "",
            "If the tag of an image shows its Triton release, Halcyon warns about old releases in the condition `PolicyWarning` and in",
            "`halcyon lint`. The chart value `sitePolicy.triton.warnBelow` replaces the default warning, and `sitePolicy.triton.refuseBelow` rejects",
            "images of old releases ([site policy](../concepts/security.md#site-policy)).",
            "",
            "If the name of an image does not show its release, such as `registry.example.com/team/server:3`, Halcyon assumes that the image",
            "has all backends and supports GPUs, and gives no warning. To have a copy of NVIDIA's image checked, keep the end of its name:",
            f"`registry.example.com/nvidia/tritonserver:{CURRENT_RELEASE}-py3`. For an image with a digest, list the release of the digest in",
            "`sitePolicy.triton.digests`. Halcyon uses this list only for `warnBelow` and `refuseBelow`, which count an unknown release as too old.",
            "",
            "## Options",
            "",
            "If `tritonserver --help` does not list an option, the pod starts without this option and logs a line about it.",
            "",
            "| option | without it |",
            "| --- | --- |",
            *(f"| `--{name}` | {effect} |" for name, effect in options),
            "",
            "Triton releases without the metric `nv_inference_pending_request_count` don't report the length of the queue. If Triton doesn't report",
            "the length of the queue, Halcyon computes it from the time that requests waited ([numbers](numbers.md#waiting)). For readiness,",
            "statistics and the repository index, Halcyon uses the KServe v2 protocol and its extensions, which every Triton release supports.",
            "",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(releases_page())
