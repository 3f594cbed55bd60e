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
LOOK_S = 1.0
"""As often as an agent looks, so that a window has the same rows."""
LATE_S = 1.5
"""Growth counts with the look that confirms it, and the last look is half a second old in the mean."""
LOOKS = 15
PORT = 8090


@dataclass
class Counted:
    """Triton's own page, read again and again."""

    at: list[float] = field(default_factory=list)
    pages: list[Metrics] = field(default_factory=list)

    def add(self, at: float, page: Metrics) -> None:
        """One more look."""
        self.at.append(at)
        self.pages.append(page)

    def grown(self, name: str, begin: float, end: float) -> float:
        """By how much a counter grew from one time to another; between two looks in proportion."""
        return self._value(name, end) - self._value(name, begin)

    def _value(self, name: str, at: float) -> float:
        after = min(max(bisect_left(self.at, at), 1), len(self.at) - 1)
        low, high = (float(getattr(self.pages[n], name)) for n in (after - 1, after))
        begin, end = self.at[after - 1], self.at[after]
        return low + (high - low) * (at - begin) / (end - begin)


@dataclass
class Withheld:
    """What is reckoned from the same pages where they lack the gauge, as an agent would tell of them."""

    pod: str
    hub: ObservationStore = field(default_factory=ObservationStore)
    memory: SignalMemory = field(default_factory=SignalMemory)

    def hear(self, at: float, page: Metrics) -> None:
        """One look, told at once."""
        assert page.pending is None
        sample = PodSample(self.pod, "ready", at, **vars(page))
        balancer = BalancerSample(queued=0, inflight=CLIENTS, requests=page.succeeded or 0, rejected=0, errors=0)
        self.hub.receive(AgentReport("n", "m", "agent", at, balancer, (sample,)), at)

    def ruled(self, now: float) -> float | None:
        """Requests that wait, by the policy Rules; None until two looks have said it."""
        observation = self.hub.observe("n", "m", now)
        assert observation is not None
        found = metrics.queue_depth(observation, target=1, replicas=1)
        return found.value if isinstance(found, Value) else None

    def planned(self, now: float) -> float | None:
        """Requests that wait, by the planner."""
        picture = self.hub.snapshot("n", "m", now)
        assert picture is not None
        pods = (PodReading(self.pod, "ready", now, now),)
        gathered = reading(picture, replicas=1, pods=pods, epoch=WallClock(0.0), memory=self.memory)
        self.memory = gathered.memory
        return gathered.reading.waiting


@contextlib.contextmanager
def forwarded(kube: Kube) -> Iterator[str]:
    """Base URL of one operator's dashboard, which listens on localhost."""
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
            told = forwarding.stdout.readline()
            found = re.match(r"Forwarding from (127\.0\.0\.1:\d+) ->", told)
            assert found is not None, told
            yield f"http://{found[1]}"
        finally:
            forwarding.terminate()


def shown(url: str, name: str) -> dict[str, Any]:
    """The model's row in the dashboard's API."""
    with urllib.request.urlopen(f"{url}/api/models?text={name}", timeout=20) as answer:
        [row] = json.load(answer)["rows"]
    return dict(row)


def read(kube: Kube, pod: dict[str, Any], model: str) -> tuple[float, str]:
    """The pod's page, and when it was written."""
    meta = pod["metadata"]
    began = time.monotonic()
    status, body = kube.raw(
        f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}:{models.TRITON_METRICS_PORT}/proxy/metrics"
    )
    assert status == 200, body
    assert f'{GAUGE}{{model="{model}"' in body.decode()
    return (began + time.monotonic()) / 2, body.decode()


def without(page: str, name: str) -> str:
    """The page without a metric."""
    return "\n".join(line for line in page.splitlines() if not line.startswith(name))


@dataclass(frozen=True)
class Compared:
    """Means over the same times: what is shown or reckoned, and what Triton counted."""

    name: str
    ours: float
    tritons: float

    @property
    def off(self) -> float:
        """Share by which they differ."""
        return abs(self.ours / self.tritons - 1)


@dataclass(frozen=True)
class Story:
    """What came of the load."""

    report: Report
    compared: dict[str, Compared]


@pytest.fixture(scope="module")
def story(kube: Kube, served: Callable[..., str]) -> Story:
    """A pod with as many requests as it takes; half a minute. Without scaling, so that it is the only one."""
    name = served(models.variant("counted"))
    [pod] = kube.pods(name, "server")
    counted, withheld = Counted(), Withheld(name)
    dashboard: list[tuple[float, dict[str, Any]]] = []
    queue: list[tuple[float, float, float]] = []
    load = Load(
        address=kube.must_address(name, models.GRPC_PORT), model=name, clients=CLIENTS, channels=8, duration_s=300
    )
    with forwarded(kube) as url, process.RunningLoad(load) as running:
        began = running.began_s() + 2.0
        full = began + WINDOW_S + 2 * LATE_S
        next_s = began
        while len(dashboard) < LOOKS:
            time.sleep(max(next_s - time.monotonic(), 0.0))
            next_s = max(next_s + LOOK_S, time.monotonic())
            at, page = read(kube, pod, name)
            counted.add(at, parse_metrics(page, name))
            withheld.hear(at, parse_metrics(without(page, GAUGE), name))
            ruled, planned = withheld.ruled(at), withheld.planned(at)
            if at < full:
                continue
            assert ruled is not None
            assert planned is not None
            queue.append((at, ruled, planned))
            row = shown(url, name)
            dashboard.append((time.monotonic(), row))
        at, page = read(kube, pod, name)
        counted.add(at, parse_metrics(page, name))
        report = running.stop()
    return Story(report, {one.name: one for one in _compared(counted, dashboard, queue)})


def _compared(
    counted: Counted, dashboard: list[tuple[float, dict[str, Any]]], queue: list[tuple[float, float, float]]
) -> Iterator[Compared]:
    latency, batch = [], []
    for at, _ in dashboard:
        begin, end = at - WINDOW_S - LATE_S / 2, at - LATE_S
        spent_us = counted.grown("queue_us", begin, end) + counted.grown("compute_us", begin, end)
        latency.append(spent_us / counted.grown("succeeded", begin, end) / 1000)
        batch.append(counted.grown("rows", begin, end) / counted.grown("executions", begin, end))
    yield Compared("latency", fmean(row["in_triton"] for _, row in dashboard), fmean(latency))
    rates = [
        counted.grown("succeeded", at - WINDOW_S - LATE_S / 2, at - LATE_S) / (WINDOW_S - LATE_S / 2)
        for at, _ in dashboard
    ]
    yield Compared("rate", fmean(row["rate"] for _, row in dashboard), fmean(rates))
    yield Compared("batch", fmean(row["batch"] for _, row in dashboard), fmean(batch))
    for number, (name, window_s) in enumerate((("rules", metrics.WINDOW_S), ("planner", MIN_WINDOW_S)), 1):
        waits = [_waiting(counted, at - window_s - LOOK_S / 2, at - LOOK_S) for at, *_ in queue]
        yield Compared(name, fmean(one[number] for one in queue), fmean(waits))


def _waiting(counted: Counted, begin: float, end: float) -> float:
    return counted.grown("queue_us", begin, end) / (end - begin) / 1e6


def test_many_requests_are_in_triton_at_a_time(story: Story) -> None:
    assert story.report.failed == 0, story.report
    # What is counted is above one second per second, or it would say nothing of the sums of many requests.
    assert story.compared["rules"].tritons > 4, story


@pytest.mark.parametrize("column", ["latency", "rate", "batch"])
def test_the_dashboard_shows_what_triton_counts(story: Story, column: str) -> None:
    assert story.compared[column].off < 0.05, story


@pytest.mark.parametrize("policy", ["rules", "planner"])
def test_a_triton_without_the_gauge_has_the_queue_that_its_counters_tell(story: Story, policy: str) -> None:
    assert story.compared[policy].off < 0.05, story
