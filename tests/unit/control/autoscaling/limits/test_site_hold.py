"""The site's switch for scaling down, and the event for a manual change that scaling undoes."""

from __future__ import annotations

import asyncio

import pytest

from halcyon.control.autoscaling.limits.site_hold import MAX_REASON_LENGTH, SWITCH, SiteHold
from halcyon.control.objects.actuator import Actuator
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.errors import Busy, Refused, Unreachable
from halcyon.kube.event_recorder import NewEvent
from halcyon.kube.kinds import Kind
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica, Running, live


class Stored:
    """A namespace with the ConfigMap, or with none."""

    error: Exception | None = None

    def __init__(self, text: str | None) -> None:
        self.text = text

    async def get(self, kind: Kind, namespace: str, name: str, /) -> Object | None:
        assert (kind, namespace, name) == (kinds.CONFIG_MAP, "halcyon-system", "halcyon-switches")
        if self.error is not None:
            raise self.error
        return None if self.text is None else {"data": {SWITCH: self.text}}


def switch(text: str | None = None) -> tuple[SiteHold, Stored, list[str]]:
    stored, changes = Stored(text), list[str]()
    hold = SiteHold(stored, "halcyon-system", "halcyon-switches", lambda: changes.append(hold.reason))
    return hold, stored, changes


@pytest.mark.parametrize(("text", "reason"), [(None, ""), ("", ""), ("  ", ""), ("incident\n4711 ", "incident 4711")])
def test_the_reason_is_that_of_the_config_map(text: str | None, reason: str) -> None:
    hold, _, changes = switch(text)
    asyncio.run(hold.poll())

    assert hold.reason == reason
    assert changes == [reason]


def test_a_long_reason_is_shortened() -> None:
    hold, _, _ = switch("x" * 1000)
    asyncio.run(hold.poll())

    assert len(hold.reason) == MAX_REASON_LENGTH


def test_a_failed_read_keeps_the_last_state() -> None:
    hold, stored, changes = switch("incident")
    asyncio.run(hold.poll())
    stored.error = Busy(503, "try again")
    asyncio.run(hold.poll())
    assert hold.reason == "incident"
    stored.error, stored.text = None, None
    asyncio.run(hold.poll())

    assert (hold.reason, changes) == ("", ["incident", ""])


@pytest.mark.parametrize("error", [Busy(503, "try again"), Unreachable("no answer")])
def test_a_switch_that_a_new_process_cannot_read_keeps_all_replicas(error: Exception) -> None:
    async def scenario(world: OperatorReplica) -> None:
        hold, stored, _ = switch("incident 4711")
        stored.error = error
        world.scaler.limits.hold = hold
        world.dictate().desired[DIGITS] = 1
        world.model(replicas=4, actuator=Actuator.DIRECT)
        async with Running(world.scaler):
            await hold.poll()
            await asyncio.sleep(6)
            assert world.counts() == []
            assert "could not read the switch" in world.scaling_status()["why"]
            stored.error, stored.text = None, None
            await hold.poll()
            await asyncio.sleep(6)
            assert world.counts() == [1]

    live(scenario)


def test_a_switch_without_permission_to_read_it_is_off() -> None:
    hold, stored, _ = switch("incident")
    stored.error = Refused(403, "not allowed")
    asyncio.run(hold.poll())

    assert hold.reason == ""


def test_the_site_keeps_replicas_and_adds_more() -> None:
    async def scenario(world: OperatorReplica) -> None:
        hold, stored, _ = switch("incident 4711")
        await hold.poll()
        world.scaler.limits.hold = hold
        desired = world.dictate().desired
        desired[DIGITS] = 1
        world.model(replicas=4, actuator=Actuator.DIRECT)
        async with Running(world.scaler):
            await asyncio.sleep(6)
            assert world.counts() == []
            status = world.scaling_status()
            assert (status["desired"], status["limitedBy"]) == (4, ["site"])
            assert status["why"].startswith(
                "4 replicas, although 1 replica is desired: the site has stopped scaling down (incident 4711)"
            )
            desired[DIGITS] = 6
            await asyncio.sleep(6)
            assert world.counts() == [6]
            stored.text = ""
            await hold.poll()
            desired[DIGITS] = 2
            await asyncio.sleep(6)
            assert world.counts() == [6, 2]

    live(scenario)


def test_a_manual_change_that_scaling_undoes_has_an_event() -> None:
    async def scenario(world: OperatorReplica) -> None:
        events: list[NewEvent] = []
        world.scaler.events = lambda _, new: events.append(new)
        world.dictate().desired[DIGITS] = 3
        world.model(replicas=3, actuator=Actuator.DIRECT)
        async with Running(world.scaler):
            await asyncio.sleep(6)
            assert events == []
            world.scale(DIGITS, 5)
            await asyncio.sleep(6)

        assert world.counts() == [3]
        (event,) = events
        assert (event.type, event.reason) == ("Normal", "ManualScaleReverted")
        assert event.message.startswith(
            "spec.replicas was set to 5, but spec.scaling.mode is Active, so scaling sets it to 3"
        )
        assert "halcyon scale digits 5 --pause" in event.message

    live(scenario)
