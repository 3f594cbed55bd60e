"""Which changes are worth an event, and that the same isn't told twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halcyon.control.events import QUIET_S, Happening, Recorder, happenings
from halcyon.control.kinds import EVENT
from tests.unit.control.memory_kube import MemoryKube
from tests.unit.control.objects import UID, resource


def status(**conditions: tuple[str, str]) -> dict[str, Any]:
    """A status whose conditions have this status and reason; the message is the reason in small letters."""
    return {
        "conditions": [
            {"type": kind, "status": value, "reason": reason, "message": reason.lower()}
            for kind, (value, reason) in conditions.items()
        ]
    }


GOOD = {"Accepted": ("True", "Accepted"), "Ready": ("True", "Ready")}
STARTING = {"Accepted": ("True", "Accepted"), "Ready": ("False", "NoneReady")}
INVALID = {"Accepted": ("False", "Invalid"), "Ready": ("False", "Invalid"), "Stalled": ("True", "Invalid")}
FAILED = {"Accepted": ("True", "Accepted"), "Ready": ("False", "LoadFailed"), "Stalled": ("True", "LoadFailed")}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, STARTING, []),
        (STARTING, STARTING, []),
        (STARTING, GOOD, [("Normal", "Ready")]),
        ({}, GOOD, [("Normal", "Ready")]),
        (GOOD, GOOD, []),
        (GOOD, STARTING, [("Warning", "NoneReady")]),
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
        (GOOD, GOOD | {"Ready": ("Unknown", "Unknown")}, [("Warning", "Unknown")]),
    ],
)
def test_happenings_follow_their_table(before: Any, after: Any, expected: list[tuple[str, str]]) -> None:
    found = happenings(status(**before), status(**after))

    assert [(h.type, h.reason) for h in found] == expected
    assert all(h.message == h.reason.lower() for h in found)


class Clock:
    """A clock that moves when it is told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_an_event_says_what_it_is_about_and_is_not_told_again_for_a_while() -> None:
    kube, clock = MemoryKube(), Clock()
    recorder = Recorder(kube, instance="x" * 200, clock=clock)
    happening = Happening("Warning", "LoadFailed", "y" * 2000)

    await recorder.tell(resource(), happening)
    clock.now += QUIET_S - 1
    await recorder.tell(resource(), happening)
    (event,) = kube.objects.values()
    assert event["regarding"]["uid"] == UID
    assert (event["type"], event["reason"], len(event["note"])) == ("Warning", "LoadFailed", 1024)
    assert len(event["reportingInstance"]) == 128
    assert event["metadata"]["namespace"] == "team"

    clock.now += 2
    await recorder.tell(resource(), happening)
    await recorder.tell(resource(), Happening("Warning", "LoadFailed", "another"))
    assert len(kube.objects) == 3
    assert {kind for kind, _, _ in kube.objects} == {EVENT}


async def test_an_event_that_cannot_be_written_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(MemoryKube().seen_by(lambda _: "refuse"), instance="x", clock=Clock())

    async with asyncio.timeout(5):
        await recorder.tell(resource(), Happening("Normal", "Ready", "m"))

    assert "cannot write an event" in caplog.text
