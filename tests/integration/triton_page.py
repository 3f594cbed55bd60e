"""A metrics page as served by a Triton pod, without a running Triton.

Names and labels are those that Triton 2.51 writes, reduced to one model. The lines on GPUs follow its documentation.
The counters increase with each scrape.
"""

import itertools
from collections.abc import Callable
from email.message import Message

_COUNTERS = {
    "nv_inference_request_success": 90,
    "nv_inference_count": 400,
    "nv_inference_exec_count": 80,
    "nv_inference_request_duration_us": 900_000,
    "nv_inference_queue_duration_us": 300_000,
    "nv_inference_compute_input_duration_us": 20_000,
    "nv_inference_compute_infer_duration_us": 500_000,
    "nv_inference_compute_output_duration_us": 10_000,
}
"""Increase per scrape, by metric name."""
_FAILURES = {"REJECTED": 1, "CANCELED": 2, "BACKEND": 4, "OTHER": 0}
_GAUGES = """\
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="digits",version="1"} 7
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.25
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 16000000000
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 4000000000
# TYPE nv_cpu_utilization gauge
nv_cpu_utilization 0.5
"""


def pages() -> Callable[[str, Message], tuple[int, str]]:
    """Return a function that responds to scrapes, each with later values than the previous one."""
    scrapes = itertools.count(1)
    return lambda _path, _headers: (200, page(next(scrapes)))


def page(scrape: int) -> str:
    """Return the metrics page at a scrape."""
    lines = []
    for name, by in _COUNTERS.items():
        lines.append(f'# TYPE {name} counter\n{name}{{model="digits",version="1"}} {by * scrape}\n')
    lines.append("# TYPE nv_inference_request_failure counter\n")
    for reason, by in _FAILURES.items():
        lines.append(f'nv_inference_request_failure{{model="digits",reason="{reason}",version="1"}} {by * scrape}\n')
    return "".join(lines) + _GAUGES
