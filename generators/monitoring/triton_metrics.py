"""Triton's metrics that the dashboards and alerts use. Triton exports them on port 8002 of each model pod."""

from __future__ import annotations

from typing import Final

from halcyon.monitoring.metric import Metric, listed

_OF: Final = ("model", "version")


def _time(part: str, meaning: str) -> Metric:
    return Metric(
        f"nv_inference_{part}_duration_us", "counter", f"{meaning}, in microseconds, summed over requests.", _OF
    )


SUCCESS: Final = Metric("nv_inference_request_success", "counter", "Requests that succeeded.", _OF)
FAILURE: Final = Metric(
    "nv_inference_request_failure",
    "counter",
    "Requests that failed, by reason: REJECTED, CANCELED, BACKEND or OTHER.",
    (*_OF, "reason"),
)
ROWS: Final = Metric("nv_inference_count", "counter", "Batch items that were computed.", _OF)
EXECUTIONS: Final = Metric("nv_inference_exec_count", "counter", "Batches that were computed.", _OF)
PENDING: Final = Metric("nv_inference_pending_request_count", "gauge", "Requests in Triton's queue.", _OF)
QUEUE_TIME: Final = _time("queue", "Time in Triton's queue")
INPUT_TIME: Final = _time("compute_input", "Time to copy and prepare inputs")
INFER_TIME: Final = _time("compute_infer", "Time in the model")
OUTPUT_TIME: Final = _time("compute_output", "Time to copy outputs")
GPU_UTILIZATION: Final = Metric("nv_gpu_utilization", "gauge", "GPU utilisation, 0 to 1.", ("gpu_uuid",))
GPU_MEMORY_USED: Final = Metric("nv_gpu_memory_used_bytes", "gauge", "GPU memory in use.", ("gpu_uuid",))
GPU_MEMORY: Final = Metric("nv_gpu_memory_total_bytes", "gauge", "GPU memory.", ("gpu_uuid",))

METRICS: Final = listed(globals())
