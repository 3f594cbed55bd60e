"""A watched start takes the times of containers from Events, or without the right to read them from the pod's status."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon_cli.bench.cold_start import start_watch
from halcyon_cli.errors import ClusterError

STARTED = {"reason": "Started", "regarding": {"fieldPath": "spec.containers{triton}"}}


def pod(*, runs: bool, ready: bool) -> dict[str, Any]:
    state: dict[str, Any] = {"running": {}} if runs else {"waiting": {}}
    return {
        "metadata": {"name": "digits-a-1", "uid": "1"},
        "spec": {"nodeName": "n1"},
        "status": {
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": "triton", "state": state}],
        },
    }


class Cluster:
    """A cluster whose pod shows its container in the third reading, and is ready then."""

    def __init__(self, events: list[Any] | ClusterError) -> None:
        self._events = events
        self._pods = [pod(runs=False, ready=False), pod(runs=False, ready=False), pod(runs=True, ready=True)]
        self.asked: list[str] = []

    def items(self, kind: Kind, *, selector: str = "", fields: str = "") -> list[Any]:
        assert selector or fields
        if kind == kinds.EVENT:
            self.asked.append(fields)
            if isinstance(self._events, ClusterError):
                raise self._events
            return self._events
        return [self._pods.pop(0)]

    def follow_log(self, *_: Any) -> Iterator[str]:
        return iter(())


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second pass between two readings."""
    now = iter(range(1_000_000))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(time, "time", lambda: float(next(now)))


def watched(cluster: Cluster) -> Any:
    [start] = start_watch.watch(
        cluster,  # type: ignore[arg-type]  # it has what is called
        "digits",
        model="digits",
        starts=1,
        timeout_s=60,
        keep=lambda: None,
    )
    return start


def test_container_of_an_event_has_started_before_its_status_shows_it() -> None:
    cluster = Cluster([STARTED])
    start = watched(cluster)
    assert start.server_container == start.first_container < start.ready
    assert set(cluster.asked) == {"regarding.uid=1"}


def test_events_that_may_not_be_read_are_read_once() -> None:
    cluster = Cluster(ClusterError("forbidden"))
    start = watched(cluster)
    assert start.server_container == start.ready
    assert len(cluster.asked) == 1
