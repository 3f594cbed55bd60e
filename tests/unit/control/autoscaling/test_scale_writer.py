"""What is written to /scale and what is served, by mode and actuator, and whatever comes between a decision and its write."""

from __future__ import annotations

import asyncio

import pytest

from halcyon.api.timestamps import rfc3339
from halcyon.control.autoscaling.loop import TICK_S
from halcyon.control.autoscaling.scale_writer import LATE_FOR_S, PUBLISHED_WITHIN_S
from halcyon.control.objects.actuator import Actuator
from halcyon.kube import errors, kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import hpa
from halcyon.render.site import Subject
from halcyon.scaling.observations import Missing
from halcyon.scaling.policy.decision import MAX_DECISION_INTERVAL_S, MIN_DECISION_INTERVAL_S
from tests.unit.control.autoscaling.autoscaler_simulation import (
    CONFLICT,
    DIGITS,
    OperatorReplica,
    Running,
    live,
    served,
    spec,
)
from tests.unit.signals.records import EPOCH

HPA, DIRECT = Actuator.HPA, Actuator.DIRECT


@pytest.mark.parametrize(
    ("mode", "actuator", "before", "desired", "written", "answer"),
    [
        ("Active", HPA, 2, 5, [5], 5),
        ("Active", HPA, 5, 2, [], 2),
        ("Active", HPA, 2, 0, [0], 0),
        ("Active", HPA, 0, 1, [1], 1),
        ("Active", HPA, 3, 3, [], 3),
        ("Active", DIRECT, 2, 5, [5], 5),
        ("Active", DIRECT, 5, 2, [2], 2),
        ("Active", DIRECT, 2, 0, [0], 0),
        ("Active", DIRECT, 0, 1, [1], 1),
        ("Recommend", HPA, 2, 5, [], 2),
        ("Recommend", DIRECT, 5, 0, [], 5),
        ("Paused", HPA, 0, 5, [], 0),
        ("Paused", DIRECT, 5, 2, [], 5),
    ],
)
def test_replicas_are_written_and_served_by_the_table(
    *, mode: str, actuator: Actuator, before: int, desired: int, written: list[int], answer: float
) -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = desired
        world.model(replicas=before, actuator=actuator, minReplicas=0, mode=mode)
        async with Running(world.scaler):
            await asyncio.sleep(3 * MAX_DECISION_INTERVAL_S)
            assert await served(world) == answer
            assert world.scaling_status()["desired"] == desired

    world = live(scenario)

    assert world.counts() == written
    assert world.urgent == [DIGITS] * len(written)
    assert world.replicas() == (written or [before])[-1]


def test_higher_replicas_are_written_as_soon_as_the_status_has_them() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 5
        world.model(replicas=2)
        async with Running(world.scaler):
            await asyncio.sleep(2)

    (write,) = live(scenario, publishes_in_s=0.2).writes

    assert write.published == 5
    assert 0.2 <= write.at <= 0.2 + 2 * TICK_S + 0.03


def test_replicas_are_written_even_if_the_status_is_not() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 5
        world.model(replicas=2)
        async with Running(world.scaler):
            await asyncio.sleep(3)

    (write,) = live(scenario, publishes_in_s=1e6).writes

    assert write.replicas == 5
    assert write.at <= PUBLISHED_WITHIN_S + 2 * TICK_S


def test_higher_replicas_go_before_late_statuses_for_a_while() -> None:
    times: list[float] = []

    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        key = world.model(replicas=2, maxReplicas=100)
        async with Running(world.scaler):
            for desired, pause_s in ((5, 3.0), (6, LATE_FOR_S), (7, 3.0)):
                dictated.desired[key] = desired
                times.append(world.time())
                world.speak()
                await asyncio.sleep(pause_s)
                assert world.scaling_status()["desired"] == desired
                world.publishes_in_s = 0.2

    late, ahead, quick_again = live(scenario, publishes_in_s=1.0).writes

    assert (late.published, ahead.published, quick_again.published) == (None, 5, 7)
    assert late.at - times[0] >= PUBLISHED_WITHIN_S
    assert ahead.at - times[1] <= 2 * TICK_S
    assert quick_again.at - times[2] >= 0.2


@pytest.mark.parametrize("error", [CONFLICT, errors.Unreachable("no answer")])
def test_a_status_is_written_even_if_its_replicas_could_not_be(error: Exception) -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        key = world.model(replicas=2, maxReplicas=100)
        async with Running(world.scaler):
            dictated.desired[key] = 5
            await asyncio.sleep(3)
            world.kube.errors = [error] * 100
            dictated.desired[key] = 7
            world.speak()
            await asyncio.sleep(3)
            assert world.scaling_status()["desired"] == 7

    assert live(scenario, publishes_in_s=1.0).counts() == [5]


def test_a_fall_waits_for_its_status_although_those_are_late() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        key = world.model(replicas=2, maxReplicas=100, actuator=DIRECT)
        async with Running(world.scaler):
            for desired in (5, 3):
                dictated.desired[key] = desired
                world.speak()
                await asyncio.sleep(3)

    _, fall = live(scenario, publishes_in_s=0.5).writes

    assert (fall.replicas, fall.published) == (3, 3)


@pytest.mark.parametrize("publishes_in_s", [0.01, 0.2, 0.98])
def test_replicas_above_the_served_value_are_never_written(publishes_in_s: float) -> None:
    checks: list[tuple[int, float | str]] = []

    async def scenario(world: OperatorReplica) -> None:
        async def by_the_standby() -> None:
            world.leadership.is_leader = False
            checks.append((world.replicas(), await served(world)))
            world.leadership.is_leader = True

        dictated = world.dictate()
        key = world.model(replicas=1, maxReplicas=100, scaling_status={"desired": 1})
        asking = set()
        world.after_write = lambda _: asking.add(asyncio.create_task(by_the_standby()))
        async with Running(world.scaler):
            for desired in (3, 6, 8, 20, 7, 30, 31, 32, 60):
                dictated.desired[key] = desired
                world.speak()
                await asyncio.sleep(MIN_DECISION_INTERVAL_S + 0.05)
                assert await served(world) == desired
            await asyncio.sleep(5)

    world = live(scenario, publishes_in_s=publishes_in_s)

    assert world.replicas() == 60
    assert len(checks) == len(world.writes) >= 4
    assert [(count, answer) for count, answer in checks if isinstance(answer, str) or answer < count] == []


def test_replicas_between_the_present_and_zero_are_left_to_the_hpa() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        dictated.desired[DIGITS] = 0
        world.model(replicas=5, minReplicas=0)
        async with Running(world.scaler):
            await asyncio.sleep(TICK_S + 0.01)
            dictated.desired[DIGITS] = 2
            world.speak()
            await asyncio.sleep(5)

    assert live(scenario, publishes_in_s=1e6).counts() == []


def test_a_model_that_is_paused_while_a_write_waits_is_not_scaled() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 5
        world.model(replicas=2)
        async with Running(world.scaler):
            await asyncio.sleep(2 * TICK_S)
            world.specs[DIGITS] = spec(mode="Paused")
            await asyncio.sleep(5)

    assert live(scenario, publishes_in_s=0.5).counts() == []


def test_a_write_that_crosses_a_pause_changes_no_replicas() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 5
        world.model(replicas=2)
        async with Running(world.scaler):
            await asyncio.sleep(2 * TICK_S)
            world.publish(DIGITS, {"desired": 5})
            # The user's change is in the API server, and not in the cache.
            world.pause(DIGITS, seen=False)
            await asyncio.sleep(5)
            assert world.kube.attempts >= 1

    world = live(scenario, publishes_in_s=1e6)

    assert (world.replicas(), world.counts()) == (2, [])


def test_scaling_stops_before_the_spec_with_the_pause_is_accepted() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        dictated.desired[DIGITS] = 2
        world.model(replicas=2)
        async with Running(world.scaler):
            await asyncio.sleep(1)
            world.pause(DIGITS, seen=True)
            dictated.desired[DIGITS] = 5
            world.speak()
            await asyncio.sleep(5)
            assert await served(world) == 2
            assert world.kube.attempts == 0

    assert live(scenario).replicas() == 2


def test_a_changed_status_stops_no_write_of_replicas() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 5
        world.model(replicas=2)
        address = (kinds.MODEL_DEPLOYMENT, *DIGITS)
        async with Running(world.scaler):
            await asyncio.sleep(2 * TICK_S)
            world.publish(DIGITS, {"desired": 5})
            resource = world.kube.objects[address]
            world.kube._put(address, resource | {"status": resource["status"] | {"readyReplicas": 1}})
            await asyncio.sleep(TICK_S)
            assert (world.counts(), world.kube.attempts) == ([5], 2)

    live(scenario, publishes_in_s=1e6)


def test_an_hpa_that_may_still_scale_a_paused_model_reads_no_value() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 2
        world.model(replicas=2)

        def have_hpa(mode: str) -> None:
            autoscaler = hpa.hpa(Subject(*DIGITS, "digits"), spec(mode=mode), tolerance=True)
            world.caches.hpas._store(
                DIGITS, autoscaler | {"metadata": autoscaler["metadata"] | {"resourceVersion": mode}}
            )

        have_hpa("Active")
        async with Running(world.scaler):
            await asyncio.sleep(1)
            assert await served(world) == 2
            world.pause(DIGITS, seen=True)
            assert await served(world) == "scaling is not active, and the HPA has not been stopped yet"
            have_hpa("Paused")
            assert await served(world) == 2

    live(scenario)


def test_a_leader_that_stands_down_while_a_write_waits_writes_no_more() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 5
        world.model(replicas=2)
        async with Running(world.scaler):
            await asyncio.sleep(2 * TICK_S)
            world.leadership.is_leader = False
            await asyncio.sleep(5)

    assert live(scenario, publishes_in_s=0.5).counts() == []


@pytest.mark.parametrize("error", [CONFLICT, errors.Busy(503, "later"), errors.Unreachable("no answer")])
def test_a_failed_write_leads_to_a_new_decision(error: Exception) -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 5
        world.model(replicas=2)
        world.kube.errors = [error, error]
        async with Running(world.scaler):
            await asyncio.sleep(5)

    world = live(scenario)

    assert world.counts() == [5]
    assert world.writes[0].at <= 2 * (MIN_DECISION_INTERVAL_S + 2 * TICK_S) + 1


def test_replicas_written_by_others_are_the_start_after_a_conflict() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 5
        world.model(replicas=2)
        async with Running(world.scaler):
            await asyncio.sleep(2 * TICK_S)
            world.publish(DIGITS, {"desired": 5})
            world.scale(DIGITS, 7, seen=False)
            await asyncio.sleep(3 * TICK_S)
            assert world.replicas() == 7
            world.catch_up(DIGITS, writer="kubectl")
            await asyncio.sleep(MAX_DECISION_INTERVAL_S)

    world = live(scenario, publishes_in_s=1e6)

    assert (world.replicas(), world.counts()) == (7, [])


def test_a_write_waits_until_the_cache_has_the_last_one() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        dictated.desired[DIGITS] = 5
        world.model(replicas=2)

        def hang(_: Key) -> None:
            world.watch_hangs = True

        world.after_write = hang
        async with Running(world.scaler):
            await asyncio.sleep(1)
            assert world.counts() == [5]
            dictated.desired[DIGITS] = 9
            await asyncio.sleep(2 * MAX_DECISION_INTERVAL_S)
            assert (world.counts(), world.kube.attempts) == ([5], 1)
            world.watch_hangs = False
            world.after_write = lambda _: None
            world.catch_up(DIGITS)
            await asyncio.sleep(MAX_DECISION_INTERVAL_S)
            assert world.counts() == [5, 9]

    live(scenario)


def test_unknown_signals_change_no_replicas_and_serve_nothing() -> None:
    async def scenario(world: OperatorReplica) -> None:
        dictated = world.dictate()
        dictated.desired[DIGITS] = 8
        dictated.unknown[DIGITS] = "the balancers are silent"
        world.model(replicas=2)
        async with Running(world.scaler):
            await asyncio.sleep(3)
            assert await served(world) == "the balancers are silent"
            assert world.served_metrics.unserved() == [DIGITS]

    assert live(scenario).counts() == []


def test_no_value_is_served_before_a_decision_or_for_an_unplanned_model() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate()
        key = world.model()
        assert await served(world) == "nothing was decided yet"
        assert world.served_metrics.unserved() == [key]
        world.model("ruled", policy="Rules")
        assert isinstance(await world.served_metrics.desired("team", "ruled"), Missing)
        assert isinstance(await world.served_metrics.desired("team", "nobody"), Missing)

    live(scenario)


def test_a_repeated_writer_of_replicas_is_named_and_left_alone() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 6
        key = world.model(replicas=2)
        async with Running(world.scaler):
            for _ in range(6):
                world.speak()
                await asyncio.sleep(3)
                world.scale(key, 2, by="argocd")
            await asyncio.sleep(3)
            assert len(world.counts()) <= 4
            assert "argocd" in world.scaler.published(key).external_writer
            assert await served(world) == 2
            assert (world.queued[-1][1], world.replicas()) == (key, 2)

    live(scenario)


def test_a_writer_that_reverts_the_replicas_at_once_is_named_too() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 6
        key = world.model(replicas=2)

        def put_back() -> None:
            world.scale(key, 2, by="their-operator")

        def at_once(_: Key) -> None:
            asyncio.get_running_loop().call_later(0.05, put_back)

        world.after_write = at_once
        async with Running(world.scaler):
            for _ in range(60):
                world.speak()
                await asyncio.sleep(1)
            assert "their-operator" in world.scaler.published(key).external_writer
            assert len(world.counts()) <= 4

    live(scenario)


def test_a_person_who_sets_the_replicas_once_is_no_conflict() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 6
        key = world.model(replicas=2)
        async with Running(world.scaler):
            await asyncio.sleep(2)
            world.scale(key, 1, by="kubectl-edit")
            await asyncio.sleep(MAX_DECISION_INTERVAL_S + 1)
            assert world.scaler.published(key).external_writer == ""
            assert world.counts() == [6, 6]

    live(scenario)


def test_a_persons_changes_of_replicas_are_no_conflict() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 6
        key = world.model(replicas=2)
        async with Running(world.scaler):
            for _ in range(5):
                world.specs[DIGITS] = spec(mode="Active")
                world.speak()
                await asyncio.sleep(3)
                world.specs[DIGITS] = spec(mode="Paused")
                world.speak()
                await asyncio.sleep(3)
                world.scale(key, 2, by="kubectl")
                await asyncio.sleep(3)
            assert world.scaler.published(key).external_writer == ""
            assert world.counts() == [6] * 5

    live(scenario)


# With the real decisions: what agents say becomes a count.


def test_load_raises_the_replicas_and_its_end_lowers_them() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.model(replicas=1, actuator=DIRECT)
        async with Running(world.scaler):
            await world.load(80, 30)
            assert world.replicas() <= 2
            await world.load(400, 30)
            high = world.replicas()
            assert 4 <= high <= 8
            await world.load(8, 250)
            assert world.replicas() < high

    world = live(scenario)

    status = world.scaling_status()
    assert status["desired"] == world.replicas()
    assert {s["name"] for s in status["signals"]} >= {"requestRate", "queueDepth"}


def test_the_first_request_wakes_a_model_at_zero_within_a_tick() -> None:
    async def scenario(world: OperatorReplica) -> None:
        key = world.model(replicas=0, minReplicas=0)
        async with Running(world.scaler):
            for _ in range(5):
                world.speak()
                await asyncio.sleep(4)
            assert world.counts() == []
            arrived_at = world.time()
            world.speak(arrived=1, served=0, queued=1)
            await asyncio.sleep(1)
            (write,) = world.writes
            assert (write.key, write.replicas) == (key, 1)
            # A tick until it is decided, and the status before the count.
            assert write.at - arrived_at <= TICK_S + world.publishes_in_s + 0.03

    live(scenario)


def test_a_model_goes_to_zero_after_its_idle_time_and_not_before() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.model(replicas=1, minReplicas=0, idleTimeout="2m")
        async with Running(world.scaler):
            await world.load(16, 30)
            quiet = world.time() - 1  # the last record with requests
            await world.load(0, 130)
            (write,) = world.writes
            assert write.replicas == 0
            assert 120 <= write.at - quiet <= 125

    live(scenario)


def test_silent_agents_leave_the_replicas_and_end_the_served_value() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.model(replicas=4, actuator=DIRECT)
        async with Running(world.scaler):
            await world.load(200, 90)
            count = world.replicas()
            await asyncio.sleep(60)
            assert world.replicas() == count
            assert isinstance(await world.served_metrics.desired(*DIGITS), Missing)
            assert world.scaling_status()["limitedBy"] == ["unknown"]

    live(scenario)


def test_a_manual_change_under_the_rules_counts_once() -> None:
    """A decision of the rules lasts for 15 s, with the replicas that it has begun with."""

    async def scenario(world: OperatorReplica) -> None:
        key = world.model(replicas=2, policy="Rules", maxReplicas=20, actuator=DIRECT, targets={"queueDepth": 16})
        async with Running(world.scaler):
            for number in range(140):
                if number in {30, 80}:
                    world.scale(key, 7, by="kubectl")
                world.speak()
                await asyncio.sleep(1)
        assert world.scaler.published(key).external_writer == ""
        assert world.replicas() == 2

    live(scenario)


def test_a_standby_serves_higher_replicas_that_no_status_shows_yet() -> None:
    """In Kubernetes 1.35, managedFields don't name the writer to /scale."""

    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 5
        key = world.model(replicas=5, maxReplicas=20, actuator=None, scaling_status={"desired": 5, "current": 5})
        async with Running(world.scaler):
            await asyncio.sleep(3)
            assert await served(world) == 5
            world.scale(key, 9, by="")
            assert await served(world) == 9

    live(scenario, leads=False)


def test_a_conflict_through_scale_is_not_blamed_on_the_manifests_writer() -> None:
    """In Kubernetes 1.35, managedFields keep the last writer of the manifest after writes to /scale."""

    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 6
        key = world.model(replicas=2)
        applied = {"replicasWriter": "kubectl-client-side-apply", "replicasWrittenAt": rfc3339(EPOCH - 3600)}

        def store(obj: Object, **_: str) -> None:
            world.caches.resources._store(key, obj | {"metadata": obj["metadata"] | applied})

        world.store = store  # type: ignore[method-assign,assignment]
        async with Running(world.scaler):
            for _ in range(6):
                world.speak()
                await asyncio.sleep(3)
                world.scale(key, 2)
            await asyncio.sleep(3)
            assert world.scaler.published(key).external_writer.startswith("another controller or user has changed")

    live(scenario)
