"""Usage of the measured pods by metrics.k8s.io, from a recorded document of metrics-server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from halcyon_cli.bench.readings import pod_usage
from halcyon_cli.bench.readings.pod_usage import Usage, UsageLog
from halcyon_measure.breakdown import hardware
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.observations import Observations
from tests.bench_documents import bench_document

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "recorded" / "pod-metrics.json").read_text())
SERVER = {
    "metadata": {"name": "digits-bench-a-5d9c7b8f6-x2x7k"},
    "spec": {"containers": [{"name": "triton", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]},
}


def at(name: str, container: str, second: int, cores: float, measured: str = "digits-bench") -> Usage:
    """Return a usage whose window of 15 s ends at 10:00:SECOND."""
    return Usage(measured, name, container, 1795860000.0 + second, 15.0, cores, 2**20 * cores)


def log(*usages: Usage, reason: str = "") -> UsageLog:
    return UsageLog({(usage.pod, usage.container, usage.end_s): usage for usage in usages}, reason)


def measured(duration_s: float = 40.0) -> BenchDocument:
    """Return a result that was made at 10:01:00."""
    document = bench_document(duration_s=duration_s).model_copy(update={"made_at": "2026-11-28T10:01:00Z"})
    nothing = hardware.build(Observations(no_process="the server runs on another machine"), wall_s=duration_s)
    return document.model_copy(update={"hardware": nothing})


def test_a_recorded_document_is_read_container_by_container() -> None:
    server, agent, haproxy = pod_usage.parse(RECORDED["items"])
    assert (server.pod, server.container) == ("digits-bench-a-5d9c7b8f6-x2x7k", "triton")
    assert (server.end_s, server.window_s) == (1795860019.0, 15.021)
    assert server.cores == pytest.approx(1.873420116)
    assert server.memory == 412348 * 1024
    assert agent.cores == pytest.approx(0.021034871)
    assert (haproxy.cores, haproxy.window_s) == (pytest.approx(0.000158), 14.37)


@pytest.mark.parametrize(
    "change",
    [{"timestamp": None}, {"window": "soon"}, {"window": None}, {"containers": [{"name": "triton", "usage": {}}]}],
)
def test_unreadable_values_are_left_out(change: dict[str, Any]) -> None:
    assert pod_usage.parse([RECORDED["items"][0] | change]) == []


def test_windows_are_those_of_go() -> None:
    (usage,) = pod_usage.parse([RECORDED["items"][0] | {"window": "1m0.5s"}])
    assert usage.window_s == 60.5


def test_without_an_answer_the_reason_is_that_of_the_figures() -> None:
    figures = pod_usage.added(
        measured(), log(reason="the cluster has no metrics.k8s.io"), [SERVER], "digits-bench"
    ).hardware
    assert figures is not None
    assert figures.server_cpu.mean.value is None
    assert figures.server_cpu.mean.reason == figures.server_memory.max.reason == "the cluster has no metrics.k8s.io"


def test_windows_within_the_run_count() -> None:
    # The run is from 10:00:20 to 10:01:00.
    seen = log(
        at("x", "triton", 30, 9.0), at("x", "triton", 36, 1.5), at("x", "triton", 51, 1.9), at("x", "triton", 66, 9.0)
    )
    figures = pod_usage.added(measured(), seen, [SERVER], "digits-bench").hardware
    assert figures is not None
    assert figures.server_cpu.values == (1.5, 1.9)
    assert figures.server_cpu.mean.value == pytest.approx(1.7)
    assert figures.server_cpu.mean.source == "metrics.k8s.io, means of 15 s"
    assert figures.server_cpu_limit.value == 2
    assert figures.server_memory_limit.value == 2**30


def test_replicas_are_added_and_balancers_are_apart() -> None:
    seen = log(
        at("x", "triton", 40, 1.0), at("y", "triton", 43, 0.5), at("b", "agent", 41, 0.1), at("b", "haproxy", 41, 0.3)
    )  # fmt: skip
    figures = pod_usage.added(measured(), seen, [SERVER, SERVER], "digits-bench").hardware
    assert figures is not None
    assert figures.server_cpu.mean.value == 1.5
    assert figures.server_cpu_limit.value == 4
    assert figures.balancer_cpu.mean.value == pytest.approx(0.4)


def test_a_short_run_has_no_window() -> None:
    figures = pod_usage.added(measured(10.0), log(at("x", "triton", 55, 1.0)), [SERVER], "digits-bench").hardware
    assert figures is not None
    assert figures.server_cpu.mean.value is None
    assert figures.server_cpu.mean.reason == "no window of metrics.k8s.io, of 15 s, lies within the 10 s of the run"


def test_a_server_without_a_limit_has_no_share() -> None:
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "triton"}]}}
    figures = pod_usage.added(measured(), log(at("x", "triton", 40, 1.0)), [pod], "digits-bench").hardware
    assert figures is not None
    assert figures.server_cpu_limit.reason == "the servers have no limit of cpu"


def test_the_verdict_knows_a_full_cpu() -> None:
    plain = measured()
    full = pod_usage.added(plain, log(at("x", "triton", 40, 1.98)), [SERVER], "digits-bench").verdict
    idle = pod_usage.added(plain, log(at("x", "triton", 40, 0.1)), [SERVER], "digits-bench").verdict
    assert full is not None
    assert idle is not None
    assert full.limit == "server CPU"
    assert idle.limit != "server CPU"


def test_figures_of_the_client_stay() -> None:
    own = hardware.series([1.0, 3.0], "cores", "CPU time of the servers' processes", "")
    plain = measured()
    assert plain.hardware is not None
    plain = plain.model_copy(update={"hardware": plain.hardware.model_copy(update={"server_cpu": own})})
    figures = pod_usage.added(plain, log(at("x", "triton", 40, 1.5)), [SERVER], "digits-bench").hardware
    assert figures is not None
    assert figures.server_cpu == own
