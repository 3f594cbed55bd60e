"""The capacity by answers, of models whose batch times say nothing about them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from halcyon.scaling.planner.outputs import Plan, PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import Objectives, PodReading, Reading

EPOCH = 1.7e9
AT_ONCE, TAKES_S = 32, 16


def planned(seconds: int, reading: Callable[[int, int], Reading], prior: dict[int, float] | None) -> list[Plan]:
    """The plans of each second; `reading` gets the second and the replicas."""
    memory, plans, replicas = PlannerMemory(), [], 1
    objectives = Objectives(low=1, high=10, batch_prior=prior, start_s=10.0)
    for second in range(seconds):
        new_plan = plan(EPOCH + second, objectives, reading(second, replicas), memory)
        memory, replicas = new_plan.memory, new_plan.count
        plans.append(new_plan)
    return plans


def pods(count: int) -> tuple[PodReading, ...]:
    return tuple(PodReading(number, "ready", EPOCH - 100, EPOCH - 50) for number in range(count))


def single_pod(rate: int) -> Callable[[int, int], Reading]:
    """One pod that executes 32 requests at once, 16 s each. The others never get ready."""

    def reading(second: int, replicas: int) -> Reading:
        ends: list[float] = []
        for request in range(rate * second):
            arrived_at = request / rate
            begins = arrived_at if request < AT_ONCE else max(arrived_at, ends[request - AT_ONCE])
            ends.append(begins + TAKES_S)
        left = [end for end in ends if end > second]
        waits = max(len(left) - AT_ONCE, 0)
        return Reading(
            at=EPOCH + second,
            replicas=replicas,
            arrived=float(rate * second),
            rejected=0.0,
            waiting=float(waits),
            inflight=float(len(left)),
            pods=pods(1),
        )

    return reading


@pytest.mark.parametrize("prior", [{1: 0.0003}, None])
def test_answers_give_the_capacity_where_batch_times_do_not(prior: dict[int, float] | None) -> None:
    last_plan = planned(21, single_pod(4), prior)[-1]
    assert last_plan.memory.evidence.is_in_force
    assert last_plan.memory.evidence.rps == pytest.approx(AT_ONCE / TAKES_S, rel=0.1)
    assert last_plan.count >= 3


def test_the_service_line_is_believed_while_answers_agree_with_it() -> None:
    def reading(second: int, replicas: int) -> Reading:
        return Reading(
            at=EPOCH + second,
            replicas=replicas,
            arrived=10.0 * second,
            rejected=0.0,
            waiting=0.0,
            inflight=1.0,
            pods=pods(1),
        )

    last_plan = planned(120, reading, {1: 0.1})[-1]
    assert not last_plan.memory.evidence.is_in_force
    assert last_plan.memory.evidence.samples == ()


def batched(second: int, replicas: int, batches: dict[int, tuple[int, float]] | None) -> Reading:
    """Return the reading of one pod that answers 20 requests per second, 0.2 s each, in batches of four."""
    return Reading(
        at=EPOCH + second,
        replicas=replicas,
        arrived=20.0 * second,
        rejected=0.0,
        waiting=2.0,
        inflight=6.0,
        batches=batches,
        pods=pods(1),
    )


def test_first_batch_times_that_answers_agree_with_are_used_at_once() -> None:
    def reading(second: int, replicas: int) -> Reading:
        return batched(second, replicas, {4: (5 * second, second)} if second >= 30 else None)

    plans = planned(40, reading, None)
    assert plans[29].memory.evidence.is_in_force
    assert not plans[31].memory.evidence.is_in_force


@pytest.mark.parametrize(("max_batch", "in_force_at"), [(1, 3), (4, 12)])
def test_answers_replace_missing_batch_times_later_if_requests_form_batches(max_batch: int, in_force_at: int) -> None:
    memory, in_force = PlannerMemory(), []
    for second in range(30):
        memory = plan(
            EPOCH + second, Objectives(low=1, high=10, max_batch=max_batch), batched(second, 1, None), memory
        ).memory
        in_force.append(memory.evidence.is_in_force)
    assert in_force.index(True) == in_force_at


def test_pods_that_share_a_limit_are_not_added_for_ever() -> None:
    """Full pods answer two requests per second together, one of them one."""
    done = 0.0

    def reading(second: int, replicas: int) -> Reading:
        nonlocal done
        ready = replicas if second > 15 else 1
        done += min(ready, 2) if second else 0
        inside = 4.0 * second - done
        return Reading(
            at=EPOCH + second,
            replicas=replicas,
            arrived=4.0 * second,
            rejected=0.0,
            waiting=max(inside - ready, 0.0),
            inflight=inside,
            pods=pods(ready),
        )

    plans = planned(700, reading, {1: 0.0003})
    assert {plan.count for plan in plans[100:]} == {3}
    assert [limit.name for limit in plans[-1].limits] == ["shared"]


@pytest.mark.parametrize(
    ("used", "source"), [(0.97, "EngineMetrics"), (0.5, "")], ids=["its cache is full", "it has room"]
)
def test_a_full_engine_shows_what_a_pod_can_do(used: float, source: str) -> None:
    """The engine takes all requests, so none wait. It answers two per second, so they take longer if there are more."""
    done = 0.0

    def reading(second: int, replicas: int) -> Reading:
        nonlocal done
        arrived = 2.0 * second + 8 * (second > 20)
        done = max(done, min(arrived - 4, 2.0 * (second - 2)), 0.0)
        return Reading(
            at=EPOCH + second,
            replicas=replicas,
            arrived=arrived,
            rejected=0.0,
            waiting=0.0,
            inflight=arrived - done,
            queued=0.0,
            engine_used=used if second > 20 else 0.2,
            pods=pods(1),
        )

    evidence = planned(60, reading, {1: 0.0003})[-1].memory.evidence
    assert (evidence.found_by, evidence.is_in_force) == (source, True)
    assert evidence.rps == (pytest.approx(2.0, rel=0.1) if source else None)
