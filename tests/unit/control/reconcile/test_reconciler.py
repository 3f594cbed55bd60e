"""What a reconcile does where writes fail; what it writes when all goes well is for the integration tests."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from halcyon.control.desired.plan import ReconcilePlan
from halcyon.control.reconcile.reconciler import Reconciler
from halcyon.control.reconcile.status_writer import (
    COUNTS_INTERVAL_S,
    STATES_INTERVAL_S,
    STATUS_INTERVAL_S,
    _min_interval_s,
)
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.scope import PublishedScaling, Signals
from halcyon.kube import errors
from halcyon.kube.client import FIELD_MANAGER, Object
from halcyon.kube.event_recorder import EventRecorder
from halcyon.kube.kinds import MODEL_DEPLOYMENT, POD, Key, Kind
from halcyon.render import names
from tests.clocks import DrivenClock, SplitClock
from tests.unit.control.reconcile.reconciled_namespace import Team
from tests.unit.control.reconcilers import reconciler, scope_builder
from tests.unit.control.scope_builders import pod, resource
from tests.unit.kube.memory_kube import MemoryKube

DIGITS = Key("team", "digits")


class Applying(MemoryKube):
    """Takes every status; children are for `fate` to decide."""

    def __init__(self, fate: Callable[[], None]) -> None:
        super().__init__()
        self.fate = fate
        self.tried = asyncio.Event()
        self.statuses: list[Object] = []

    @override
    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Object:
        if subresource == "status":
            self.statuses.append(obj["status"])
            return {**obj, "metadata": {**obj["metadata"], "resourceVersion": "1"}}
        self.tried.set()
        await asyncio.sleep(0)
        self.fate()
        await asyncio.Event().wait()
        raise AssertionError


def reconciling(
    kube: Applying, clock: Callable[[], float] = lambda: 1000.0, wall: Callable[[], float] = lambda: 1000.0
) -> Reconciler:
    caches = ClusterState(kube, enqueue=lambda _: None)
    model = resource()
    model["metadata"]["resourceVersion"] = "1"
    caches.resources._store(DIGITS, model)
    kube.objects[MODEL_DEPLOYMENT, "team", "digits"] = model
    claim = {"metadata": {"namespace": "team", "name": "models", "resourceVersion": "1"}}
    caches.claims._store(Key("team", "models"), claim)

    driven = DrivenClock(clock)
    recorder = EventRecorder(kube, instance="op", clock=driven)
    return reconciler(kube, scope_builder(kube, caches, clock=SplitClock(clock, wall)), recorder, driven)


async def test_a_new_refusal_is_requeued_at_once_and_changed_words_are_not() -> None:
    number = itertools.count()

    def refuse() -> None:
        raise errors.Refused(403, f"denied; request {next(number)}")

    subject = reconciling(Applying(refuse))

    assert (await subject.reconcile(DIGITS)).requeue_s == 0.0
    for _ in range(3):
        assert (await subject.reconcile(DIGITS)).requeue_s == STATUS_INTERVAL_S


async def test_new_object_of_the_same_name_begins_without_a_state() -> None:
    class Observer:
        """Records the calls of a reconcile."""

        def __init__(self) -> None:
            self.seen: list[str] = []

        def planned(self, key: Key, _: ReconcilePlan, /) -> None:
            self.seen.append(f"planned {key.name}")

        def deleted(self, key: Key, /) -> None:
            self.seen.append(f"deleted {key.name}")

    def refuse() -> None:
        raise errors.Refused(403, "denied")

    observer, kube = Observer(), Applying(refuse)
    subject = reconciling(kube)
    subject.observers = (observer,)
    await subject.reconcile(DIGITS)
    await subject.reconcile(DIGITS)
    again = resource()
    again["metadata"] |= {"uid": "another", "resourceVersion": "2"}
    # Deleted and created again within the time of one reconcile, so that no reconcile saw it missing.
    subject.caches.resources._store(DIGITS, again)
    kube.objects[MODEL_DEPLOYMENT, "team", "digits"] = again
    await subject.reconcile(DIGITS)
    await subject.reconcile(DIGITS)

    assert observer.seen == ["planned digits", "planned digits", "deleted digits", "planned digits", "planned digits"]


@pytest.mark.parametrize("change", [None, {"uid": "another"}, {"deletionTimestamp": "2026-11-29T12:00:00Z"}])
async def test_objects_of_a_deleted_model_are_not_created(change: dict[str, str] | None) -> None:
    kube = Applying(lambda: None)
    subject = reconciling(kube)
    model = kube.objects.pop((MODEL_DEPLOYMENT, "team", "digits"))
    if change is not None:
        kube.objects[MODEL_DEPLOYMENT, "team", "digits"] = {**model, "metadata": {**model["metadata"], **change}}

    with pytest.raises(
        errors.Conflicted, match="ModelDeployment team/digits was deleted, so its objects are not written"
    ):
        await subject.reconcile(DIGITS)

    assert not kube.tried.is_set()
    assert kube.statuses == []


async def test_objects_are_created_without_the_right_to_read_a_model() -> None:
    class Denying(Applying):
        """Has only the rights to list and watch ModelDeployments."""

        @override
        async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
            if kind is MODEL_DEPLOYMENT:
                raise errors.Refused(403, "denied")
            return await super().get(kind, namespace, name)

    def fail() -> None:
        raise errors.Unreachable("reset")

    kube = Denying(fail)
    with pytest.raises(errors.Unreachable):
        await reconciling(kube).reconcile(DIGITS)

    assert kube.tried.is_set()


async def test_a_write_that_fails_leaves_a_status_behind_and_is_an_error() -> None:
    def fail() -> None:
        raise errors.Unreachable("reset")

    kube = Applying(fail)
    with pytest.raises(errors.Unreachable):
        await reconciling(kube).reconcile(DIGITS)

    assert len(kube.statuses) == 1


async def test_writes_that_fail_again_and_again_are_reported_until_one_succeeds() -> None:
    hook = 'Internal error occurred: failed calling webhook "check.example.com": connection refused'
    outcomes: list[Exception] = [errors.Conflicted(409, "changed"), *(errors.Busy(500, hook) for _ in range(3))]

    def fail() -> None:
        raise outcomes[0] if outcomes else errors.Refused(403, "denied")

    time = 1000.0
    kube = Applying(fail)
    subject = reconciling(kube, lambda: time)

    async def reported() -> list[str]:
        nonlocal time
        time += 100
        with contextlib.suppress(errors.ApiError):
            await subject.reconcile(DIGITS)
        outcomes[:] = outcomes[1:]
        conditions = kube.statuses[-1]["conditions"]
        return [c["message"] for c in conditions if c["reason"] == "WritesFailing"]

    assert [await reported() for _ in range(3)] == [[], [], []]
    assert await reported() == [f"the operator can't write an object of the model and will retry: {hook}"]
    assert await reported() == []


async def test_a_status_write_that_conflicts_is_retried() -> None:
    class Conflicting(Applying):
        """Conflicts once with the status, as another writer can, and takes the next one."""

        conflicts = 1

        @override
        async def apply(
            self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER
        ) -> Object:
            if subresource == "status" and self.conflicts:
                self.conflicts -= 1
                raise errors.Conflicted(409, "the object has been modified")
            return await super().apply(kind, obj, subresource=subresource, manager=manager)

    def refuse() -> None:
        raise errors.Refused(403, "denied")

    kube = Conflicting(refuse)
    subject = reconciling(kube)
    with pytest.raises(errors.Conflicted):
        await subject.reconcile(DIGITS)
    await subject.reconcile(DIGITS)

    assert len(kube.statuses) == 1


async def test_a_rejected_status_is_an_event_and_an_error() -> None:
    """Otherwise only the log reports it, because the status itself can't."""

    class Denying(Applying):
        @override
        async def apply(
            self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER
        ) -> Object:
            if subresource == "status":
                raise errors.Refused(422, "apply digits: ValidatingAdmissionPolicy 'p' denied request: no")
            return await super().apply(kind, obj, subresource=subresource, manager=manager)

    def deny() -> None:
        raise errors.Refused(403, "denied")

    subject = reconciling(Denying(deny))
    with pytest.raises(errors.Refused):
        await subject.reconcile(DIGITS)
    (event,) = (event for event, _ in subject.events._pending)
    assert (event["type"], event["reason"]) == ("Warning", "StatusRejected")
    assert event["note"].endswith("ValidatingAdmissionPolicy 'p' denied request: no")


async def test_a_reconcile_that_is_cancelled_writes_nothing_more() -> None:
    kube = Applying(lambda: None)
    working = asyncio.create_task(reconciling(kube).reconcile(DIGITS))
    async with asyncio.timeout(5):
        await kube.tried.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    assert kube.statuses == []


async def test_pods_that_arrive_singly_are_written_once_a_second_and_news_twice() -> None:
    # Revisions are refused too, so the rollout's beginning is kept nowhere, and each look finds it a second later.
    wall = itertools.count(1_800_000_000.0).__next__

    def refuse() -> None:
        raise errors.Refused(403, "denied")

    kube = Applying(refuse)
    time = 1000.0
    subject = reconciling(kube, lambda: time, wall)
    caches = subject.caches

    async def reconciled(version: int) -> float | None:
        """With the last status in the cache."""
        seen = resource(status=kube.statuses[-1] if kube.statuses else None)
        seen["metadata"]["resourceVersion"] = str(version)
        caches.resources._store(DIGITS, seen)
        kube.objects[MODEL_DEPLOYMENT, "team", "digits"] = seen
        return (await subject.reconcile(DIGITS)).requeue_s

    def have(number: int) -> None:
        server_pod = pod(f"digits-a-{number}", ready=False)
        server_pod["metadata"]["labels"] |= {names.OWNER_LABEL: "digits", names.COMPONENT_LABEL: names.SERVER}
        caches.pods._store(Key("team", server_pod["metadata"]["name"]), server_pod)

    await reconciled(2)
    assert await reconciled(3) == STATES_INTERVAL_S
    assert len(kube.statuses) == 1
    time += STATES_INTERVAL_S
    await reconciled(4)
    assert len(kube.statuses) == 2
    for number in range(3):
        have(number)
        assert await reconciled(5 + number) == COUNTS_INTERVAL_S
    assert len(kube.statuses) == 2


async def test_a_dead_backend_is_restarted_while_a_webhook_of_services_is_down() -> None:
    class Dead:
        """Agents that report a dead backend."""

        def reported(self, _: Key, /) -> Signals:
            return Signals(dead={"one-a-0": "it executes no batch"})

        def published(self, _: Key, /) -> PublishedScaling:
            return PublishedScaling()

    team = Team()
    team.api.errors["Service"] = errors.Busy(500, "failed calling webhook")
    team.ask("one")
    server = pod("one-a-0", ready=True, containers=[{"name": names.TRITON, "restartCount": 0}])
    server["metadata"]["labels"] |= {names.OWNER_LABEL: "one", names.COMPONENT_LABEL: names.SERVER}
    team.api._put((POD, "team", "one-a-0"), server)
    team.caches.pods._store(Key("team", "one-a-0"), server)
    team.reconciler.scopes = replace(team.reconciler.scopes, scaling=Dead())
    with pytest.raises(errors.Busy):
        await team.reconciler.reconcile(Key("team", "one"))

    assert names.RESTART_ANNOTATION in team.api.objects[POD, "team", "one-a-0"]["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("changed", "interval_s"),
    [
        ({"model": {"name": "other", "versions": ["1"]}}, STATES_INTERVAL_S),
        ({"model": {"name": "digits", "versions": ["1", "2"]}}, STATES_INTERVAL_S),
        ({"model": {"name": "digits", "versions": ["1"], "error": "no backend"}}, STATUS_INTERVAL_S),
        ({"summary": {"queue": "12"}}, STATUS_INTERVAL_S),
    ],
)
def test_status_names_the_model_in_triton_without_a_wait_of_ten_seconds(
    changed: dict[str, Any], interval_s: float
) -> None:
    before = {"model": {"name": "digits", "versions": ["1"]}}
    assert _min_interval_s(before, {"model": {"name": "digits", "versions": ["1"]}} | changed) == interval_s


def test_signals_become_known_in_the_status_without_a_wait_of_ten_seconds() -> None:
    missing = {"scaling": {"signals": [{"name": "queueDepth", "missing": "only one report"}]}}
    known = {"scaling": {"signals": [{"name": "queueDepth", "value": "0.0"}]}}
    changed = {"scaling": {"signals": [{"name": "queueDepth", "value": "3.0"}]}}
    assert _min_interval_s(missing, known) == STATES_INTERVAL_S
    assert _min_interval_s(known, changed) == STATUS_INTERVAL_S
