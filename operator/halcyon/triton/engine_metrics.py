"""Gauges of engines on Triton's metrics page: TensorRT-LLM's (`nv_trt_llm_*`) and vLLM's (`vllm:*`).

Names and labels are from the documentation of Triton's TensorRT-LLM and vLLM backends; the latter reports vLLM's
metrics if `REPORT_CUSTOM_METRICS` is set. An engine reports the gauges for the model that it executes, which may be a
step of an ensemble. The label `model` is ignored, because a pod serves one model. This module has not been tested with
a running engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_REQUESTS, _BLOCKS = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
_VLLM_WAITING = "vllm:num_requests_waiting"
_VLLM_BLOCKS = ("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc")
"""Names of vLLM's gauge of the used share of its KV cache (0 to 1). Later releases use the second name."""
LABELS: Final[Mapping[str, str]] = {
    _REQUESTS: "request_type",
    _BLOCKS: "kv_cache_block_type",
    _VLLM_WAITING: "",
    **dict.fromkeys(_VLLM_BLOCKS, ""),
}
"""Name of the label that distinguishes the samples of a gauge, by gauge name; empty if there is no such label."""
Gauges = Mapping[tuple[str, str], float]
"""Values of gauges, by (name of the gauge, value of the label in `LABELS`)."""


def of_pod(samples: Mapping[tuple[str, str], Sequence[float]]) -> Gauges:
    """Return the value of each gauge for the whole pod, from the samples of all engines, models and versions in it.

    The value is the mean if the gauge is a share, and the sum otherwise.
    """
    return {
        gauge: sum(values) / (len(values) if gauge[0] in _VLLM_BLOCKS else 1)
        for gauge, values in samples.items()
        if values
    }


def waiting(gauges: Gauges) -> float | None:
    """Return the number of requests in the engine's own queue, or None if the engine doesn't report it."""
    counts = [gauges[key] for key in ((_REQUESTS, "waiting"), (_VLLM_WAITING, "")) if key in gauges]
    return sum(counts) if counts else None


def used(gauges: Gauges) -> float | None:
    """Return the used share of the engine's capacity for requests, 0 to 1; None if the engine doesn't report it.

    The result is the larger of two used shares: that of the KV cache, and that of the maximum concurrent requests.
    """
    shares = [gauges[name, ""] for name in _VLLM_BLOCKS if (name, "") in gauges]
    for name, part in ((_BLOCKS, "used"), (_REQUESTS, "active")):
        if (name, part) in gauges and gauges.get((name, "max")):
            shares.append(gauges[name, part] / gauges[name, "max"])
    return min(max(shares), 1.0) if shares else None
