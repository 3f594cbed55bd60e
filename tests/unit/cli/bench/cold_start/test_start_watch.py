"""A watched start takes times from watches, or lists if it may not watch, and from Events if it may read them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon_cli.bench.cold_start import start_readings, start_watch
from halcyon_cli.errors import ClusterError

STARTED: dict[str, Any] = {"reason": "Started", "regarding": {"uid": "1", "fieldPath": "spec.containers{triton}"}}
FORBIDDEN = ClusterError("forbidden")


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


WAITS, READY = pod(runs=False, ready=False), pod(runs=True, ready=True)


@dataclass
class Cluster:
    """A cluster whose pod starts after its Event, and is ready then."""

    events: Sequence[dict[str, Any]] | ClusterError
    may_watch: bool = True
    lists: list[Kind] = field(default_factory=list)
    _event: threading.Event = field(default_factory=threading.Event)

    def listing(self, kind: Kind, *, selector: str = "", fields: str = "") -> tuple[list[Any], str]:
        assert selector or fields
        self.lists.append(kind)
        if kind == kinds.EVENT:
            if isinstance(self.events, ClusterError):
                self._event.set()
                raise self.events
            if not self.may_watch:
                self._event.set()
                return list(self.events), "1"
            return [], "1"
        if self.may_watch or self.lists.count(kinds.POD) < 3:
            return [WAITS], "1"
        return [READY], "1"

    def watch(self, kind: Kind, **_: str) -> Iterator[tuple[str, Any]]:
        if not self.may_watch:
            raise FORBIDDEN
        if kind == kinds.EVENT:
            assert not isinstance(self.events, ClusterError)
            yield from (("ADDED", event) for event in self.events)
            self._event.set()
        else:
            self._event.wait(5)
            time.sleep(0.02)
            yield "BOOKMARK", {"metadata": {}}
            yield "MODIFIED", READY
        threading.Event().wait(1)

    def follow_log(self, *_: Any) -> Iterator[str]:
        return iter(())


def watched(cluster: Cluster) -> Any:
    [start] = start_watch.watch(
        cluster,  # type: ignore[arg-type]  # it has what is called
        "digits",
        model="digits",
        starts=1,
        timeout_s=5,
        keep=lambda: None,
    )
    return start


@pytest.mark.parametrize("may_watch", [True, False])
def test_container_of_an_event_has_started_before_its_status_shows_it(*, may_watch: bool) -> None:
    start = watched(Cluster([STARTED], may_watch))
    assert start.failure == ""
    assert start.server_container == start.first_container < start.ready


def test_event_of_another_pod_shows_no_container_of_this_one() -> None:
    start = watched(Cluster([{**STARTED, "regarding": {**STARTED["regarding"], "uid": "2"}}]))
    assert start.server_container == start.ready


def test_steps_of_a_watched_pod_need_one_list() -> None:
    cluster = Cluster([STARTED])
    began = time.time()
    start = watched(cluster)
    assert cluster.lists.count(kinds.POD) == 1
    assert 0.02 <= start.ready - began < 1


def test_events_that_may_not_be_read_are_read_once() -> None:
    cluster = Cluster(FORBIDDEN)
    start = watched(cluster)
    assert start.server_container == start.ready
    assert cluster.lists.count(kinds.EVENT) == 1


def test_pods_that_may_not_be_listed_are_an_error() -> None:
    class Closed(Cluster):
        def listing(self, kind: Kind, *, selector: str = "", fields: str = "") -> tuple[list[Any], str]:
            raise ClusterError(f"{kind.plural} {selector} {fields}: forbidden")

    with pytest.raises(ClusterError, match="forbidden"):
        watched(Closed([]))


def test_list_that_fails_for_a_moment_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(Cluster):
        def listing(self, kind: Kind, *, selector: str = "", fields: str = "") -> tuple[list[Any], str]:
            listed = super().listing(kind, selector=selector, fields=fields)
            if self.lists.count(kind) == 2:
                raise ClusterError("https://api can't be reached")
            return listed

    monkeypatch.setattr(start_readings, "_RETRY_S", 0.01)
    cluster = Away([STARTED], may_watch=False)
    assert watched(cluster).failure == ""
    assert cluster.lists.count(kinds.POD) >= 3
