"""The policy Planner on real pods: a model's capacity is learnt, a step is answered before the HPA asks, zero and back."""

import contextlib
import io
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from demo import models
from demo.kube import PATIENCE, Kube, wait_for
from demo.models import GRPC_PORT
from demo.watch import Change, Watch
from e2e.load.process import RunningLoad
from e2e.load.settings import Load, Report
from e2e.scenarios.calm import scaling, wait_until_calm
from halcyon.main import main

pytestmark = pytest.mark.more

NAME = "planned"
CALM_RPS, STEP_RPS = 25.0, 130.0
LATENCY_MS = 600
STEP_S = 60.0
"""Minimum duration of the step."""


@dataclass(frozen=True)
class Story:
    """Events of the scenario, in order."""

    before: dict[str, Any]
    """The model's status when capacity was known."""
    change: Change
    to_scale_s: float
    scaled: dict[str, Any]
    """Its status under the step."""
    capacities: list[float]
    """Requests per second of one replica, as the planner has measured it until then under the step."""
    explained: str
    report: Report
    idle_s: float
    """Time from the end of the load until no replica was left."""
    wake_s: float
    """Time from the first request until there was a replica again."""
    woken: Report
    """Report on the requests that arrived at zero replicas, and later."""


def document() -> dict[str, Any]:
    """Return digits with a batch of b in 80 + 6 b ms: 62 requests per second of one replica at most."""
    deployment = models.variant(NAME, gpus=0)
    spec = deployment["spec"]
    spec["model"]["parameters"] = {"gpu_ms": "80", "gpu_ms_per_row": "6"}
    spec["batching"] = {"maxBatchSize": 8, "maxQueueDelay": "2ms"}
    spec["scaling"] = {
        "minReplicas": 0,
        "maxReplicas": 5,
        "idleTimeout": "15s",
        "targets": {"latency": f"{LATENCY_MS}ms"},
    }
    return deployment


@pytest.fixture(scope="module")
def story(kube: Kube, served: Callable[..., str]) -> Story:
    """Send calm load, a step to five times as much, nothing, then a few requests; about three minutes."""
    served(document())
    address = kube.must_address(NAME, GRPC_PORT)

    def load(rate_rps: float, duration_s: float) -> Load:
        return Load(address=address, model=NAME, rate_rps=rate_rps, duration_s=duration_s, clients=2000, channels=8)

    with Watch(kube, NAME) as watch:
        with RunningLoad(load(CALM_RPS, 600)) as calm:
            before = wait_until_calm(kube, NAME, CALM_RPS)
            calm.stop()
        with RunningLoad(load(STEP_RPS, 600)) as running:
            began_s = running.began_s()
            capacities: list[float] = []

            def are_ready() -> bool:
                capacities.extend(capacity(kube))
                return models.ready_servers(kube, NAME) > 2

            wait_for(lambda: watch.first_change(since_s=began_s, up=True) is not None, goal="it is raised", limit_s=30)
            wait_for(are_ready, goal="three are ready", limit_s=30)
            scaled = settled(kube)
            capacities.extend(capacity(kube))
            explained = explain(kube)
            # What is lost on the way is a share of all: the way may take its time here.
            time.sleep(max(began_s + STEP_S - time.monotonic(), 0.0))
            report = running.stop()
        change = watch.first_change(since_s=began_s, up=True)
        assert change is not None
        idle_s = wait_for(lambda: count(kube) == 0, goal="none is left", limit_s=60)
        wait_for(lambda: not kube.pods(NAME, "server"), goal="the pods are gone", limit_s=60)
        with RunningLoad(load(2, 20)) as waking:
            wake_began_s = waking.began_s()
            wait_for(
                lambda: watch.first_change(since_s=wake_began_s, up=True) is not None, goal="one comes", limit_s=20
            )
            up = watch.first_change(since_s=wake_began_s, up=True)
            woken = waking.wait()
        assert up is not None
    return Story(
        before,
        change,
        change.sample.at_s - began_s,
        scaled,
        capacities,
        explained,
        report,
        idle_s,
        up.sample.at_s - wake_began_s,
        woken,
    )


def settled(kube: Kube) -> dict[str, Any]:
    """Wait until the replicas are the desired ones, and return status.scaling."""
    statuses: list[dict[str, Any]] = []

    def is_settled() -> bool:
        statuses.append(scaling(kube, NAME))
        return "desired" in statuses[-1] and statuses[-1].get("current") == statuses[-1]["desired"]

    wait_for(is_settled, goal="the status follows", limit_s=20)
    return statuses[-1]


def capacity(kube: Kube) -> list[float]:
    """Return the requests per second of a replica in status.capacity; empty if unknown."""
    rate_rps = ((kube.model(NAME) or {}).get("status") or {}).get("capacity", {}).get("requestsPerSecond")
    return [] if rate_rps is None else [float(rate_rps)]


def count(kube: Kube) -> int:
    return int((kube.model(NAME) or {})["spec"]["replicas"])


def explain(kube: Kube) -> str:
    """Return the output of `halcyon explain`."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main(["explain", NAME, "-n", kube.namespace, "--kubeconfig", str(kube.kubeconfig), "--no-color"]) == 0
    return output.getvalue()


def test_capacity_is_learnt_from_the_batches_that_run(story: Story) -> None:
    assert story.before["policy"] == "Planner"
    assert story.before["actuator"] == "HPA"
    assert "per replica needs 1" in story.before["why"]


def test_a_step_is_answered_before_the_hpa_asks(story: Story) -> None:
    assert story.to_scale_s < 6 * PATIENCE, story
    assert story.change.after > story.change.before == 1


def test_the_count_fits_the_load_and_not_the_queue(story: Story) -> None:
    # A replica answers 62 req/s at most, and fewer if other processes take the CPU, which the planner has measured by then. So the bounds
    # are those of the measured capacity: 3 to 4 on an idle machine, where the queue of the first seconds would need all of the 5.
    quickest, slowest = min(max(story.capacities), 62.0), min(story.capacities)
    fewest, most = math.ceil(STEP_RPS / quickest), math.ceil(STEP_RPS / slowest) + 1
    assert min(fewest, 5) <= story.scaled["desired"] <= min(most, 5), (story.scaled, story.capacities)
    assert "req/s" in story.scaled["why"]


def test_explain_tells_it_to_a_person(story: Story) -> None:
    assert NAME in story.explained
    assert "requestRate" in story.explained
    assert "1 -> " in story.explained


def test_most_requests_of_the_step_are_answered(story: Story) -> None:
    sent = story.report.answered + story.report.failed
    assert sent > 3000
    assert story.report.failed < 0.2 * sent, story.report


def test_nobody_asks_and_none_is_left_somebody_asks_and_one_comes(story: Story) -> None:
    assert 10 < story.idle_s < 40 * PATIENCE
    assert story.wake_s < 5 * PATIENCE


def test_who_asks_while_none_is_there_waits_and_is_answered(story: Story) -> None:
    assert story.woken.failed == 0, story.woken
    assert story.woken.answered > 20
    assert story.woken.most_ms is not None
    assert story.woken.most_ms > 1000
