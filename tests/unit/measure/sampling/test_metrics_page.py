"""Pages of metrics: Triton's, an agent's, and HAProxy's."""

from __future__ import annotations

from halcyon_measure.results.observations import Counters, GpuSample
from halcyon_measure.sampling import metrics_page

TRITON = """# HELP nv_inference_request_success Number of successful inference requests
nv_inference_request_success{model="m",version="1"} 40
nv_inference_request_success{model="m",version="2"} 2
nv_inference_request_success{model="other",version="1"} 9000
nv_inference_count{model="m",version="1"} 80
nv_inference_exec_count{model="m",version="1"} 10
nv_inference_queue_duration_us{model="m",version="1"} 2000000
nv_inference_compute_input_duration_us{model="m",version="1"} 1000
nv_inference_compute_infer_duration_us{model="m",version="1"} 500000
nv_inference_compute_output_duration_us{model="m",version="1"} 2000
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5
nv_energy_consumption{gpu_uuid="GPU-1"} 1234.5
nv_gpu_power_usage{gpu_uuid="GPU-1"} NaN
nv_cpu_utilization 0.25
nv_pinned_memory_pool_total_bytes 268435456
nv_broken{
"""


def test_counters_are_those_of_the_model_over_its_versions() -> None:
    sample = metrics_page.server(TRITON, "m", 3.0)
    assert sample is not None
    assert sample.counters == Counters(42, 80, 10, 2.0, 0.001, 0.5, 0.002)
    assert sample.gpus == {"GPU-1": GpuSample(utilization=0.5, energy_j=1234.5)}
    assert (sample.machine_cpu, sample.pinned, sample.pinned_total) == (0.25, None, 268435456)


def test_a_page_without_the_model_has_no_counters() -> None:
    sample = metrics_page.server(TRITON, "absent", 3.0)
    assert sample is not None
    assert sample.counters is None


def test_other_pages_are_not_readings() -> None:
    assert metrics_page.server("<html>nv_ is not here</html>", "m", 0) is None
    assert metrics_page.balancer("go_goroutines 4\nprocess_cpu_seconds_total 3\n", 0) is None


def test_agents_publish_times_with_and_without_the_balancer() -> None:
    text = """halcyon_agent_request_duration_seconds_sum 12.5
halcyon_agent_request_duration_seconds_count 100
halcyon_agent_request_duration_seconds_bucket{le="0.1"} 50
halcyon_agent_response_duration_seconds_sum{slot="a"} 7
halcyon_agent_response_duration_seconds_sum{slot="b"} 1
halcyon_agent_response_duration_seconds_count{slot="a"} 100
halcyon_agent_held 0
process_cpu_seconds_total 3.5
"""
    sample = metrics_page.balancer(text, 1.0)
    assert sample is not None
    assert (sample.request_s, sample.requests, sample.response_s, sample.responses) == (12.5, 100, 8, 100)
    assert (sample.held, sample.cpu_s, sample.queued) == (0, 3.5, None)


def test_queues_of_haproxy_are_added() -> None:
    text = """haproxy_backend_current_queue{proxy="http"} 3
haproxy_backend_current_queue{proxy="grpc"} 1
haproxy_backend_http_requests_total{proxy="http"} 300
haproxy_backend_http_requests_total{proxy="grpc"} 100
"""
    sample = metrics_page.balancer(text, 1.0)
    assert sample is not None
    assert (sample.queued, sample.requests) == (4, 400)
