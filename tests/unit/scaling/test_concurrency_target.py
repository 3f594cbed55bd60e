"""The target of requests in progress, with both policies."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import parse
from halcyon.render import hpa
from halcyon.render.site import Subject
from halcyon.scaling.hpa import metrics
from halcyon.scaling.hpa.algorithm import signal_proposals
from halcyon.scaling.observations import BalancerObservation, BalancerPoint, Missing, Observation, Value
from halcyon.scaling.planner.objectives import objectives
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import PodReading, Reading


def spec(**targets: Any) -> Spec:
    source = {"persistentVolumeClaim": {"claimName": "m"}}
    scaling = {"minReplicas": 1, "maxReplicas": 8, "policy": "Rules", "targets": targets}
    return parse("digits", {"model": {"source": source}, "scaling": scaling})


def observed(*balancers: tuple[float, float]) -> Observation:
    """Return 20 s of samples of balancers, each with (waiting, in progress)."""
    seen = tuple(
        BalancerObservation(
            f"b{number}",
            tuple(BalancerPoint(float(at), queued, inflight, 10.0 * at, 0.0, 0.0, at - 1.0) for at in range(21)),
        )
        for number, (queued, inflight) in enumerate(balancers)
    )
    return Observation(20.0, balancers=seen)


def test_requests_of_all_balancers_count() -> None:
    read = metrics.read(observed((6, 30), (0, 12)), targets=defaults.targets(spec(concurrency=16)), replicas=2)
    assert isinstance(read.concurrency, Value)
    assert read.concurrency.value == pytest.approx(48)


def test_the_target_that_needs_most_replicas_decides() -> None:
    targets = defaults.targets(spec(concurrency=16, queueDepth=8))
    read = metrics.RulesReading(0.0, 2, Value(8.0, 0.0), None, concurrency=Value(48.0, 0.0))
    proposals = {proposal.name: proposal.proposal for proposal in signal_proposals(read, targets)}
    assert proposals == {"queueDepth": 1, "concurrency": 3}


def test_without_the_target_nothing_is_measured() -> None:
    read = metrics.read(observed((6, 30)), targets=defaults.targets(spec()), replicas=2)
    assert read.concurrency is None
    assert [proposal.name for proposal in signal_proposals(read, defaults.targets(spec()))] == ["queueDepth"]


def test_a_missing_value_is_not_zero() -> None:
    read = metrics.read(Observation(20.0), targets=defaults.targets(spec(concurrency=16)), replicas=2)
    assert isinstance(read.concurrency, Missing)


def test_the_hpa_has_the_metric() -> None:
    document = hpa.hpa(Subject("team", "digits", "uid"), spec(concurrency=16), tolerance=True)
    named = {
        metric["external"]["metric"]["name"]: metric["external"]["target"] for metric in document["spec"]["metrics"]
    }
    assert named["concurrency"] == {"type": "AverageValue", "averageValue": "16"}


def test_the_planner_has_the_target() -> None:
    assert objectives(spec(concurrency=16, latency="1s")).concurrency == 16


@pytest.mark.parametrize(("target", "count", "winner"), [(16, 3, "concurrency"), (100, 1, "rate")])
def test_the_planner_holds_both_targets_and_names_the_one_that_decides(target: int, count: int, winner: str) -> None:
    aims = objectives(spec(concurrency=target, latency="10s"))
    memory = PlannerMemory()
    for second in range(90):
        batches = {1: (20 * second, 0.02 * 20 * second)}
        pods = (PodReading("p", "ready", 0.0, 0.0),)
        reading = Reading(float(second), 1, 20.0 * second, 0.0, 40.0, batches=batches, pods=pods, concurrency=48.0)
        new_plan = plan(float(second), aims, reading, memory)
        memory = new_plan.memory
    assert (new_plan.count, new_plan.winner) == (count, winner), new_plan.describe()
    texts = {part.name: str(part.text) for part in new_plan.parts}
    assert texts["concurrency"] == f"48 in progress at {target} per replica needs {count}"
