"""Which changes are worth an event, and that the same isn't told twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halcyon.control.status.events import status_events
from halcyon.kube import errors
from halcyon.kube.event_recorder import PENDING, QUIET_S, WRITERS, EventRecorder, NewEvent, status_rejected
from halcyon.kube.kinds import EVENT
from tests.clocks import DrivenClock
from tests.unit.control.scope_builders import UID, resource
from tests.unit.kube.memory_kube import MemoryKube
from tests.unit.kube.virtual_time import VirtualTime, run


def status(**conditions: tuple[str, str]) -> dict[str, Any]:
    """A status whose conditions have this status and reason; the message is the reason in small letters."""
    return {
        "conditions": [
            {"type": kind, "status": value, "reason": reason, "message": reason.lower()}
            for kind, (value, reason) in conditions.items()
        ]
    }


GOOD = {"Accepted": ("True", "Accepted"), "Ready": ("True", "Ready")}
STARTING = {"Accepted": ("True", "Accepted"), "Ready": ("False", "NoServersReady")}
INVALID = {"Accepted": ("False", "Invalid"), "Ready": ("False", "Invalid"), "Stalled": ("True", "Invalid")}
TROUBLED = {"BalancerReady": ("True", "BalancerDegraded")}
FAILED = {"Accepted": ("True", "Accepted"), "Ready": ("False", "LoadFailed"), "Stalled": ("True", "LoadFailed")}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, STARTING, []),
        (STARTING, STARTING, []),
        (STARTING, GOOD, [("Normal", "Ready")]),
        ({}, GOOD, [("Normal", "Ready")]),
        (GOOD, GOOD, []),
        (GOOD, STARTING, [("Warning", "NoServersReady")]),
        ({}, INVALID, [("Warning", "Invalid")]),
        (GOOD, INVALID, [("Warning", "Invalid")]),
        (INVALID, INVALID, []),
        (INVALID, INVALID | {"Accepted": ("False", "Conflict")}, [("Warning", "Conflict")]),
        (STARTING, FAILED, [("Warning", "LoadFailed")]),
        (FAILED, FAILED, []),
        (FAILED, FAILED | {"Stalled": ("True", "ModelConfigInvalid")}, [("Warning", "ModelConfigInvalid")]),
        (GOOD, FAILED, [("Warning", "LoadFailed")]),
        (FAILED, GOOD, [("Normal", "Ready")]),
        (GOOD, GOOD | {"Ready": ("True", "ScaledToZero")}, []),
        (GOOD, GOOD | TROUBLED, [("Warning", "BalancerDegraded")]),
        (GOOD | TROUBLED, GOOD | TROUBLED, []),
        (GOOD | TROUBLED, GOOD | {"BalancerReady": ("True", "BalancerReady")}, []),
        (GOOD, GOOD | TROUBLED | {"Ready": ("False", "BalancerDegraded")}, [("Warning", "BalancerDegraded")]),
        (GOOD, GOOD | {"Ready": ("Unknown", "Unknown")}, [("Warning", "Unknown")]),
    ],
)
def test_happenings_follow_their_table(before: Any, after: Any, expected: list[tuple[str, str]]) -> None:
    events = status_events(status(**before), status(**after))

    assert [(h.type, h.reason) for h in events] == expected
    assert all(h.message == h.reason.lower() for h in events)


NO_ROOM = {
    "phase": "Progressing",
    "strategyReason": "no capacity for an additional pod was available for 1m: pod p needs 1 more nvidia.com/gpu",
}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, NO_ROOM, [("Normal", "ReplacingPods")]),
        (NO_ROOM, NO_ROOM, []),
        ({}, {"phase": "Blocked", "message": "is waiting for capacity"}, [("Warning", "RolloutBlocked")]),
        ({"phase": "Blocked"}, {"phase": "Blocked", "message": "waits for more room"}, []),
    ],
)
def test_unrequested_steps_of_a_rollout_cause_one_event(
    before: Any, after: Any, expected: list[tuple[str, str]]
) -> None:
    events = status_events({**status(**GOOD), "rollout": before}, {**status(**GOOD), "rollout": after})

    assert [(h.type, h.reason) for h in events] == expected


@pytest.mark.parametrize(("strategy", "reasons"), [("Replace", []), ("Auto", ["ReplacingPods"])])
@pytest.mark.parametrize(
    "why", ["spec.rollout.strategy is Replace", "volume data is attached to node n1", "no capacity for it"]
)
def test_a_replacement_that_the_spec_demands_causes_no_event(strategy: str, reasons: list[str], why: str) -> None:
    before, after = status(**GOOD), {**status(**GOOD), "rollout": {"strategyReason": why}}
    events = status_events(before, after, {"rollout": {"strategy": strategy}})

    assert [event.reason for event in events] == reasons


def test_a_blocked_and_stalled_rollout_is_reported_as_blocked_alone() -> None:
    stalled = GOOD | {"Stalled": ("True", "RolloutBlocked")}
    events = status_events(status(**GOOD), {**status(**stalled), "rollout": {"phase": "Blocked", "message": "x"}})

    assert [h.reason for h in events] == ["RolloutBlocked"]


class Clock:
    """A clock that moves when it is told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_an_event_names_its_object_and_is_not_repeated_for_a_while() -> None:
    kube, clock = MemoryKube(), Clock()
    recorder = EventRecorder(kube, instance="x" * 200, clock=DrivenClock(clock))
    happening = NewEvent("Warning", "LoadFailed", "y" * 2000)

    recorder.record(resource(), happening)
    clock.now += QUIET_S - 1
    recorder.record(resource(), happening)
    await recorder.flush(5)
    (event,) = kube.objects.values()
    assert event["regarding"]["uid"] == UID
    assert (event["type"], event["reason"], len(event["note"])) == ("Warning", "LoadFailed", 1024)
    assert len(event["reportingInstance"]) == 128
    assert event["metadata"]["namespace"] == "team"

    clock.now += 2
    recorder.record(resource(), happening)
    recorder.record(resource(), NewEvent("Warning", "LoadFailed", "another"))
    await recorder.flush(5)
    assert len(kube.objects) == 3
    assert {kind for kind, _, _ in kube.objects} == {EVENT}


def test_an_event_about_a_recreated_object_is_not_a_repetition() -> None:
    recorder = EventRecorder(MemoryKube(), instance="x", clock=DrivenClock(Clock()))
    first, second, ready = resource(), resource(), NewEvent("Normal", "Ready", "1 of 1 servers are ready")
    second["metadata"]["uid"] = "another"
    assert [recorder.record(obj, ready) for obj in (first, first, second)] == [True, False, True]


def test_rejections_of_a_status_with_varying_texts_are_one_event() -> None:
    clock = Clock()
    recorder = EventRecorder(MemoryKube(), instance="x", clock=DrivenClock(clock))
    rejections = [status_rejected(errors.Refused(422, f"denied at {at} by request {at * 7}")) for at in (1, 2, 3)]
    assert [recorder.record(resource(), new) for new in rejections] == [True, False, False]
    clock.now += QUIET_S
    assert recorder.record(resource(), rejections[0])


async def test_an_event_fits_the_limit_of_its_message_in_bytes() -> None:
    kube = MemoryKube()
    recorder = EventRecorder(kube, instance="x", clock=DrivenClock(Clock()))
    recorder.record(resource(), NewEvent("Warning", "Invalid", "y" * 1023 + "…"))
    await recorder.flush(5)
    (event,) = kube.objects.values()
    assert len(event["note"].encode()) <= 1024, "the API server counts bytes"
    assert event["note"] == "y" * 1023


async def test_an_event_about_the_longest_name_has_a_valid_name() -> None:
    kube = MemoryKube()
    long = resource()
    long["metadata"]["name"] = "a" * 199 + "-" + "b" * 53
    recorder = EventRecorder(kube, instance="x", clock=DrivenClock(Clock()))
    recorder.record(long, NewEvent("Warning", "Invalid", "m"))
    await recorder.flush(5)

    (event,) = kube.objects.values()
    assert len(event["metadata"]["name"]) <= 253
    assert "-." not in event["metadata"]["name"]
    assert event["regarding"]["name"] == long["metadata"]["name"]


async def test_an_event_that_cannot_be_written_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    recorder = EventRecorder(MemoryKube().seen_by(lambda _: "refuse"), instance="x", clock=DrivenClock(Clock()))

    recorder.record(resource(), NewEvent("Normal", "Ready", "m"))
    await recorder.flush(5)

    assert "cannot write an event" in caplog.text


def test_an_event_is_written_once_the_api_server_responds_again() -> None:
    async def scenario(now: VirtualTime) -> list[str]:
        kube, fates = MemoryKube(), iter(["refuse", "lose", "refuse"])
        recorder = EventRecorder(kube.seen_by(lambda _: next(fates, "ok")), instance="x", clock=DrivenClock(now))
        writing = asyncio.create_task(recorder.run())
        recorder.record(resource(), NewEvent("Warning", "RolledBack", "m"))
        await asyncio.sleep(60)
        writing.cancel()
        return [event["note"] for event in kube.objects.values()]

    assert run(scenario) == ["m"]


def test_events_of_an_outage_are_written_or_dropped_oldest_first() -> None:
    async def scenario(now: VirtualTime) -> list[str]:
        kube = MemoryKube()
        recorder = EventRecorder(
            kube.seen_by(lambda _: "refuse" if now() < 100 else "ok"), instance="x", clock=DrivenClock(now)
        )
        writing = asyncio.create_task(recorder.run())
        for number in range(PENDING + 2 * WRITERS):
            recorder.record(resource(), NewEvent("Normal", "ScaledUp", str(number)))
            await asyncio.sleep(0.01)
        await asyncio.sleep(200)
        writing.cancel()
        return [event["note"] for event in kube.objects.values()]

    written = run(scenario)
    assert len(written) == len(set(written)) >= PENDING
    assert str(PENDING + 2 * WRITERS - 1) in written


async def test_events_are_written_in_the_background_and_in_order() -> None:
    kube = MemoryKube()
    recorder = EventRecorder(kube, instance="x", clock=DrivenClock(Clock()))
    writing = asyncio.create_task(recorder.run())
    for part in ("ab", "cd"):
        for message in part:
            recorder.record(resource(), NewEvent("Normal", "ScaledUp", message))
        for _ in range(20):
            await asyncio.sleep(0)
    writing.cancel()

    assert [event["note"] for event in kube.objects.values()] == list("abcd")


async def test_the_oldest_of_too_many_events_goes_and_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    kube = MemoryKube()
    recorder = EventRecorder(kube, instance="x", clock=DrivenClock(Clock()))
    for number in range(PENDING + 1):
        recorder.record(resource(), NewEvent("Normal", "ScaledUp", str(number)))
    await recorder.flush(5)

    assert "too many queued events; the oldest is dropped" in caplog.text
    assert len(kube.objects) == PENDING
    assert "0" not in {event["note"] for event in kube.objects.values()}


def test_the_log_of_a_dropped_event_names_the_model_of_this_event(caplog: pytest.LogCaptureFixture) -> None:
    recorder, other = EventRecorder(MemoryKube(), instance="x", clock=DrivenClock(Clock())), resource()
    other["metadata"] |= {"name": "other", "uid": "another"}
    for number in range(PENDING):
        recorder.record(resource(), NewEvent("Normal", "ScaledUp", str(number)))
    recorder.record(other, NewEvent("Normal", "Ready", "m"))
    (line,) = caplog.records
    assert vars(line).items() >= {"key": "team/digits", "lost": "ScaledUp"}.items()


async def test_a_flush_ends_in_time_and_where_another_leads() -> None:
    def lost(_: str) -> str:
        raise errors.LeaseLost("another leads")

    for kube in (MemoryKube().seen_by(lambda _: "hang"), MemoryKube().seen_by(lost)):
        recorder = EventRecorder(kube, instance="x", clock=DrivenClock(Clock()))
        recorder.record(resource(), NewEvent("Normal", "Ready", "m"))
        async with asyncio.timeout(5):
            await recorder.flush(0.01)


def change(before: int, after: int, *, at: str = "10:00") -> dict[str, Any]:
    return {"time": f"2026-01-01T{at}:00Z", "before": before, "after": after, "why": "412 req/s needs it"}


def scaled(*decisions: dict[str, Any], mode: str = "Active") -> dict[str, Any]:
    """A status with these decisions, the newest first."""
    return status(**GOOD) | {"scaling": {"mode": mode, "decisions": list(decisions)}}


UP, DOWN, AGAIN = change(2, 5), change(5, 3, at="10:10"), change(2, 5, at="10:20")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (scaled(), scaled(), []),
        (scaled(), scaled(UP), ["ScaledUp"]),
        (status(**GOOD), scaled(UP), ["ScaledUp"]),
        (scaled(UP), scaled(UP), []),
        (scaled(UP), scaled(DOWN, UP), ["ScaledDown"]),
        (scaled(), scaled(DOWN, UP), ["ScaledUp", "ScaledDown"]),
        (scaled(DOWN, UP), scaled(AGAIN, DOWN), ["ScaledUp"]),
        (scaled(DOWN, UP), scaled(UP), []),
        (scaled(UP), status(**GOOD), []),
        (scaled(mode="Recommend"), scaled(UP, mode="Recommend"), ["Recommended"]),
        (scaled(mode="Paused"), scaled(DOWN, mode="Paused"), ["Recommended"]),
        (scaled(UP, mode="Recommend"), scaled(UP), []),
    ],
)
def test_every_change_of_desired_replicas_causes_one_event_in_order(
    before: Any, after: Any, expected: list[str]
) -> None:
    events = status_events(before, after)

    assert [(h.type, h.reason) for h in events] == [("Normal", reason) for reason in expected]


def test_a_change_of_replicas_is_reported_with_its_reason_beside_other_events() -> None:
    starting = status(**STARTING)
    events = status_events(starting, scaled(UP))

    assert [h.reason for h in events] == ["Ready", "ScaledUp"]
    assert events[1].message == "desired replicas changed from 2 to 5: 412 req/s needs it"


def test_an_ignored_capacity_causes_one_event() -> None:
    ignored = {**status(**GOOD), "capacity": {"ignored": "ConfigMap digits-capacity is ignored: it has no key"}}
    other = {**status(**GOOD), "capacity": {"ignored": "ConfigMap digits-capacity is ignored: its version"}}

    (event,) = status_events(status(**GOOD), ignored)
    assert (event.type, event.reason, event.message) == ("Normal", "CapacityIgnored", ignored["capacity"]["ignored"])
    assert status_events(ignored, ignored) == []
    assert status_events(ignored, other) == []
