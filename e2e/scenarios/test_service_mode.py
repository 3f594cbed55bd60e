"""Models without balancers, on real pods: channels find pods that come later, nobody notices one that goes, the planner still knows.

The operator reads these pods itself; in the other scenarios agents do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from demo import models
from demo.kube import Kube, wait_for
from demo.models import GRPC_PORT
from e2e.load.process import RunningLoad
from e2e.load.settings import Load, Report
from e2e.scenarios.calm import wait_until_calm

pytestmark = pytest.mark.more

NAME = "plain"
DRAIN_S = 9
AGE_S = 6
"""Maximum age of a channel, which follows the drain."""
CALM_RPS, STEP_RPS = 25.0, 130.0


@dataclass(frozen=True)
class Story:
    """Steps of the scenario, in order."""

    calm: dict[str, Any]
    """status.scaling, when capacity was known."""
    step: Report
    """Report of two channels, while pods were added."""
    evicted: str
    after: Report
    """Report of two channels, while that pod was deleted."""


def document() -> dict[str, Any]:
    """Return digits with a batch of b in 80 + 6 b ms: 62 requests per second of one replica at most."""
    deployment = models.variant(NAME, gpus=0)
    spec = deployment["spec"]
    spec["model"]["parameters"] = {"gpu_ms": "80", "gpu_ms_per_row": "6"}
    spec["batching"] = {"maxBatchSize": 8, "maxQueueDelay": "2ms"}
    spec["scaling"] = {"minReplicas": 1, "maxReplicas": 3, "targets": {"latency": "600ms"}}
    spec["traffic"] = {"mode": "Direct", "drainTimeout": f"{DRAIN_S}s"}
    return deployment


@pytest.fixture(scope="module")
def story(kube: Kube, served: Callable[..., str]) -> Story:
    """Send calm load, a step, and evict a pod under it; about a minute and a half."""
    served(document())
    address = kube.must_address(NAME, GRPC_PORT)

    def load(rate_rps: float) -> Load:
        return Load(
            address=address, model=NAME, rate_rps=rate_rps, duration_s=600, clients=4096, channels=2, timeout_s=120
        )

    with RunningLoad(load(CALM_RPS)) as running:
        calm = wait_until_calm(kube, NAME, CALM_RPS)
        running.stop()
    with RunningLoad(load(STEP_RPS)) as running:
        wait_for(lambda: models.ready_servers(kube, NAME) == 3, goal="three are ready", limit_s=60)
        wait_for(lambda: running.done or len(answering_pods(kube)) == 3, goal="all receive requests", limit_s=3 * AGE_S)
        step = running.stop()
    with RunningLoad(load(STEP_RPS / 2)) as running:
        running.began_s()
        evicted = receiving_pod(kube)
        kube("delete", "pod", evicted, "--wait=false")
        wait_for(lambda: evicted not in names(kube), goal=f"{evicted} is gone", limit_s=60)
        after = running.stop()
    return Story(calm, step, evicted, after)


def names(kube: Kube) -> set[str]:
    return {pod["metadata"]["name"] for pod in kube.pods(NAME, "server")}


def answering_pods(kube: Kube) -> set[str]:
    """Return the pods that have answered requests."""
    return {pod for pod, (requests, _) in models.triton_counts(kube, NAME).items() if requests}


def receiving_pod(kube: Kube) -> str:
    """Return a pod that receives requests: two channels may use one pod of three, and the deletion of another would show nothing."""
    before = models.triton_counts(kube, NAME)

    def rising() -> list[str]:
        current = models.triton_counts(kube, NAME)
        return sorted(pod for pod, (requests, _) in current.items() if requests > before.get(pod, (0.0, 0.0))[0])

    wait_for(lambda: bool(rising()), goal="a pod receives requests", limit_s=10)
    return rising()[0]


def test_the_planner_knows_what_comes_though_no_agent_tells(story: Story) -> None:
    assert {signal["source"] for signal in story.calm["signals"] if signal["name"] != "gpuUtilization"} == {"scrape"}


def test_two_channels_find_the_pods_that_came_later(story: Story) -> None:
    assert story.step.failures == {}
    assert len(story.step.who) >= 2, story.step


def test_a_pod_that_goes_costs_no_request_of_a_channel(story: Story) -> None:
    assert story.after.failures == {}
    assert story.after.answered > 100
    assert story.evicted in story.after.who
    assert len(story.after.who) >= 2, story.after
