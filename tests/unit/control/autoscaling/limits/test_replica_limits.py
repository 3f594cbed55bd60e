"""What quotas and the site's budget make of decisions, in the scaler that acts on them."""

from __future__ import annotations

import asyncio

import pytest

from halcyon.api.spec.parse import parse
from halcyon.control.autoscaling.limits.gpu_budget import GpuBudget
from halcyon.control.autoscaling.limits.replica_limits import PROMISE_S
from halcyon.control.objects import resource_quotas
from halcyon.control.objects.actuator import Actuator
from halcyon.kube import kinds
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon.scaling.policy.decision import Decision
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica, Running, live, plan_of
from tests.unit.control.scope_builders import PVC

OTHER = Key("team", "other")
GPU = "requests.nvidia.com/gpu"


def with_gpus(world: OperatorReplica, key: Key, gpus: int) -> None:
    """The model's pods have so many GPUs each."""
    document = {"model": {"source": PVC}, "runtime": {"gpu": {"count": gpus}}}
    world.specs[key] = parse(key.name, document | {"scaling": {"minReplicas": 1, "maxReplicas": 10}})
    container = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    server = names.server(key.name, names.SLOT_A)
    world.caches.children[kinds.DEPLOYMENT]._store(
        Key(key.namespace, server),
        {
            "metadata": {"namespace": key.namespace, "name": server, "resourceVersion": "1"},
            "spec": {"replicas": 1, "template": {"metadata": {}, "spec": {"containers": [container]}}},
        },
    )


def have_quota(world: OperatorReplica, *, hard: int, used: int, version: int = 1) -> None:
    quota = {
        "metadata": {"namespace": "team", "name": "gpus", "uid": "q", "resourceVersion": str(version)},
        "status": {"hard": {GPU: str(hard)}, "used": {GPU: str(used)}},
    }
    world.caches.quotas._store(Key("team", "gpus"), resource_quotas.project(quota))


def test_desired_replicas_stay_within_the_quota_and_the_limit_is_named() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 6
        world.model(replicas=1, actuator=Actuator.DIRECT)
        with_gpus(world, DIGITS, 2)
        have_quota(world, hard=8, used=3)
        async with Running(world.scaler):
            await asyncio.sleep(0.5)
            assert world.counts() == [3]
            # What is known of the quota may be older than what is known of the pods: that is no room.
            await asyncio.sleep(5)
            assert world.counts() == [3]
            have_quota(world, hard=8, used=7, version=2)
            await asyncio.sleep(6)
            assert world.counts() == [3]
            assert world.scaling_status()["limitedBy"] == ["quota"]
            assert world.scaling_status()["why"].startswith(
                "3 replicas, although 6 replicas are desired: ResourceQuota gpus allows 3: requests.nvidia.com/gpu is 3 of 8 used. "
            )
            have_quota(world, hard=16, used=7, version=3)
            await asyncio.sleep(6)
            assert world.counts() == [3, 6]
            assert "limitedBy" not in world.scaling_status()

    live(scenario)


def test_a_quotas_limit_is_not_that_of_the_last_scale_up() -> None:
    async def scenario(world: OperatorReplica) -> None:
        desired = world.dictate().desired
        desired[DIGITS] = 3
        world.model(replicas=1, actuator=Actuator.DIRECT)
        with_gpus(world, DIGITS, 1)
        have_quota(world, hard=20, used=1)
        async with Running(world.scaler):
            await asyncio.sleep(60)
            have_quota(world, hard=20, used=20, version=2)
            desired[DIGITS] = 6
            await asyncio.sleep(12)
            assert world.counts() == [3]

    live(scenario)


def test_a_full_quota_takes_nothing_away() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        dictated.desired[DIGITS] = 6
        world.model(replicas=4, actuator=Actuator.DIRECT)
        with_gpus(world, DIGITS, 1)
        have_quota(world, hard=2, used=4)
        async with Running(world.scaler):
            await asyncio.sleep(6)
            assert world.counts() == []
            dictated.desired[DIGITS] = 2
            await asyncio.sleep(6)
            assert world.counts() == [2]

    live(scenario)


def test_models_that_decide_at_once_are_not_granted_the_same_quota() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired |= {DIGITS: 4, OTHER: 4}
        for key in (DIGITS, OTHER):
            world.model(key.name, replicas=1, actuator=Actuator.DIRECT)
            with_gpus(world, key, 1)
            world.scaler.planned(key, plan_of(world.specs[key], Actuator.DIRECT))
        have_quota(world, hard=4, used=2)
        async with Running(world.scaler):
            await asyncio.sleep(1.5)
            assert world.replicas(DIGITS) + world.replicas(OTHER) == 4
            await asyncio.sleep(1)
            have_quota(world, hard=4, used=4, version=2)
            await asyncio.sleep(20)
            assert world.replicas(DIGITS) + world.replicas(OTHER) == 4

    live(scenario)


def test_an_unused_promise_frees_its_capacity() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        dictated.desired |= {DIGITS: 3, OTHER: 1}
        for key in (DIGITS, OTHER):
            world.model(key.name, replicas=1, actuator=Actuator.DIRECT)
            with_gpus(world, key, 1)
            world.scaler.planned(key, plan_of(world.specs[key], Actuator.DIRECT))
        have_quota(world, hard=4, used=2)
        async with Running(world.scaler):
            await asyncio.sleep(1.5)
            assert world.replicas(DIGITS) == 3
            world.have_pods(DIGITS, 1)
            dictated.desired[OTHER] = 3
            await asyncio.sleep(6)
            assert world.replicas(OTHER) == 1
            await asyncio.sleep(PROMISE_S + 6)
            assert world.replicas(OTHER) == 3

    live(scenario)


def test_two_models_share_the_sites_budget_and_exchange_returned_gpus() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.scaler.limits.budget = GpuBudget(6)
        dictated = world.dictate()
        dictated.desired |= {DIGITS: 4, OTHER: 4}
        for key in (DIGITS, OTHER):
            world.model(key.name, replicas=1, actuator=Actuator.DIRECT)
            with_gpus(world, key, 1)
            world.scaler.planned(key, plan_of(world.specs[key], Actuator.DIRECT))
        async with Running(world.scaler):
            await asyncio.sleep(6)
            assert world.replicas(DIGITS) + world.replicas(OTHER) == 6
            assert min(world.replicas(DIGITS), world.replicas(OTHER)) >= 2
            held = next(key for key in (DIGITS, OTHER) if world.replicas(key) < 4)
            assert world.scaling_status(held)["limitedBy"] == ["budget"]
            assert "the site's budget of 6 GPUs is shared by priority and need" in world.scaling_status(held)["why"]
            releasing = OTHER if held == DIGITS else DIGITS
            dictated.desired[releasing] = 1
            await asyncio.sleep(12)
            assert (world.replicas(releasing), world.replicas(held)) == (1, 4)

    live(scenario)


def test_a_model_without_decisions_holds_its_gpus_until_it_is_gone() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.scaler.limits.budget = GpuBudget(6)
        world.dictate().desired[DIGITS] = 6
        world.model("other", replicas=4, actuator=None)
        with_gpus(world, OTHER, 1)
        world.model(replicas=1, actuator=None)
        with_gpus(world, DIGITS, 1)
        async with Running(world.scaler):
            await asyncio.sleep(2)
            world.scaler.planned(DIGITS, plan_of(world.specs[DIGITS], Actuator.DIRECT))
            await asyncio.sleep(6)
            assert world.replicas(DIGITS) == 2
            world.delete(OTHER)
            await asyncio.sleep(6)
            assert world.replicas(DIGITS) == 6

    live(scenario)


def test_recommendations_take_nothing_from_the_budget() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.scaler.limits.budget = GpuBudget(6)
        world.dictate().desired |= {DIGITS: 6, OTHER: 5}
        world.model("other", replicas=1, actuator=Actuator.DIRECT)
        with_gpus(world, OTHER, 1)
        scaling = {"minReplicas": 1, "maxReplicas": 10, "mode": "Recommend"}
        document = {"model": {"source": PVC}, "runtime": {"gpu": {"count": 1}}}
        world.model(replicas=1, actuator=Actuator.DIRECT)
        world.specs[DIGITS] = parse("digits", document | {"scaling": scaling})
        async with Running(world.scaler):
            await asyncio.sleep(6)
            assert world.replicas(OTHER) == 5

    live(scenario)


@pytest.mark.parametrize("mode", ["Recommend", "Paused"])
def test_recommendations_stay_within_the_budget_and_the_limit_is_named(mode: str) -> None:
    async def scenario(world: OperatorReplica) -> None:
        limits, budget = world.scaler.limits, GpuBudget(8)
        limits.budget = budget
        world.model(replicas=1, actuator=Actuator.DIRECT)
        with_gpus(world, DIGITS, 2)
        document = {"model": {"source": PVC}, "runtime": {"gpu": {"count": 2}}}
        world.specs[DIGITS] = parse("digits", document | {"scaling": {"maxReplicas": 10, "mode": mode}})
        budget.request(OTHER, desired=3, current=3, gpus=1)

        limited = limits.apply(DIGITS, world.specs[DIGITS], Decision(0.0, "Planner", 1, 6))

        assert (limited.desired, limited.limited_by) == (2, ("budget",))
        assert "the site's budget of 8 GPUs" in limited.why
        assert budget.request(OTHER, desired=6, current=3, gpus=1) is None, "the recommendation holds no GPUs"
        assert limits.apply(DIGITS, world.specs[DIGITS], Decision(0.0, "Planner", 1, 6)).desired == 1

    live(scenario)


def test_replicas_that_a_quota_forbids_hold_no_gpus_of_the_budget() -> None:
    async def scenario(world: OperatorReplica) -> None:
        limits, budget = world.scaler.limits, GpuBudget(8)
        limits.budget = budget
        world.model(replicas=1, actuator=Actuator.DIRECT)
        with_gpus(world, DIGITS, 1)
        have_quota(world, hard=2, used=1)
        limited = limits.apply(DIGITS, world.specs[DIGITS], Decision(0.0, "Planner", 1, 6))
        assert (limited.desired, limited.limited_by) == (2, ("quota",))
        assert budget.request(Key("free", "other"), desired=6, current=1, gpus=1) is None

    live(scenario)
