"""What a reconcile is told of the scaling: changes of the count, and values that are news."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from halcyon.control.autoscaling.loop import TICK_S
from halcyon.control.autoscaling.model_state import MOVED_FOR_S
from halcyon.control.autoscaling.status_updates import LATE_STATUS_INTERVAL_S, SETTLED_S, STATUS_INTERVAL_S
from halcyon.control.objects.actuator import Actuator
from halcyon.control.status.events import status_events
from halcyon.kube.kinds import Key
from halcyon.scaling.observations import MAX_AGE_S
from halcyon.scaling.policy.decision import MAX_CHANGES, MAX_DECISION_INTERVAL_S, Signal
from halcyon.signals.observation_store import EXPIRE_TIMEOUT_S
from tests.unit.control.autoscaling.autoscaler_simulation import (
    DIGITS,
    Dictated,
    OperatorReplica,
    Running,
    live,
    plan_of,
)


def test_the_last_changes_are_kept_the_newest_first() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        world.model(replicas=1, maxReplicas=50)
        async with Running(world.scaler):
            for desired in range(1, 15):
                dictated.desired[DIGITS] = desired
                world.speak()
                await asyncio.sleep(1.1)
            changes = world.scaler.published(DIGITS).changes
            assert [(c.before, c.after) for c in changes] == [(n - 1, n) for n in range(14, 14 - MAX_CHANGES, -1)]
            assert all(str(c.after) in c.why for c in changes)
            assert len(world.scaling_status()["decisions"]) == MAX_CHANGES

    live(scenario)


def test_the_first_change_of_a_model_is_shown_too() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 5
        world.model(replicas=2)
        async with Running(world.scaler):
            await asyncio.sleep(2)
        assert [(d["before"], d["after"]) for d in world.scaling_status()["decisions"]] == [(2, 5)]

    live(scenario)


def test_replicas_that_the_hpa_writes_are_a_change_with_the_signals() -> None:
    async def scenario(world: OperatorReplica) -> None:
        key = world.model(replicas=2, policy="Rules", maxReplicas=9, targets={"queueDepth": 16})
        async with Running(world.scaler):
            world.speak(queued=40)
            await asyncio.sleep(2)
            assert world.scaling_status().get("decisions") is None
            world.scale(key, 3)
            world.speak(queued=40)
            await asyncio.sleep(2)
        (change,) = world.scaling_status()["decisions"]
        assert (change["before"], change["after"]) == (2, 3)
        assert change["why"].startswith("3 replicas: queueDepth 40 at 16 per replica needs 3")
        assert world.counts() == [], "it is the HPA's to write"

    live(scenario)


def test_a_model_given_to_the_hpas_rules_is_not_scaled_by_that() -> None:
    async def scenario(world: OperatorReplica) -> None:
        key = world.model(replicas=2, actuator=Actuator.HPA, scaling_status={"desired": 2})
        dictated = world.dictate()
        dictated.desired[key] = 1
        async with Running(world.scaler):
            await asyncio.sleep(2)
            assert [(d["before"], d["after"]) for d in world.scaling_status()["decisions"]] == [(2, 1)]
            dictated.desired[key] = None
            world.speak()
            await asyncio.sleep(2)
        assert [(d["before"], d["after"]) for d in world.scaling_status()["decisions"]] == [(2, 1)]

    live(scenario)


def test_a_new_leader_takes_over_the_changes_and_repeats_none() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        key = world.model(replicas=1, scaling_status={"desired": 1})
        async with Running(world.scaler):
            for desired in (3, 5, 4):
                dictated.desired[key] = desired
                world.speak()
                await asyncio.sleep(1.1)
        before = world.scaling_status()
        world.scaler = world.another_scaler()
        world.dictate().desired[key] = 4
        world.scaler.planned(key, plan_of(world.specs[key]))
        async with Running(world.scaler):
            await asyncio.sleep(2)
        after = world.scaling_status()
        assert after["decisions"] == before["decisions"]
        assert status_events({"scaling": before}, {"scaling": after}) == []
        assert [(d["before"], d["after"]) for d in after["decisions"]] == [(5, 4), (3, 5), (1, 3)]

    live(scenario)


def test_a_new_leader_that_decides_otherwise_shows_one_change() -> None:
    async def scenario(world: OperatorReplica) -> None:
        old = {"time": "2025-11-20T10:00:00Z", "before": 1, "after": 4, "why": "so"}
        world.dictate().desired[DIGITS] = 6
        world.model(replicas=4, scaling_status={"desired": 4, "mode": "Active", "decisions": [old]})
        before = world.scaling_status()
        async with Running(world.scaler):
            await asyncio.sleep(2)
        assert [(d["before"], d["after"]) for d in world.scaling_status()["decisions"]] == [(4, 6), (1, 4)]
        (event,) = status_events({"scaling": before}, {"scaling": world.scaling_status()})
        assert (event.reason, event.message.partition(":")[0]) == ("ScaledUp", "desired replicas changed from 4 to 6")

    live(scenario)


def test_a_new_leaders_early_reconcile_keeps_the_status() -> None:
    async def scenario(world: OperatorReplica) -> None:
        old = {"time": "2025-11-20T10:00:00Z", "before": 1, "after": 4, "why": "so"}
        world.dictate().desired[DIGITS] = 4
        key = world.model(replicas=4, actuator=None, scaling_status={"desired": 4, "decisions": [old]})
        async with Running(world.scaler):
            await asyncio.sleep(3)
            world.leadership.is_leader = True
            world._reconcile(key)
            await asyncio.sleep(2 * world.publishes_in_s)
            assert (world.scaling_status()["desired"], world.scaling_status()["decisions"]) == (4, [old])
            await asyncio.sleep(2 * MAX_DECISION_INTERVAL_S)
            assert (world.scaling_status()["desired"], world.scaling_status()["decisions"]) == (4, [old])

    live(scenario, leads=False)


def rate(value: float) -> tuple[Signal, ...]:
    return (Signal("requestRate", value=value),)


@asynccontextmanager
async def steady(world: OperatorReplica, *, for_s: float) -> AsyncIterator[Dictated]:
    """A model with two replicas at 100 requests per second, of which the status has told, for so long."""
    dictated = world.dictate()
    dictated.published[DIGITS] = rate(100)
    world.model(replicas=2)
    async with Running(world.scaler):
        await asyncio.sleep(for_s)
        assert len(world.queued) == 1
        yield dictated


async def report_each_second(world: OperatorReplica, seconds: int) -> None:
    """An agent speaks each second."""
    for _ in range(seconds):
        world.speak()
        await asyncio.sleep(1)


def test_a_value_is_news_when_it_changed_by_a_fifth_since_shown() -> None:
    async def scenario(world: OperatorReplica) -> None:
        async with steady(world, for_s=1) as dictated:
            for value in (90, 110, 119, 85):
                dictated.published[DIGITS] = rate(value)
                await asyncio.sleep(STATUS_INTERVAL_S + MAX_DECISION_INTERVAL_S)
            assert len(world.queued) == 1
            for value in range(200, 1200, 100):
                dictated.published[DIGITS] = rate(value)
                await report_each_second(world, 1)
            times = [at for at, _ in world.queued[1:]]
            assert 1 <= len(times) <= 2
            assert all(later - sooner >= STATUS_INTERVAL_S for sooner, later in pairwise(times))

    live(scenario)


@pytest.mark.parametrize(("stays_s", "more"), [(int(MOVED_FOR_S) - 1, 0), (int(MOVED_FOR_S) + 6, 1)])
def test_a_changed_value_is_shown_when_it_stays(stays_s: int, more: int) -> None:
    async def scenario(world: OperatorReplica) -> None:
        async with steady(world, for_s=STATUS_INTERVAL_S + 1) as dictated:
            dictated.published[DIGITS] = rate(200)
            await report_each_second(world, stays_s)
            dictated.published[DIGITS] = rate(100)
            await report_each_second(world, 5)
            assert len(world.queued) == 1 + more

    live(scenario)


def test_a_signal_that_is_no_longer_missing_is_shown_at_once() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        unknown = Signal("queueDepth", missing="only one report of each balancer so far")
        dictated.published[DIGITS] = (unknown, *rate(100))
        world.model(replicas=2)
        async with Running(world.scaler):
            await asyncio.sleep(1)
            dictated.published[DIGITS] = (Signal("queueDepth", value=0), *rate(100))
            await report_each_second(world, 2)
            assert len(world.queued) == 2
            for _ in range(3):  # a signal that comes and goes isn't shown each time
                for signal in (unknown, Signal("queueDepth", value=0)):
                    dictated.published[DIGITS] = (signal, *rate(100))
                    await report_each_second(world, 1)
            assert len(world.queued) == 2

    live(scenario)


def test_values_are_shown_less_often_if_statuses_are_late() -> None:
    async def scenario(world: OperatorReplica) -> None:
        async with steady(world, for_s=1) as dictated:
            dictated.desired[DIGITS] = 4  # its status comes too late
            await report_each_second(world, 3)
            before = len(world.queued)
            for value in (200, 400, 800):
                dictated.published[DIGITS] = rate(value)
                await report_each_second(world, 8)
            assert len(world.queued) == before
            await asyncio.sleep(LATE_STATUS_INTERVAL_S)
            assert len(world.queued) == before + 1

    live(scenario, publishes_in_s=1.0)


def test_a_value_change_right_before_new_replicas_is_shown_with_them() -> None:
    async def scenario(world: OperatorReplica) -> None:
        async with steady(world, for_s=STATUS_INTERVAL_S + 1) as dictated:
            dictated.published[DIGITS] = rate(200)
            await report_each_second(world, 1)
            assert len(world.queued) == 1
            dictated.desired[DIGITS] = 4
            world.speak()
            await asyncio.sleep(2 * TICK_S)
            assert len(world.queued) == 2

    live(scenario)


@pytest.mark.parametrize("change", ["desired", "current", "unknown"])
def test_changed_replicas_are_news_at_once(change: str) -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        key = world.model(replicas=3, mode="Recommend")
        async with Running(world.scaler):
            await asyncio.sleep(2)
            (first,) = world.queued
            if change == "desired":
                dictated.desired[key] = 4
            elif change == "current":
                world.scale(key, 5)
            else:
                dictated.unknown[key] = "the agents are silent"
            world.speak()
            await asyncio.sleep(2 * TICK_S)
            assert world.queued[0] == first
            assert len(world.queued) == 2

    live(scenario)


def test_a_reconcile_gets_the_mean_batch_that_was_news() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.model(replicas=1)
        async with Running(world.scaler):
            await world.load(80, 30)
            reported, now = world.scaler.reported(DIGITS), world.sensing.reported(DIGITS)
            assert reported is not None
            assert now is not None
            assert replace(reported, mean_batch=now.mean_batch) == now

    live(scenario)


@pytest.mark.parametrize(
    ("scaling", "actuator", "desired"),
    [
        ({}, Actuator.DIRECT, 3),
        ({"policy": "Rules"}, Actuator.DIRECT, 3),
        ({"policy": "Rules"}, Actuator.HPA, None),
    ],
)
def test_signals_that_went_missing_stay_missing_when_the_reports_expire(
    scaling: dict[str, Any], actuator: Actuator, desired: int | None
) -> None:
    async def scenario(world: OperatorReplica) -> None:
        key = world.model(replicas=3, actuator=actuator, maxReplicas=3, **scaling)
        world.model("other")
        async with Running(world.scaler):
            await asyncio.sleep(SETTLED_S + 1)
            await world.load(300, 20)
            await asyncio.sleep(MAX_AGE_S + STATUS_INTERVAL_S)
            before = world.scaler.published(key).decision
            assert before is not None
            assert before.unknown
            for _ in range(int(EXPIRE_TIMEOUT_S) // 10 + 6):
                world.speak(Key("team", "other"))
                await asyncio.sleep(10)
            assert key not in {*world.hub.models()}
            now, published = world.scaler.models[key].decision, world.scaler.published(key).decision
            assert now is not None
            assert now.has_reports
            assert (now.capacity, now.desired, now.policy) == (before.capacity, desired, before.policy)
            assert now.unknown
            assert "no balancer agent has reported yet" not in now.unknown
            assert published == before

            world.scale(key, 2)
            await asyncio.sleep(MAX_DECISION_INTERVAL_S + 1)
            after = world.scaler.published(key).decision
            assert after is not None
            assert after.why == f"2 replicas: {now.unknown}; the replicas stay as they are"

    live(scenario)


def test_the_status_stays_until_reports_can_have_arrived_after_a_slow_start() -> None:
    """Caches took longer than `SETTLED_S` to fill; agents can report only after that."""

    async def scenario(world: OperatorReplica) -> None:
        world.dictate().unknown[DIGITS] = "no balancer agent has reported yet"
        world.model(replicas=2)
        await asyncio.sleep(2 * SETTLED_S)
        assert world.scaler.published(DIGITS).settling
        async with Running(world.scaler):
            await asyncio.sleep(SETTLED_S - 2)
            assert world.scaler.published(DIGITS).settling
            await asyncio.sleep(4)
            assert not world.scaler.published(DIGITS).settling

    live(scenario)


def test_a_standby_has_the_mean_batch_and_requests_no_update() -> None:
    async def scenario(world: OperatorReplica) -> None:
        key = world.model(replicas=1, actuator=None)
        world.sensing.mean_batch = lambda _: 8.0  # type: ignore[method-assign]
        async with Running(world.scaler):
            await world.load(80, 3)
            reported = world.scaler.reported(key)
            assert reported is not None
            assert reported.mean_batch == 8.0
            world.delete(key)
            await asyncio.sleep(STATUS_INTERVAL_S + 1)
            assert world.scaler.updates._batches == {}

    assert live(scenario, leads=False).queued == []
