"""When a run of the fault campaigns is at rest: by the operator's queues, and by time if something stays scheduled."""

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.faults import rest
from tests.faults.rest import IDLE_S, REST_S, SETTLED_AFTER_S, at_rest
from tests.integration.proxy import Request

SPACE = "f-1"


@dataclass
class Time:
    """A clock that sleeps at once."""

    now: float = 100.0

    def monotonic(self) -> float:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.now += seconds


@dataclass
class Scene:
    """An operator with a door, and when objects have changed."""

    clock: Time = field(default_factory=Time)
    began: float = 0.0
    ready: float = 0.0
    waiting: float = 0.0
    seen: list[Request] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)
    changed: float = 0.0

    def metrics(self) -> dict[str, float]:
        """Return the samples of the operator's queues."""
        return {"halcyon_queue_ready": self.ready, "halcyon_queue_waiting": self.waiting}

    def writes(self) -> list[Request]:
        """Return the writes through the door."""
        return self.seen

    def changed_at(self, namespaces: set[str]) -> float:
        """Return the time of the last change."""
        assert namespaces == {SPACE}
        return self.changed

    def wait(self, *, limit_s: float = 100.0, settled: bool = True) -> tuple[dict[str, str], float]:
        """Wait for rest; return the writes that are left and the time that it took, in seconds."""
        this: Any = self
        began = self.clock.now
        left = at_rest(this, this, this, {SPACE}, began + limit_s, settled=settled)
        return left, self.clock.now - began

    def write(self, at: float, *, namespace: str = SPACE, target: str = "services/m") -> None:
        """Add a write."""
        self.seen.append(Request("PATCH", f"/api/v1/namespaces/{namespace}/{target}", False, at, 1))


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A scene with an operator that was started long ago."""
    made = Scene()
    monkeypatch.setattr(rest, "time", made.clock)
    return made


def test_runs_are_at_rest_soon_when_the_queues_are_empty(scene: Scene) -> None:
    left, took_s = scene.wait()
    assert left == {}
    assert IDLE_S <= took_s <= IDLE_S + 0.5


def test_runs_with_something_scheduled_wait_longer(scene: Scene) -> None:
    for name in ("ready", "waiting"):
        setattr(scene, name, 1.0)
        left, took_s = scene.wait()
        assert left == {}
        assert took_s >= REST_S
        setattr(scene, name, 0.0)


def test_changed_objects_of_a_run_prolong_its_wait(scene: Scene) -> None:
    scene.changed = scene.clock.now + 3.0
    assert scene.wait()[1] >= 3.0 + IDLE_S


def test_writes_of_the_run_prolong_its_wait_and_others_do_not(scene: Scene) -> None:
    scene.write(scene.clock.now + 3.0, namespace="another")
    scene.write(scene.clock.now + 3.0, target="events/m")
    assert scene.wait()[1] <= IDLE_S + 0.5
    scene.write(scene.clock.now + 3.0)
    assert scene.wait()[1] >= 3.0 + IDLE_S


def test_young_operators_publish_first_that_no_reports_come(scene: Scene) -> None:
    scene.began = scene.clock.now
    assert scene.wait(settled=False)[1] < SETTLED_AFTER_S
    scene.began = scene.clock.now
    assert scene.wait()[1] >= SETTLED_AFTER_S


def test_writes_that_never_end_are_returned_by_namespace(scene: Scene) -> None:
    scene.waiting = 1.0
    scene.write(scene.clock.now + 9.0)
    assert scene.wait(limit_s=10.0)[0] == {SPACE: "PATCH services/m"}


def test_killed_operators_are_not_waited_for(scene: Scene) -> None:
    scene.waiting = 1.0
    scene.closed.set()
    assert scene.wait() == ({}, 0.0)
