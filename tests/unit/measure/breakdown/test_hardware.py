"""Use of GPUs and CPU over a run, from samples."""

from __future__ import annotations

import pytest

from halcyon_measure.breakdown import hardware
from halcyon_measure.results.observations import (
    BalancerSample,
    Counters,
    GpuSample,
    Observations,
    ProcessSample,
    Readings,
    ServerSample,
)


def counters(requests: float) -> Counters:
    return Counters(requests, requests, requests, 0.01 * requests, 0, 0.02 * requests, 0)


def page(at: float, utilization: float, *, requests: float = 0, uuid: str = "GPU-0") -> ServerSample:
    gpu = GpuSample(utilization, 4e9, 16e9, 120)
    return ServerSample(at, counters(requests), {uuid: gpu}, pinned=1e6, pinned_total=2.56e8, machine_cpu=0.5)


def test_spread_of_the_utilisation_is_that_of_the_samples() -> None:
    use = [0.1, 0.5, 0.85, 0.9, 0.95]
    observations = Observations(servers=(Readings("a", tuple(page(float(at), value) for at, value in enumerate(use))),))
    section = hardware.build(observations, wall_s=4)
    assert section.samples == 5
    assert section.gpu_utilization.mean.value == pytest.approx(0.66)
    assert section.gpu_at_80.value == pytest.approx(0.6)
    assert section.gpu_memory_total.value == 16e9
    assert section.pinned_memory.max.value == 1e6


def test_memory_of_gpus_is_added_and_their_utilisation_averaged() -> None:
    servers = tuple(
        Readings(pod, (page(0, use, uuid=pod), page(1, use, uuid=pod))) for pod, use in (("a", 0.2), ("b", 0.8))
    )
    section = hardware.build(Observations(servers=servers), wall_s=1)
    assert section.gpu_utilization.mean.value == pytest.approx(0.5)
    assert section.gpu_memory.mean.value == 8e9


def test_cores_follow_from_the_growth_of_cpu_time() -> None:
    samples = tuple(
        ProcessSample(float(at), cpu_s=10 + 1.5 * at, memory=1e8, cpu_limit=2.0, periods=10.0 * at, throttled=4.0 * at)
        for at in range(4)
    )
    section = hardware.build(Observations(processes=(Readings("a", samples),)), wall_s=3)
    assert section.server_cpu.mean.value == pytest.approx(1.5)
    assert section.server_cpu_limit.value == 2
    assert section.server_throttled.value == pytest.approx(0.4)


def test_missing_sources_are_null_with_their_reasons() -> None:
    observations = Observations(
        servers=(Readings("a", (), "http://a:8002/metrics doesn't answer: refused"),), no_process="another machine"
    )
    section = hardware.build(observations, wall_s=3)
    assert section.gpu_utilization.mean.value is None
    assert "doesn't answer: refused" in section.gpu_utilization.mean.reason
    assert section.server_cpu.p90.reason == "another machine"
    assert "--balancer-metrics" in section.balancer_cpu.mean.reason


def test_a_server_that_was_read_once_has_reasons_for_its_missing_figures() -> None:
    observations = Observations(processes=(Readings("a", (ProcessSample(0.0, cpu_s=10.0),)),))
    section = hardware.build(observations, wall_s=1)
    assert section.server_cpu.mean.reason == "fewer than two readings have their CPU time"
    assert section.server_memory.mean.reason == "no reading has their memory"


def test_cores_of_balancers_are_those_of_the_balancers_that_answer() -> None:
    samples = tuple(BalancerSample(float(at), cpu_s=0.5 * at) for at in range(3))
    silent = Readings[BalancerSample]("b", (), "http://b:9100/metrics doesn't answer: refused")
    both = Observations(no_balancer="", balancers=(Readings("a", samples), silent))
    assert hardware.build(both, wall_s=2).balancer_cpu.mean.value == pytest.approx(0.5)
    none = Observations(no_balancer="", balancers=(silent,))
    assert hardware.build(none, wall_s=2).balancer_cpu.mean.reason == silent.reason


def test_a_replaced_pod_is_marked_and_its_parts_are_kept() -> None:
    samples = tuple(page(float(at), 0.5, requests=requests) for at, requests in enumerate((100, 200, 20, 50)))
    section = hardware.build(Observations(servers=(Readings("a", samples),)), wall_s=3)
    assert section.replicas[0].replaced
    assert section.replicas[0].requests.value == 150
    assert "replaced or restarted in the run" in section.notes[0]
