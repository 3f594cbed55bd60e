"""A measured capacity through a real API server: into the first decision and the status, or ignored with its reason.

The agent is imitated, as in test_planner, but reports no batches; the pods are KWOK's. The ConfigMap is what `halcyon bench --teach`
writes.
"""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from typing_extensions import override

from e2e.cluster.cluster import Cluster
from halcyon.api.documents.measured_capacity import KEY, MAX_BYTES, MeasuredCapacity, MeasuredLine
from halcyon.api.documents.observation_report import AgentReport, BalancerSample, PodSample
from halcyon.kube import kinds
from halcyon_cli.bench.records import teach
from halcyon_cli.explain.build import report
from halcyon_cli.kube.client import Target
from halcyon_cli.kube.object_writer import ObjectWriter
from tests.integration.autoscaling.test_planner import DIRECT, Load, count, reached, scaling_of
from tests.integration.operator_process import Operator
from tests.integration.operator_space import Object, Space
from tests.integration.waiting import always, rested, until

pytestmark = pytest.mark.more

LINE = MeasuredLine(instances=1, constant_milliseconds=80, per_row_milliseconds=6, max_batch_size=8)
"""62.5 requests/s of a full replica."""


@pytest.fixture(scope="module")
def operator(operator: Operator) -> Operator:
    operator.wait_ready()
    return operator


class UnseenBatches(Load):
    """Requests whose batches no pod has reported yet."""

    @override
    def _record(self, pods: list[str], sender: str) -> str:
        now = time.time()
        last, self._counted = self._counted, now
        self._requests += self.rate * (now - last)
        done = int(self._requests)
        samples = tuple(PodSample(pod, "ready", now, pending=0, succeeded=done, failed=0, rows=done) for pod in pods)
        balancer = BalancerSample(self.waiting, self.waiting, done, rejected=0, errors=0)
        return AgentReport(self._space.namespace, "m", sender, now, balancer, samples).to_json()


def measured(space: Space, *lines: MeasuredLine) -> MeasuredCapacity:
    """What a bench of what serves now has measured."""
    status = space.status()
    return MeasuredCapacity(
        source="bench",
        measured_at="2026-11-28T03:15:00Z",
        revision=status["revision"]["current"],
        image=status["runtimeImage"],
        lines=lines or (LINE,),
    )


def document(space: Space) -> Object:
    """The ConfigMap of that measurement."""
    return teach.config_map(space.must(kinds.MODEL_DEPLOYMENT, "m"), None, measured(space))


def capacity(space: Space) -> dict[str, Any]:
    reported: dict[str, Any] = space.status().get("capacity") or {}
    return reported


def events(space: Space, note: str) -> list[Object]:
    return [e for e in space.events() if (e["reason"], e["note"]) == ("CapacityIgnored", note)]


async def test_a_measured_capacity_decides_the_first_load(operator: Operator, space: Space, cluster: Cluster) -> None:
    space.serve(scaling=DIRECT, traffic={"balancerReplicas": 1})
    writer = ObjectWriter(Target("bench", kubeconfig=cluster.kubeconfig, namespace=space.namespace))
    teach.check_rights(writer)
    for constant in (200.0, 80.0):
        line = LINE.model_copy(update={"constant_milliseconds": constant})
        teach.write(writer, space.must(kinds.MODEL_DEPLOYMENT, "m"), measured(space, line))
    async with UnseenBatches(operator, space) as load:
        shown = await reached(
            lambda: capacity(space),
            lambda reported: reported.get("requestsPerSecond") == "62.5",
            goal="the status has it",
        )
        assert (shown["source"], shown["lines"][0]["constantMilliseconds"]) == ("Bench", "80")
        assert shown["revision"] == space.status()["revision"]["current"]
        assert len(json.dumps(shown)) <= 2048
        at_rest = await asyncio.to_thread(rested, space.versions, for_s=11, every_s=1)
        await asyncio.to_thread(always, space.versions, lambda now: now == at_rest, goal="rest", for_s=10, every_s=1)
        load.rate = 200
        await reached(lambda: count(space), lambda n: 4 <= n <= 7, goal="the load is planned for")
        assert "the capacity of a replica is not known yet" not in scaling_of(space).get("why", "")
        assert capacity(space)["source"] == "Bench"


INVALID: dict[str, tuple[Callable[[Object], str], str]] = {
    "not JSON": (lambda _: "80 + 6 b", "Invalid JSON"),
    "another version": (lambda obj: obj["data"][KEY].replace('"version":1', '"version":2'), "Input should be 1"),
    "above 4 KiB": (lambda obj: obj["data"][KEY] + " " * MAX_BYTES, f"the limit is {MAX_BYTES}"),
    "negative": (lambda obj: obj["data"][KEY].replace('"constantMilliseconds":80.0', '"constantMilliseconds":-80'), "'-80'"),
    "infinite": (lambda obj: obj["data"][KEY].replace('"constantMilliseconds":80.0', '"constantMilliseconds":Infinity'), "'inf'"),
    "another revision": (lambda obj: obj["data"][KEY].replace('"revision":"m-', '"revision":"n-'), "but the model serves with m-"),
}  # fmt: skip


@pytest.mark.usefixtures("operator")
def test_an_invalid_capacity_is_ignored_with_one_event_each(space: Space) -> None:
    space.serve(scaling=DIRECT, traffic={"balancerReplicas": 1})
    good = document(space)
    for kind, (text, reason) in INVALID.items():
        space.apply({**good, "data": {KEY: text(good)}})
        problem = until(lambda: capacity(space).get("ignored", ""), bool, goal=f"{kind} is ignored")
        assert problem.startswith("ConfigMap m-capacity is ignored: ")
        assert reason in problem
        explained = report(space.must(kinds.MODEL_DEPLOYMENT, "m"), datetime.now(UTC)).capacity
        assert explained is not None
        assert problem in explained.describe()
        (event,) = until(lambda problem=problem: events(space, problem), bool, goal="an event has the reason")  # type: ignore[misc]
        assert event["type"] == "Normal"
        space.delete(kinds.CONFIG_MAP, "m-capacity")
        until(lambda: capacity(space).get("ignored"), lambda ignored: ignored is None, goal="it is gone")


@pytest.mark.usefixtures("operator")
def test_a_capacity_of_another_name_teaches_nothing(space: Space) -> None:
    space.serve(scaling=DIRECT, traffic={"balancerReplicas": 1})
    own = document(space)
    space.apply({**own, "metadata": {**own["metadata"], "name": "n-capacity"}})
    always(lambda: capacity(space), lambda reported: not reported, goal="nothing is taught", for_s=3)
    space.apply(own)
    until(lambda: capacity(space).get("source"), lambda source: source == "Bench", goal="its own is taken")
