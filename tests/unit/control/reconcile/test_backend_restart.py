from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from typing_extensions import override

from halcyon.control.objects import pods
from halcyon.control.reconcile.backend_restart import (
    FORGET_S,
    MIN_BACKOFF_S,
    RESTART_TIMEOUT_S,
    BackendRestart,
    Order,
    Record,
    record_due,
)
from halcyon.control.state.scope import Scope, Signals
from halcyon.kube import errors, kinds
from halcyon.kube.client import Object
from halcyon.kube.event_recorder import EventRecorder
from halcyon.kube.kinds import Key, Kind
from halcyon.render import names
from tests.clocks import DrivenClock
from tests.unit.control.scope_builders import SITE
from tests.unit.kube.memory_kube import MemoryKube


def pod(name: str, *, ready: bool = True, restarts: int = 0) -> Object:
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [{"name": names.TRITON, "restartCount": restarts}],
    }
    meta = {"namespace": "team", "name": name, "uid": name, "resourceVersion": "1"}
    return {"metadata": meta, "status": status}


class PodsOfAModel(MemoryKube):
    """Pods in memory; an eviction removes one at once."""

    @override
    async def evict(self, namespace: str, pod: Object) -> None:
        del self.objects[kinds.POD, namespace, pod["metadata"]["name"]]


@dataclass
class LockedPods(PodsOfAModel):
    """Pods that a policy protects against changes, and perhaps against evictions."""

    evictable: bool = True

    def __post_init__(self) -> None:
        super().__init__()

    @override
    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        raise errors.Refused(403, "changes of pods are not allowed")

    @override
    async def evict(self, namespace: str, pod: Object) -> None:
        if not self.evictable:
            raise errors.Refused(403, "evictions are not allowed")
        await super().evict(namespace, pod)


@dataclass
class RepairedModel:
    """A model whose pods are restarted at times that a test chooses."""

    now: float = 1000.0
    api: PodsOfAModel = field(default_factory=PodsOfAModel)

    def __post_init__(self) -> None:
        clock = DrivenClock(lambda: self.now)
        self.events = EventRecorder(self.api, instance="operator-0", clock=clock)
        self.restarts = BackendRestart(self.api, self.events, clock)

    def put(self, *pod_objects: Object) -> None:
        for pod_object in pod_objects:
            self.api.objects[kinds.POD, "team", pod_object["metadata"]["name"]] = pod_object

    def repair(self, **dead: str) -> float | None:
        """Reconcile with these pods reported dead; the delay until the next look."""
        live_pods = tuple(
            pods.project(p) for (kind, _, _), p in sorted(self.api.objects.items(), key=str) if kind is kinds.POD
        )
        resource = {"metadata": {"namespace": "team", "name": "m", "uid": "u"}}
        scope = Scope(
            resource, SITE, {}, pods=live_pods, signals=Signals(dead={n.replace("_", "-"): w for n, w in dead.items()})
        )
        return asyncio.run(self.restarts.repair(scope))

    def ordered(self) -> set[str]:
        """Return the pods that were ever ordered to restart."""
        return {
            name
            for (kind, _, name), pod_object in self.api.objects.items()
            if kind is kinds.POD and names.RESTART_ANNOTATION in (pod_object["metadata"].get("annotations") or {})
        }

    def order_of(self, name: str) -> str:
        annotations: dict[str, Any] = self.api.objects[kinds.POD, "team", name]["metadata"].get("annotations") or {}
        return str(annotations.get(names.RESTART_ANNOTATION, ""))

    def notes(self) -> list[str]:
        return [cast("str", event["note"]) for event, _ in self.events._pending]


def test_without_a_dead_backend_nothing_is_done() -> None:
    model = RepairedModel()
    model.put(pod("a"))
    assert model.repair() is None
    assert model.ordered() == set()


def test_the_only_pod_restarts_in_place_and_the_event_has_the_reason() -> None:
    model = RepairedModel()
    model.put(pod("a"))
    assert model.repair(a="a Python stub process exited with code 139") is not None
    assert model.ordered() == {"a"}
    [note] = model.notes()
    assert note == (
        "the backend of pod a is dead: a Python stub process exited with code 139; "
        "the pod receives no requests, and its container is being restarted"
    )


def test_one_pod_restarts_at_a_time_while_another_serves() -> None:
    model = RepairedModel()
    model.put(pod("a"), pod("b"), pod("c"))
    model.repair(a="x", b="x")
    assert model.ordered() == {"a"}
    model.now += 3
    model.repair(a="x", b="x")
    assert model.ordered() == {"a"}, "its container has yet to restart"
    model.put(pod("a", ready=False, restarts=1))
    model.now += 60
    model.repair(b="x")
    assert model.ordered() == set(), "its container has yet to be ready"
    model.put(pod("a", restarts=1))
    model.repair(b="x")
    assert model.ordered() == {"b"}


def test_pods_restart_together_if_none_serves() -> None:
    model = RepairedModel()
    model.put(pod("a"), pod("b"))
    model.repair(a="x", b="x")
    model.repair(a="x", b="x")
    assert model.ordered() == {"a", "b"}


def test_a_pod_that_dies_after_two_restarts_is_replaced() -> None:
    model = RepairedModel()
    model.put(pod("a"))
    model.repair(a="x")
    orders = [model.order_of("a")]
    for count, backoff_s in ((1, 10), (2, 20)):
        model.put(
            {
                **pod("a", restarts=count),
                "metadata": {**pod("a")["metadata"], "annotations": {names.RESTART_ANNOTATION: orders[-1]}},
            }
        )
        model.now += backoff_s - 1
        assert model.repair(a="x") == 1, "it died alike again, so its restart waits"
        model.now += 1
        model.repair(a="x")
        if count == 1:
            orders.append(model.order_of("a"))
    assert orders[0] != orders[1]
    assert (kinds.POD, "team", "a") not in model.api.objects
    assert model.notes()[-1] == (
        "the backend of pod a is dead: x; the pod is being replaced, because its backend died again after 2 restarts"
    )


@pytest.mark.parametrize("evictable", [True, False])
def test_a_pod_whose_restart_is_rejected_is_replaced(evictable: bool) -> None:
    model = RepairedModel(api=LockedPods(evictable=evictable))
    model.put(pod("a"))
    assert model.repair(a="is not healthy") is not None
    model.now += MIN_BACKOFF_S * 2
    assert model.repair(a="is not healthy") is not None

    assert ((kinds.POD, "team", "a") not in model.api.objects) == evictable
    first, second = model.notes()
    assert first == (
        "the backend of pod a is dead: is not healthy; the API server rejected the restart of its container; the pod is replaced instead: "
        "changes of pods are not allowed"
    )
    assert ("the API server rejected the eviction of the pod: evictions are not allowed" in second) != evictable
    # The next attempt waits longer.
    model.now += MIN_BACKOFF_S * 2
    model.repair(a="is not healthy")
    assert len(model.notes()) == 2


def test_a_container_that_does_not_restart_counts_as_failed() -> None:
    model = RepairedModel()
    model.put(pod("a"), pod("b"))
    model.repair(a="x")
    first = model.order_of("a")
    model.now += RESTART_TIMEOUT_S - 1
    model.repair(a="x")
    assert model.order_of("a") == first
    model.now += 1
    model.repair(a="x")
    assert model.order_of("a") != first


@pytest.mark.parametrize(
    ("restarts", "replaced", "backoff_s"),
    [(0, 0, 0), (1, 0, 10), (2, 0, 20), (0, 1, 10), (1, 1, 20), (2, 3, 160), (2, 9, 300)],
)
def test_each_restart_and_replacement_doubles_the_backoff_up_to_a_limit(
    restarts: int, replaced: int, backoff_s: float
) -> None:
    record = Record(50.0, {"a": Order(100.0, 0, restarts)} if restarts else {}, replaced)
    assert record_due(record, "a") == (100.0 if restarts else 50.0) + backoff_s


def test_a_model_that_was_well_for_ten_minutes_restarts_at_once() -> None:
    model = RepairedModel()
    model.put(pod("a"))
    model.repair(a="x")
    model.put(pod("a", restarts=1))
    model.now += FORGET_S + 1
    model.repair(a="x")
    assert model.ordered() == {"a"}


def test_a_deleted_model_is_forgotten() -> None:
    model = RepairedModel()
    model.put(pod("a"))
    model.repair(a="x")
    model.restarts.forget(Key("team", "m"))
    assert model.restarts._records == {}


def test_restarts_count_however_long_the_model_takes_to_load() -> None:
    model = RepairedModel()
    model.put(pod("a"))
    for restarts in (1, 2):
        model.repair(a="x")
        model.put(pod("a", ready=False, restarts=restarts))
        model.now += FORGET_S * 0.5
        model.repair()
        model.now += FORGET_S * 0.9
        model.put(pod("a", restarts=restarts))
    model.repair(a="x")
    assert (kinds.POD, "team", "a") not in model.api.objects, "its backend died again after two restarts"


def test_a_pod_that_never_gets_ready_delays_other_restarts_for_ten_minutes() -> None:
    model = RepairedModel()
    model.put(pod("a"), pod("b"), pod("c"))
    model.repair(a="x")
    model.put(pod("a", ready=False, restarts=1))
    model.now += FORGET_S
    model.repair(b="x")
    assert model.ordered() == set()
    model.now += 1
    model.repair(b="x")
    assert model.ordered() == {"b"}
