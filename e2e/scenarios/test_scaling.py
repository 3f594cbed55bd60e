"""The HPA follows the queue and the GPU, up and down, and no request is lost on the way."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from demo import models, scaling
from demo.coldstart import ColdStart
from demo.kube import Kube, wait_for
from demo.models import DIGITS
from demo.scaling import Step
from demo.watch import Watch
from e2e.load.settings import Report

_COUNT = 7


@dataclass(frozen=True)
class Story:
    """Steps of the scenario, in order."""

    queue: Step
    back_s: float
    gpu: Step
    second_back_s: float
    probes: tuple[Report, ...]


@pytest.fixture(scope="module")
def story(kube: Kube, digits: ColdStart) -> Story:  # noqa: ARG001  # what it brings up is all that is wanted
    """Scale up for the queue, down, up for the GPU, and down; about two minutes."""
    probes = scaling.Probes(kube, DIGITS)
    with Watch(kube, DIGITS) as watch, probes:
        scaling.step_down(watch)
        queue = scaling.step_up(kube, watch, scaling.queue_load(kube, DIGITS, duration_s=90), hold_s=3)
        back_s = scaling.step_down(watch)
        gpu = scaling.step_up(kube, watch, scaling.gpu_load(kube, DIGITS, duration_s=90), hold_s=3)
        back_again_s = scaling.step_down(watch)
    return Story(queue, back_s, gpu, back_again_s, tuple(probes.reports))


def test_a_long_queue_adds_replicas(story: Story) -> None:
    assert story.queue.change.after > story.queue.change.before == 1
    assert "queueDepth" in story.queue.reason
    assert story.queue.report.answered > 1000


def test_a_busy_gpu_with_a_short_queue_adds_a_replica(story: Story) -> None:
    assert story.gpu.change.after == 2
    assert "gpuUtilization" in story.gpu.reason
    queue, gpu = story.gpu.change.sample.queue, story.gpu.change.sample.gpu_percent
    assert queue is not None
    assert queue < 16
    assert gpu is not None
    assert gpu > 50


def test_no_request_is_lost_on_the_way_up_and_down(story: Story) -> None:
    reports = (story.queue.report, story.gpu.report, *story.probes)
    assert sum(report.failed for report in reports) == 0, reports
    assert all(report.answered > 100 for report in reports)


def test_batches_form_under_load(story: Story) -> None:
    assert story.queue.mean_batch is not None
    assert story.queue.mean_batch > 4


def test_twenty_applies_of_the_same_file_leave_the_count_that_somebody_set(
    kube: Kube, served: Callable[..., str]
) -> None:
    document = models.variant("sticky", gpus=0)
    del document["spec"]["replicas"]
    name = served(document)
    kube("scale", f"modeldeployment/{name}", f"--replicas={_COUNT}")
    wait_for(lambda: models.ready_servers(kube, name) == _COUNT, goal=f"{_COUNT} servers", limit_s=90)
    before = {pod["metadata"]["uid"] for pod in kube.pods(name, "server")}
    generation = (kube.model(name) or {})["metadata"]["generation"]
    for _ in range(20):
        kube.apply(document)
    model = kube.model(name) or {}
    assert model["spec"]["replicas"] == _COUNT
    assert model["metadata"]["generation"] == generation
    deployment = kube.json(f"/apis/apps/v1/namespaces/{kube.namespace}/deployments/{name}-a") or {}
    assert deployment["spec"]["replicas"] == _COUNT
    assert {pod["metadata"]["uid"] for pod in kube.pods(name, "server")} == before
