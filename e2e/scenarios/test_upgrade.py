"""An upgrade of Halcyon and the way back, under load: no model pod restarts, balancers go one by one, no request is lost, and counts stay.

The chart before and the one after are both this one, for a clone of one commit has no other. What makes them two: the version of the chart,
and all three images under another tag, by which the node has the same content. So the operator's pods are replaced, the balancers with
them (the agent is the operator's image), and what the model's pods would be made of anew (the fetcher, and Triton, which the model leaves
to the site) is another thing after the upgrade than it was. What can't be seen so is what a changed operator would do by changed code.
"""

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from demo import models
from demo.coldstart import ColdStart
from demo.kube import SYSTEM, Kube, is_ready, wait_for
from demo.models import GRPC_PORT, HTTP_PORT
from demo.setup import CHART
from e2e.cluster import cluster as clusters
from e2e.cluster import node
from e2e.load.process import RunningLoad
from e2e.load.settings import Load, Report
from e2e.scenarios.conftest import NAME as CLUSTER
from tests import figures

pytestmark = pytest.mark.more

NAME = "upgraded"
BALANCERS = 2
NEXT = "next"
VERSION = "99.0.0"
IMAGES = {"operator": "halcyon-operator:dev", "balancer": "halcyon-balancer:dev", "triton": "tritonserver-cpu:24.10"}
"""Image by key in the chart's values."""
_LIMIT_S = 90
_TIMEOUT = "--timeout=240s"


@dataclass
class PodObservations:
    """States of the model's pods, over all polls."""

    kube: Kube
    fewest_balancers: int = BALANCERS
    most_balancers: int = BALANCERS
    servers: set[tuple[str, str, int]] = field(default_factory=set)
    """Uid, image and restarts of each server pod."""

    def observe(self) -> None:
        balancers = [p for p in self.kube.pods(NAME, "balancer") if not p["metadata"].get("deletionTimestamp")]
        ready = sum(map(is_ready, balancers))
        self.fewest_balancers = min(self.fewest_balancers, ready)
        self.most_balancers = max(self.most_balancers, len(balancers))
        self.servers |= servers(self.kube)


def servers(kube: Kube) -> set[tuple[str, str, int]]:
    return {
        (pod["metadata"]["uid"], status["image"], status["restartCount"])
        for pod in kube.pods(NAME, "server")
        for status in pod["status"]["containerStatuses"]
    }


@contextmanager
def watched(kube: Kube) -> Iterator[PodObservations]:
    """Poll the model's pods several times a second while the block runs."""
    observed, ended = PodObservations(kube), threading.Event()
    errors: list[BaseException] = []

    def poll() -> None:
        try:
            while not ended.wait(0.2):
                observed.observe()
        except BaseException as error:  # noqa: BLE001  # asserted below
            errors.append(error)

    thread = threading.Thread(target=poll, name="poll")
    thread.start()
    try:
        yield observed
    finally:
        ended.set()
        thread.join()
    assert not errors, errors


@contextmanager
def load(kube: Kube) -> Iterator[list[Report]]:
    """Send requests over HTTP with keep-alive and over long-lived gRPC channels, without repeats, and report at the end of the block."""
    common: dict[str, Any] = {"model": NAME, "clients": 6, "pause_s": 0.02, "duration_s": 600, "channels": 2}
    reports: list[Report] = []
    with ExitStack() as stack:
        loads = (
            Load(address=kube.must_address(NAME, HTTP_PORT), protocol="http", **common),
            Load(address=kube.must_address(NAME, GRPC_PORT), protocol="grpc", **common),
        )
        running = [stack.enter_context(RunningLoad(running_load)) for running_load in loads]
        for each in running:
            each.began_s()
        yield reports
        reports += [running_load.stop() for running_load in running]


@pytest.fixture
def next_chart(tmp_path: Path) -> Path:
    """Return the chart with another version."""
    chart = tmp_path / "halcyon"
    shutil.copytree(CHART, chart)
    chart_file = chart / "Chart.yaml"
    lines = [f"version: {VERSION}" if x.startswith("version:") else x for x in chart_file.read_text().splitlines()]
    chart_file.write_text("\n".join(lines) + "\n")
    assert f"version: {VERSION}" in lines
    return chart


@pytest.fixture
def next_images() -> list[str]:
    """Give the images another tag on the node, and return the chart's values for it."""
    cluster = clusters.get(CLUSTER)
    tag = [*node.ctr(cluster.place, cluster.bin), "images", "tag", "--force"]
    for image in IMAGES.values():
        name = f"localhost/{image}"
        subprocess.run([*tag, name, f"{name.rpartition(':')[0]}:{NEXT}"], check=True, capture_output=True)
    return [f"--set-string=images.{image}.tag={NEXT}" for image in IMAGES]


def _model() -> dict[str, Any]:
    document = models.variant(NAME, replicas=1, gpus=0)
    document["spec"]["traffic"] = {"balancerReplicas": BALANCERS, "drainTimeout": "2s"}
    # Triton is left to the site.
    del document["spec"]["runtime"]["image"]
    return document


def _wait_until(kube: Kube, tag: str) -> None:
    """Wait until every balancer has the images of this tag and is ready, and no other is left."""

    def are_replaced() -> bool:
        pods = kube.pods(NAME, "balancer")
        images = {c["image"] for p in pods for c in (*p["spec"]["containers"], *p["spec"].get("initContainers", ()))}
        return len(pods) == BALANCERS and all(map(is_ready, pods)) and {i.rpartition(":")[2] for i in images} == {tag}

    wait_for(are_replaced, goal=f"balancers of {tag}", limit_s=_LIMIT_S)


def _release(kube: Kube) -> dict[str, Any]:
    [release] = json.loads(kube.helm("list", f"--namespace={SYSTEM}", "--output=json"))
    return dict(release)


def test_an_upgrade_and_the_way_back_restart_no_model_and_lose_nothing(
    kube: Kube,
    digits: ColdStart,  # noqa: ARG001  # it comes first
    next_chart: Path,
    next_images: list[str],
) -> None:
    initial_release = _release(kube)
    kube.apply(_model())
    try:
        models.wait_until_served(kube, NAME)
        # A count that is not the manifest's: no upgrade may take it back.
        kube("scale", f"modeldeployment/{NAME}", "--replicas=2")
        models.wait_until_served(kube, NAME, replicas=2)
        _wait_until(kube, "dev")
        before, revision = servers(kube), _revision(kube)
        assert len(before) == 2

        began_s = time.monotonic()
        with watched(kube) as observed, load(kube) as reports:
            kube.helm(
                "upgrade",
                "halcyon",
                str(next_chart),
                f"--namespace={SYSTEM}",
                "--reuse-values",
                "--wait",
                _TIMEOUT,
                *next_images,
            )
            assert _release(kube)["chart"] == f"halcyon-{VERSION}"
            _wait_until(kube, NEXT)
            upgraded_s = time.monotonic() - began_s
            kube.helm(
                "rollback",
                "halcyon",
                initial_release["revision"],
                f"--namespace={SYSTEM}",
                "--wait",
                _TIMEOUT,
            )
            assert _release(kube)["chart"] == initial_release["chart"]
            _wait_until(kube, "dev")
        duration_s = time.monotonic() - began_s

        assert observed.servers == before
        assert _revision(kube) == revision
        assert (observed.fewest_balancers, observed.most_balancers) == (BALANCERS, BALANCERS + 1)
        assert [report.failed for report in reports] == [0, 0], reports
        assert min(report.answered for report in reports) > 100
        figures.record("upgrade", upgraded_s)
        figures.record("upgrade_and_rollback", duration_s)
        figures.record("upgrade_requests", sum(report.answered for report in reports))
    finally:
        models.delete(kube, NAME, wait=False)


def _revision(kube: Kube) -> Any:
    return ((kube.model(NAME) or {}).get("status") or {}).get("revision")
