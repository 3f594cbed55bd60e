"""Who is decided for and when, by a leader and by a standby, and what is forgotten."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from halcyon.control.autoscaling.loop import SLICE_S, TICK_S
from halcyon.control.autoscaling.model_state import ages_s
from halcyon.control.autoscaling.scale_writer import PUBLISHED_WITHIN_S
from halcyon.control.objects.actuator import Actuator
from halcyon.kube import kinds
from halcyon.kube.kinds import Key, Kind, Object
from halcyon.scaling.observations import MAX_AGE_S
from halcyon.scaling.planner.outputs import PlannerMemory
from halcyon.scaling.policy.decision import MAX_DECISION_INTERVAL_S, MIN_DECISION_INTERVAL_S
from halcyon.signals.store_state import MIN_CONFIRM_INTERVAL_S
from tests.unit.control.autoscaling.autoscaler_simulation import (
    DIGITS,
    OperatorReplica,
    Running,
    holds,
    live,
    plan_of,
    served,
)
from tests.unit.kube.virtual_time import VirtualTime, run

HPA, DIRECT = Actuator.HPA, Actuator.DIRECT
NEW = {"uid": "another", "resourceVersion": "9999"}


def test_a_failing_decision_stops_no_other_and_its_signals_go_stale() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        dictated.desired |= {DIGITS: 3, Key("team", "other"): 3}
        world.model(replicas=2)
        other = world.model("other", replicas=2)
        async with Running(world.scaler):
            await asyncio.sleep(1)
            decided = world.scaler.decisions
            dictated.desired |= {DIGITS: ValueError("a surprise"), other: 4}
            await asyncio.sleep(MAX_AGE_S - 2)
            assert await served(world) == 3
            await asyncio.sleep(MAX_DECISION_INTERVAL_S)
            assert "s old; the limit is 10 s" in str(await served(world))
            assert await served(world, other) == 4
            dictated.desired[DIGITS] = 5
            await asyncio.sleep(MAX_DECISION_INTERVAL_S + 1)
            assert await served(world) == 5
            assert world.scaler.decisions > decided + 2

    world = live(scenario)

    assert world.counts() == [3, 5]
    assert world.counts(Key("team", "other")) == [3, 4]


def test_a_decision_that_fails_from_the_beginning_has_an_age() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        dictated.desired[DIGITS] = ValueError("a surprise")
        world.model()
        world.model("other")

        def ages() -> list[float]:
            return list(ages_s(world.scaler.models, world.time()))

        async with Running(world.scaler):
            await asyncio.sleep(90)
            assert max(ages()) == pytest.approx(90, abs=2 * MAX_DECISION_INTERVAL_S)
            assert min(ages()) <= MAX_DECISION_INTERVAL_S + 1
            dictated.desired[DIGITS] = 2
            await asyncio.sleep(2 * MAX_DECISION_INTERVAL_S)
            assert max(ages()) <= MAX_DECISION_INTERVAL_S + 1

    live(scenario)


def test_a_model_whose_decision_fails_is_tried_no_more_often_than_others() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        dictated.desired[DIGITS] = ValueError("a surprise")
        world.model()
        async with Running(world.scaler):
            for _ in range(400):
                world.speak()
                await asyncio.sleep(0.05)
        times = [at for at, _ in dictated.calls]
        assert len(times) >= 4
        assert min(later - sooner for sooner, later in pairwise(times)) >= MIN_CONFIRM_INTERVAL_S - TICK_S

    live(scenario)


def test_a_standby_decides_and_writes_nothing() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        dictated.desired[DIGITS] = 7
        world.model(replicas=2, actuator=None, scaling_status={"desired": 4})
        async with Running(world.scaler):
            await asyncio.sleep(3)
            assert dictated.calls
            assert await served(world) == 4
            world.leadership.has_leader = False
            assert await served(world) == 7

    world = live(scenario, leads=False)

    assert (world.writes, world.queued) == ([], [])


def test_a_standby_drops_a_model_without_scaling_and_its_decision() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate()
        key = world.model(actuator=None)
        async with Running(world.scaler):
            await asyncio.sleep(3)
            assert world.scaler.models[key].decision is not None
            world.specs[key] = world.specs[key].model_copy(update={"scaling": None})
            await asyncio.sleep(MAX_DECISION_INTERVAL_S + 2)
            assert world.scaler.models == {}

    live(scenario, leads=False)


def test_a_standby_serves_nothing_before_the_leader_has_published() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate()
        world.model(actuator=None)
        async with Running(world.scaler):
            await asyncio.sleep(3)
            assert await served(world) == "the leader has decided nothing yet"

    live(scenario, leads=False)


def test_the_leaders_writes_are_no_changes_by_others_for_a_standby() -> None:
    """The standby decides otherwise at each of them, and then becomes the leader."""

    async def scenario(world: OperatorReplica) -> None:
        desired = world.dictate().desired
        key = world.model(replicas=2, maxReplicas=100, actuator=None)
        async with Running(world.scaler):
            for replicas in (4, 8, 12, 16, 20):
                desired[key] = replicas - 1
                await asyncio.sleep(2 * MAX_DECISION_INTERVAL_S)
                world.scale(key, replicas, by="")
            await asyncio.sleep(2 * MAX_DECISION_INTERVAL_S)
            assert world.scaler.models[key].external_writer == ""
            world.leadership.is_leader = True
            desired[key] = 30
            world.scaler.planned(key, plan_of(world.specs[key]))
            await asyncio.sleep(2 * MAX_DECISION_INTERVAL_S)
            assert world.counts() == [30]

    live(scenario, leads=False)


def test_a_standby_offers_no_memories_which_only_a_leaders_store_drops_again() -> None:
    offered: list[Key] = []

    class Memories:
        def offer(self, key: Key, _uid: str, _memory: PlannerMemory, /) -> None:
            offered.append(key)

    async def scenario(world: OperatorReplica) -> None:
        world.scaler.memories = Memories()
        key = world.model(actuator=None)
        async with Running(world.scaler):
            await world.load(40, 5)
            assert world.scaler.decider.memory(key) is not None
            assert offered == []
            world.leadership.is_leader = True
            await world.load(40, 2)
            assert set(offered) == {key}

    live(scenario, leads=False)


def test_a_conflict_continues_when_a_standby_becomes_the_leader() -> None:
    async def scenario(world: OperatorReplica) -> None:
        desired = world.dictate().desired
        key = world.model(replicas=2, actuator=None, scaling_status={"desired": 6, "current": 2})
        address = (kinds.MODEL_DEPLOYMENT, key.namespace, key.name)
        message = "field manager argocd has changed spec.replicas 3 times within 5 min, most recently to 2; ..."
        conflict = {"type": "AutoscalerConflict", "status": "True", "reason": "ExternalWriter", "message": message}
        resource = world.kube.objects[address]
        world.store(world.kube._put(address, resource | {"status": resource["status"] | {"conditions": [conflict]}}))
        desired[key] = 6
        async with Running(world.scaler):
            await asyncio.sleep(MAX_DECISION_INTERVAL_S)
            assert (world.scaler.published(key).external_writer, await served(world)) == (message, 2)
            world.leadership.is_leader = True
            world.scaler.planned(key, plan_of(world.specs[key]))
            await asyncio.sleep(3 * MAX_DECISION_INTERVAL_S)
            assert world.scaler.published(key).external_writer.startswith("field manager argocd has changed")
            assert world.counts() == []

    live(scenario, leads=False)


def test_replicas_of_a_stopped_model_are_not_written() -> None:
    """A reconcile has seen an external HPA while the write waits for the status."""

    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 1
        key = world.model(replicas=4, actuator=DIRECT)
        async with Running(world.scaler):
            await asyncio.sleep(3 * TICK_S)
            world.scaler.planned(key, plan_of(world.specs[key], Actuator.NONE))
            await asyncio.sleep(5)

    assert live(scenario, publishes_in_s=0.5).counts() == []


def test_a_model_stopped_during_a_round_is_not_decided_in_it() -> None:
    async def scenario(time: VirtualTime) -> None:
        spent = 0.0
        world = OperatorReplica(lambda: time() + spent)
        dictated = world.dictate()
        for number in range(3):
            world.model(f"m{number}")

        def think() -> None:
            nonlocal spent
            spent += 2 * SLICE_S
            asyncio.get_running_loop().call_soon(world.scaler.stop, Key("team", "m1"))

        dictated.thinks = think
        await world.scaler._round()
        assert [key.name for _, key in dictated.calls] == ["m0", "m2"]

    run(scenario)


def test_a_new_leader_writes_nothing_before_a_reconcile_names_the_actuator() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 5
        key = world.model(replicas=2, actuator=None)
        async with Running(world.scaler):
            await asyncio.sleep(3)
            world.leadership.is_leader = True
            await asyncio.sleep(3 * MAX_DECISION_INTERVAL_S)
            # It may be an autoscaler of somebody else's that scales it.
            assert world.counts() == []
            world.scaler.planned(key, plan_of(world.specs[key]))
            await asyncio.sleep(MAX_DECISION_INTERVAL_S + 1)
            assert world.counts() == [5]

    live(scenario, leads=False)


@pytest.mark.parametrize("how", ["stop", "deleted", "planned"])
def test_a_model_without_decisions_leaves_no_state(how: str) -> None:
    async def scenario(world: OperatorReplica) -> None:
        key = world.model(
            replicas=1, schedules=[{"name": "s", "start": "0 8 * * *", "duration": "1h", "minReplicas": 2}]
        )
        async with Running(world.scaler):
            await world.load(400, 20)
            assert world.counts()
            world.scale(key, 1, by="argocd")
            await world.load(400, 5)
            kept = holds(world.scaler, key)
            assert "models" in kept
            assert {"decider._models", "external_writers._replicas", "signals._models"} <= set(kept)
            if how == "planned":
                world.scaler.planned(key, plan_of(None, Actuator.NONE))
            else:
                getattr(world.scaler, how)(key)
            await asyncio.sleep(PUBLISHED_WITHIN_S + TICK_S)
            about_facts = {"signals._models", "updates._batches"} if how != "deleted" else set()
            assert set(holds(world.scaler, key)) <= about_facts
            assert (key in world.scaler.decider._kept._interrupted) == (how != "deleted")

    live(scenario)


@pytest.mark.parametrize("leads", [True, False])
def test_a_deleted_model_leaves_no_state_despite_reports_of_its_last_balancer(leads: bool) -> None:
    async def scenario(world: OperatorReplica) -> None:
        key = world.model(replicas=2, actuator=HPA if leads else None)
        async with Running(world.scaler):
            await world.load(80, 15)
            world.delete(key)
            if leads:
                world.scaler.deleted(key)  # only who leads is told of it
                world.hub.forget(*key)
            await world.load(0, 15)
            assert holds(world.scaler, key) == []

    live(scenario, leads=leads)


@pytest.mark.parametrize("leads", [True, False])
def test_new_model_of_the_same_name_begins_without_a_state(leads: bool) -> None:
    async def scenario(world: OperatorReplica) -> None:
        key = world.model(replicas=2, actuator=HPA if leads else None)
        async with Running(world.scaler):
            await world.load(80, 15)
            before = world.scaler.state(key)
            resource = world.caches.resources.get(key)
            assert before is not None
            assert resource is not None
            world.caches.resources._store(key, {**resource, "metadata": resource["metadata"] | NEW})
            await asyncio.sleep(MAX_DECISION_INTERVAL_S + 1)
            # A leader's reconcile adds the new model; a standby adds it itself.
            assert world.scaler.state(key) is not before
            assert (world.scaler.state(key) is None) == leads

    live(scenario, leads=leads)


def test_a_models_decisions_are_no_more_frequent_than_confirmed_reports() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        world.model()
        async with Running(world.scaler):
            for _ in range(600):
                world.speak()
                await asyncio.sleep(1 / 30)
        times = [at for at, _ in dictated.calls]
        assert 18 <= len(times) <= 20 / MIN_CONFIRM_INTERVAL_S + 1
        assert min(later - sooner for sooner, later in pairwise(times)) >= MIN_CONFIRM_INTERVAL_S - TICK_S

    live(scenario)


def test_reports_that_confirm_nothing_cause_one_decision_a_second() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        world.model()
        async with Running(world.scaler):
            for _ in range(20):
                world.speak()
                await asyncio.sleep(0.6)
                world.speak()
                await asyncio.sleep(0.6)
        times = [at for at, _ in dictated.calls]
        assert min(later - sooner for sooner, later in pairwise(times)) >= MIN_DECISION_INTERVAL_S

    live(scenario)


def test_a_record_that_confirms_another_is_decided_on_at_once() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        world.model()
        async with Running(world.scaler):
            for _ in range(3):
                world.speak()
                await asyncio.sleep(1.0)
            world.speak()
            await asyncio.sleep(0.2)
            world.speak()
            spoke = world.time()
            await asyncio.sleep(2 * TICK_S)
            late = [at for at, _ in dictated.calls if at >= spoke]
            assert late
            assert late[0] - spoke <= TICK_S + 0.01

    live(scenario)


def test_reports_at_zero_replicas_are_evaluated_at_once() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        dictated.desired[DIGITS] = 0
        world.model(replicas=0, minReplicas=0)
        async with Running(world.scaler):
            await asyncio.sleep(MAX_DECISION_INTERVAL_S)
            world.speak()
            await asyncio.sleep(MIN_DECISION_INTERVAL_S / 2)
            decided = len(dictated.calls)
            world.speak()
            dictated.desired[DIGITS] = 1
            await asyncio.sleep(2 * TICK_S)
            assert len(dictated.calls) > decided
            assert world.counts() == [1]

    live(scenario)


def test_a_model_whose_agents_are_silent_is_decided_for_all_the_same() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        world.model()
        async with Running(world.scaler):
            await asyncio.sleep(30)
        times = [at for at, _ in dictated.calls]
        assert max(later - sooner for sooner, later in pairwise(times)) <= MAX_DECISION_INTERVAL_S + 2 * TICK_S

    live(scenario)


def test_a_thousand_models_in_one_round_let_others_have_their_turn() -> None:
    async def scenario(time: VirtualTime) -> None:
        spent = 0.0

        def clock() -> float:
            return time() + spent

        world = OperatorReplica(clock)
        dictated = world.dictate()

        def think() -> None:
            nonlocal spent
            spent += 0.001

        dictated.thinks = think
        for number in range(1000):
            world.model(f"m{number:04}")
        turns: list[float] = []

        async def others() -> None:
            while True:
                turns.append(clock())
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        await asyncio.sleep(0)
        await world.scaler._round()
        task.cancel()
        assert world.scaler.decisions == 1000
        assert max(later - sooner for sooner, later in pairwise(turns)) <= SLICE_S + 0.002

    run(scenario)


def test_an_own_write_seen_before_its_response_is_no_change_by_others() -> None:
    """The decision is made while the cache lacks an own status, so it isn't recorded before its replicas are written."""
    rivals: list[str] = []

    async def scenario(world: OperatorReplica) -> None:
        dictated, send = world.dictate(), world.kube.scale
        key = world.model(replicas=100, maxReplicas=100, actuator=DIRECT)

        async def answered_late(
            kind: Kind, obj: Object, *, before: int, after: int, version: str | None = None
        ) -> Object:
            response = await send(kind, obj, before=before, after=after, version=version)
            await asyncio.sleep(1)
            world.speak()
            await asyncio.sleep(0.5)
            return response

        world.kube.scale = answered_late  # type: ignore[method-assign]
        async with Running(world.scaler):
            for desired in (90, 80, 70, 60):
                dictated.desired[key] = desired
                world.speak()
                await asyncio.sleep(MIN_DECISION_INTERVAL_S + TICK_S)
                resource = world.kube.objects[kinds.MODEL_DEPLOYMENT, key.namespace, key.name]
                next_version = str(int(resource["metadata"]["resourceVersion"]) + 1)
                status = {"metadata": resource["metadata"] | {"resourceVersion": next_version}}
                world.caches.own_writes.wrote(key, kinds.MODEL_DEPLOYMENT, status)
                dictated.desired[key] = desired - 1
                world.speak()
                await asyncio.sleep(6)
                rivals.append(world.scaler.models[key].external_writer)
        assert world.counts() == [89, 79, 69, 59]

    live(scenario, publishes_in_s=1e6)
    assert rivals == [""] * 4
