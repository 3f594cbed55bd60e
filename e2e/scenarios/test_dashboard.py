"""Under load, the dashboard's latency and the queue that is reckoned from times are those that Triton's own counters say."""

import contextlib
import json
import os
import re
import subprocess
import time
import urllib.request
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import pytest

from demo import models
from demo.kube import SYSTEM, Kube
from e2e.load import process
from e2e.load.settings import Load, Report
from halcyon.api.documents.observation_report import AgentReport, BalancerSample, PodSample
from halcyon.control.reporting.dashboard_source import WINDOW_S
from halcyon.scaling.hpa import metrics
from halcyon.scaling.observations import Value
from halcyon.scaling.planner.reading import PodReading
from halcyon.signals.clock import WallClock
from halcyon.signals.mean_in_progress import MIN_WINDOW_S
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.planner_reading import SignalMemory, reading
from halcyon.triton.client import Metrics, parse_metrics

pytestmark = pytest.mark.more

GAUGE = "nv_inference_pending_request_count"
CLIENTS = 48
"""Three times the largest batch: most requests in Triton wait."""
SAMPLE_INTERVAL_S = 1.0
"""The agents' interval, so that a window has the same rows."""
LATE_S = 1.5
"""Growth counts with the sample that confirms it, and the last sample is half a second old in the mean."""
SAMPLES = 15
PORT = 8090


@dataclass
class TritonCounters:
    """Samples of Triton's metrics page."""

    at: list[float] = field(default_factory=list)
    pages: list[Metrics] = field(default_factory=list)

    def add(self, at: float, page: Metrics) -> None:
        """Add a sample."""
        self.at.append(at)
        self.pages.append(page)

    def grown(self, name: str, begin: float, end: float) -> float:
        """Return the growth of a counter from one time to another, interpolated between two samples."""
        return self._value(name, end) - self._value(name, begin)

    def _value(self, name: str, at: float) -> float:
        after = min(max(bisect_left(self.at, at), 1), len(self.at) - 1)
        low, high = (float(getattr(self.pages[n], name)) for n in (after - 1, after))
        begin, end = self.at[after - 1], self.at[after]
        return low + (high - low) * (at - begin) / (end - begin)


@dataclass
class EstimatedQueue:
    """Queue computed from the same pages without the gauge, as from an agent's reports."""

    pod: str
    hub: ObservationStore = field(default_factory=ObservationStore)
    memory: SignalMemory = field(default_factory=SignalMemory)

    def receive(self, at: float, page: Metrics) -> None:
        """Report a sample at once."""
        assert page.pending is None
        sample = PodSample(self.pod, "ready", at, **vars(page))
        balancer = BalancerSample(queued=0, inflight=CLIENTS, requests=page.succeeded or 0, rejected=0, errors=0)
        self.hub.receive(AgentReport("n", "m", "agent", at, balancer, (sample,)), at)

    def rules_queue(self, now: float) -> float | None:
        """Return the waiting requests by the policy Rules; None until there are two samples."""
        observation = self.hub.observe("n", "m", now)
        assert observation is not None
        depth = metrics.queue_depth(observation, target=1, replicas=1)
        return depth.value if isinstance(depth, Value) else None

    def planner_queue(self, now: float) -> float | None:
        """Return the waiting requests by the planner."""
        observation = self.hub.snapshot("n", "m", now)
        assert observation is not None
        pods = (PodReading(self.pod, "ready", now, now),)
        result = reading(observation, replicas=1, pods=pods, epoch=WallClock(0.0), memory=self.memory)
        self.memory = result.memory
        return result.reading.waiting


@contextlib.contextmanager
def forwarded(kube: Kube) -> Iterator[str]:
    """Yield the base URL of one operator's dashboard, which listens on localhost."""
    command = [
        str(kube.programs / "kubectl"),
        f"--namespace={SYSTEM}",
        "port-forward",
        "deployment/halcyon",
        f":{PORT}",
    ]
    environment = {**os.environ, "KUBECONFIG": str(kube.kubeconfig)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as forwarding:
        try:
            assert forwarding.stdout is not None
            line = forwarding.stdout.readline()
            match = re.match(r"Forwarding from (127\.0\.0\.1:\d+) ->", line)
            assert match is not None, line
            yield f"http://{match[1]}"
        finally:
            forwarding.terminate()


def shown(url: str, name: str) -> dict[str, Any]:
    """Return the model's row in the dashboard's API."""
    with urllib.request.urlopen(f"{url}/api/models?text={name}", timeout=20) as answer:
        [row] = json.load(answer)["rows"]
    return dict(row)


def read(kube: Kube, pod: dict[str, Any], model: str) -> tuple[float, str]:
    """Return the time at which the pod's page was written, and the page."""
    meta = pod["metadata"]
    began = time.monotonic()
    status, body = kube.raw(
        f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}:{models.TRITON_METRICS_PORT}/proxy/metrics"
    )
    assert status == 200, body
    assert f'{GAUGE}{{model="{model}"' in body.decode()
    return (began + time.monotonic()) / 2, body.decode()


def without(page: str, name: str) -> str:
    """Return the page without a metric."""
    return "\n".join(line for line in page.splitlines() if not line.startswith(name))


@dataclass(frozen=True)
class Comparison:
    """Means over the same times: the shown or computed value, and the one from Triton's counters."""

    name: str
    shown_or_computed: float
    from_triton: float

    @property
    def relative_difference(self) -> float:
        """Difference as a share of Triton's value."""
        return abs(self.shown_or_computed / self.from_triton - 1)


@dataclass(frozen=True)
class Story:
    """Results of the load."""

    report: Report
    compared: dict[str, Comparison]


@pytest.fixture(scope="module")
def story(kube: Kube, served: Callable[..., str]) -> Story:
    """Load a single pod, without scaling, for half a minute, and compare its numbers."""
    name = served(models.variant("counted"))
    [pod] = kube.pods(name, "server")
    counted, estimated = TritonCounters(), EstimatedQueue(name)
    dashboard: list[tuple[float, dict[str, Any]]] = []
    queue: list[tuple[float, float, float]] = []
    load = Load(
        address=kube.must_address(name, models.GRPC_PORT), model=name, clients=CLIENTS, channels=8, duration_s=300
    )
    with forwarded(kube) as url, process.RunningLoad(load) as running:
        began = running.began_s() + 2.0
        full = began + WINDOW_S + 2 * LATE_S
        next_s = began
        while len(dashboard) < SAMPLES:
            time.sleep(max(next_s - time.monotonic(), 0.0))
            next_s = max(next_s + SAMPLE_INTERVAL_S, time.monotonic())
            at, page = read(kube, pod, name)
            counted.add(at, parse_metrics(page, name))
            estimated.receive(at, parse_metrics(without(page, GAUGE), name))
            by_rules, by_planner = estimated.rules_queue(at), estimated.planner_queue(at)
            if at < full:
                continue
            assert by_rules is not None
            assert by_planner is not None
            queue.append((at, by_rules, by_planner))
            row = shown(url, name)
            dashboard.append((time.monotonic(), row))
        at, page = read(kube, pod, name)
        counted.add(at, parse_metrics(page, name))
        report = running.stop()
    return Story(report, {comparison.name: comparison for comparison in _compared(counted, dashboard, queue)})


def _compared(
    counted: TritonCounters, dashboard: list[tuple[float, dict[str, Any]]], queue: list[tuple[float, float, float]]
) -> Iterator[Comparison]:
    latency, batch = [], []
    for at, _ in dashboard:
        begin, end = at - WINDOW_S - LATE_S / 2, at - LATE_S
        spent_us = counted.grown("queue_us", begin, end) + counted.grown("compute_us", begin, end)
        latency.append(spent_us / counted.grown("succeeded", begin, end) / 1000)
        batch.append(counted.grown("rows", begin, end) / counted.grown("executions", begin, end))
    yield Comparison("latency", fmean(row["in_triton"] for _, row in dashboard), fmean(latency))
    rates = [
        counted.grown("succeeded", at - WINDOW_S - LATE_S / 2, at - LATE_S) / (WINDOW_S - LATE_S / 2)
        for at, _ in dashboard
    ]
    yield Comparison("rate", fmean(row["rate"] for _, row in dashboard), fmean(rates))
    yield Comparison("batch", fmean(row["batch"] for _, row in dashboard), fmean(batch))
    for number, (name, window_s) in enumerate((("rules", metrics.WINDOW_S), ("planner", MIN_WINDOW_S)), 1):
        waits = [_waiting(counted, at - window_s - SAMPLE_INTERVAL_S / 2, at - SAMPLE_INTERVAL_S) for at, *_ in queue]
        yield Comparison(name, fmean(sample[number] for sample in queue), fmean(waits))


def _waiting(counted: TritonCounters, begin: float, end: float) -> float:
    return counted.grown("queue_us", begin, end) / (end - begin) / 1e6


def test_many_requests_are_in_triton_at_a_time(story: Story) -> None:
    assert story.report.failed == 0, story.report
    # What is counted is above one second per second, or it would say nothing of the sums of many requests.
    assert story.compared["rules"].from_triton > 4, story


@pytest.mark.parametrize("column", ["latency", "rate", "batch"])
def test_the_dashboard_shows_what_triton_counts(story: Story, column: str) -> None:
    assert story.compared[column].relative_difference < 0.05, story


@pytest.mark.parametrize("policy", ["rules", "planner"])
def test_a_triton_without_the_gauge_has_the_queue_that_its_counters_tell(story: Story, policy: str) -> None:
    assert story.compared[policy].relative_difference < 0.05, story
