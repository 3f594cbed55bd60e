"""Parser of metrics pages in Prometheus text format. Invalid lines are ignored. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from halcyon_measure.results.observations import BalancerSample, Counters, GpuSample, ServerSample

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_MODEL = {
    "nv_inference_request_success": "requests",
    "nv_inference_count": "rows",
    "nv_inference_exec_count": "executions",
    "nv_inference_queue_duration_us": "queue_s",
    "nv_inference_compute_input_duration_us": "input_s",
    "nv_inference_compute_infer_duration_us": "model_s",
    "nv_inference_compute_output_duration_us": "output_s",
}
_GPU = {
    "nv_gpu_utilization": "utilization",
    "nv_gpu_memory_used_bytes": "memory",
    "nv_gpu_memory_total_bytes": "memory_total",
    "nv_gpu_power_usage": "power_w",
    "nv_energy_consumption": "energy_j",
}
_SERVER = {
    "nv_pinned_memory_pool_used_bytes": "pinned",
    "nv_pinned_memory_pool_total_bytes": "pinned_total",
    "nv_cpu_utilization": "machine_cpu",
    "nv_cpu_memory_used_bytes": "machine_memory",
}
_AGENT = {
    "halcyon_agent_request_duration_seconds_count": "requests",
    "halcyon_agent_request_duration_seconds_sum": "request_s",
    "halcyon_agent_response_duration_seconds_count": "responses",
    "halcyon_agent_response_duration_seconds_sum": "response_s",
    "halcyon_agent_held": "held",
    "process_cpu_seconds_total": "cpu_s",
}
_HAPROXY = {"haproxy_backend_current_queue": "queued", "haproxy_backend_http_requests_total": "requests"}


def samples(text: str, prefixes: tuple[str, ...]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield the samples of metrics whose names begin with one of the prefixes, as (name, labels, value)."""
    for line in text.splitlines():
        if not line.startswith(prefixes):
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        # Infinity and NaN can't be summed or compared.
        if math.isfinite(value):
            yield match[1], dict(_LABEL.findall(match[2] or "")), value


def server(text: str, model: str, at_s: float) -> ServerSample | None:
    """Return a sample from Triton's metrics page; None if the text isn't such a page."""
    counters: dict[str, float] = {}
    gpus: dict[str, dict[str, float]] = {}
    server_gauges: dict[str, float] = {}
    is_triton = False
    for name, labels, value in samples(text, ("nv_",)):
        is_triton = True
        if name in _MODEL:
            if labels.get("model") == model:
                field = _MODEL[name]
                counters[field] = counters.get(field, 0.0) + (value / 1e6 if field.endswith("_s") else value)
        elif name in _GPU:
            gpus.setdefault(labels.get("gpu_uuid", ""), {})[_GPU[name]] = value
        elif name in _SERVER:
            server_gauges[_SERVER[name]] = value
    if not is_triton:
        return None
    return ServerSample(
        at_s=at_s,
        counters=Counters(**counters) if len(counters) == len(_MODEL) else None,
        gpus={uuid: GpuSample(**gauges) for uuid, gauges in gpus.items()},
        **server_gauges,  # its keys are the names of these fields
    )


def balancer(text: str, at_s: float) -> BalancerSample | None:
    """Return a sample from the metrics page of a Halcyon agent or of HAProxy; None if the text is neither."""
    fields: dict[str, float] = {}
    haproxy: dict[str, float] = {}
    for name, _, value in samples(text, ("halcyon_agent_", "haproxy_backend_", "process_cpu_")):
        if name in _AGENT:
            fields[_AGENT[name]] = fields.get(_AGENT[name], 0.0) + value
        elif name in _HAPROXY:
            haproxy[_HAPROXY[name]] = haproxy.get(_HAPROXY[name], 0.0) + value
    fields = haproxy | fields
    if not fields.keys() - {"cpu_s"}:
        return None
    return BalancerSample(at_s=at_s, **fields)
