"""What has happened to models lately, from changes of their status."""

from __future__ import annotations

from typing import Any

from halcyon.control.reporting.recent_events import MAX_EVENTS, MAX_MODELS, RecentEvents
from halcyon.kube.event_recorder import QUIET_S
from halcyon.kube.kinds import Key
from tests.clocks import DrivenClock

KEY = Key("team", "digits")


class ManualClock:
    """Stands until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def model(ready: str, reason: str = "Ready", message: str = "so it is", **status: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "reason": reason, "message": message}
    return {"metadata": {"namespace": "team", "name": "digits"}, "status": {"conditions": [condition], **status}}


def test_changes_are_kept_the_newest_first() -> None:
    wall = ManualClock()
    happened = RecentEvents(DrivenClock(wall))
    happened.changed(KEY, None, model("False"))
    assert happened.of(KEY) == ()

    happened.changed(KEY, model("False"), model("True", message="1 of 1"))
    wall.now += 5
    happened.changed(KEY, model("True"), model("False", "Unschedulable", "no room"))

    assert [(e.at, e.type, e.reason, e.message) for e in happened.of(KEY)] == [
        (1005.0, "Warning", "Unschedulable", "no room"),
        (1000.0, "Normal", "Ready", "1 of 1"),
    ]


def test_an_event_without_information_is_not_kept() -> None:
    happened = RecentEvents(DrivenClock(ManualClock()))
    happened.changed(KEY, model("True"), model("True", replicas={"ready": 2}))
    happened.changed(KEY, model("True"), model("True", message="2 of 2"))

    assert happened.of(KEY) == ()


def test_the_same_again_is_kept_after_a_while_only() -> None:
    wall = ManualClock()
    happened = RecentEvents(DrivenClock(wall))
    for _ in range(3):
        happened.changed(KEY, model("False"), model("True"))
    assert len(happened.of(KEY)) == 1
    wall.now += QUIET_S
    happened.changed(KEY, model("False"), model("True"))
    assert len(happened.of(KEY)) == 2


def test_the_history_is_bounded_and_goes_with_the_model() -> None:
    happened = RecentEvents(DrivenClock(ManualClock()))
    for n in range(2 * MAX_EVENTS):
        happened.changed(KEY, model("False"), model("True", message=f"number {n}"))
    assert len(happened.of(KEY)) == MAX_EVENTS
    assert happened.of(KEY)[0].message == f"number {2 * MAX_EVENTS - 1}"

    for n in range(MAX_MODELS - 1):
        happened.changed(Key("team", f"other-{n}"), model("False"), model("True"))
    assert happened.of(KEY)
    happened.changed(Key("team", "one-more"), model("False"), model("True"))
    assert happened.of(KEY) == ()

    other = Key("team", "other-1")
    happened.changed(other, model("True"), None)
    assert happened.of(other) == ()


def test_a_model_that_was_created_again_begins_without_events() -> None:
    happened, again = RecentEvents(DrivenClock(ManualClock())), model("True")
    happened.changed(KEY, model("False"), model("True"))
    assert len(happened.of(KEY)) == 1
    again["metadata"]["uid"], again["status"] = "another", {}
    happened.changed(KEY, model("True"), again)
    assert happened.of(KEY) == ()


def test_a_status_that_was_deleted_causes_no_event() -> None:
    happened, bare = RecentEvents(DrivenClock(ManualClock())), model("True")
    bare["status"] = {}
    happened.changed(KEY, model("True"), bare)
    assert happened.of(KEY) == ()
