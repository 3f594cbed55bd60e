"""Retries of events that cannot be written yet, while an admission webhook or the API server fails."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from typing_extensions import override

from halcyon.kube import errors
from halcyon.kube.client import Object
from halcyon.kube.event_recorder import MAX_TRIES, WRITERS, EventRecorder, NewEvent
from halcyon.kube.kinds import Kind
from tests.clocks import DrivenClock
from tests.unit.control.scope_builders import resource
from tests.unit.kube.memory_kube import MemoryKube
from tests.unit.kube.virtual_time import VirtualTime, run


class Webhooked(MemoryKube):
    """An API server whose admission webhook for Events fails in some namespaces, each time after `delay_s`."""

    def __init__(self, broken: set[str], delay_s: float = 0.0) -> None:
        super().__init__()
        self.broken, self.delay_s, self.notes = broken, delay_s, list[str]()

    @override
    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        if namespace in self.broken:
            await asyncio.sleep(self.delay_s)
            raise errors.Busy(500, "failed calling webhook")
        self.notes.append(obj["note"])
        return await super().create(kind, obj, namespace=namespace)


def in_namespace(namespace: str) -> dict[str, Any]:
    model = resource()
    model["metadata"] |= {"namespace": namespace, "uid": namespace}
    return model


@pytest.mark.parametrize("delay_s", [0.0, 15.0])
def test_events_of_other_namespaces_pass_those_that_a_webhook_fails(delay_s: float) -> None:
    async def scenario(now: VirtualTime) -> list[str]:
        kube = Webhooked({"broken"}, delay_s)
        recorder = EventRecorder(kube, instance="x", clock=DrivenClock(now))
        writing = asyncio.create_task(recorder.run())
        for number in range(3 * WRITERS):
            recorder.record(in_namespace("broken"), NewEvent("Warning", "LoadFailed", str(number)))
        await asyncio.sleep(25)
        recorder.record(in_namespace("team"), NewEvent("Normal", "Ready", "m"))
        await asyncio.sleep(1)
        prompt = list(kube.notes)
        kube.broken.clear()
        await asyncio.sleep(30)
        writing.cancel()
        assert sorted(kube.notes[1:]) == sorted(map(str, range(3 * WRITERS))), "they are written after the outage"
        return prompt

    assert run(scenario) == ["m"]


def test_many_slow_namespaces_delay_an_event_of_another_by_one_attempt() -> None:
    slow, delay_s = [f"slow-{number}" for number in range(2 * WRITERS)], 15.0

    async def scenario(now: VirtualTime) -> list[str]:
        kube = Webhooked(set(slow), delay_s)
        recorder = EventRecorder(kube, instance="x", clock=DrivenClock(now))
        writing = asyncio.create_task(recorder.run())
        for number in range(5):
            for namespace in slow:
                recorder.record(in_namespace(namespace), NewEvent("Warning", "LoadFailed", str(number)))
        await asyncio.sleep(40)
        recorder.record(in_namespace("team"), NewEvent("Normal", "Ready", "m"))
        await asyncio.sleep(delay_s + 1)
        writing.cancel()
        return kube.notes

    assert run(scenario) == ["m"]


def test_an_event_that_a_webhook_always_fails_is_dropped_at_last(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(now: VirtualTime) -> int:
        kube = Webhooked({"broken"})
        recorder = EventRecorder(kube, instance="x", clock=DrivenClock(now))
        writing = asyncio.create_task(recorder.run())
        recorder.record(in_namespace("broken"), NewEvent("Warning", "LoadFailed", "m"))
        await asyncio.sleep(3600)
        writing.cancel()
        return caplog.text.count("cannot write an event")

    assert run(scenario) == MAX_TRIES


def test_a_flush_writes_events_that_were_being_written_and_healthy_namespaces_first() -> None:
    async def scenario(now: VirtualTime) -> list[str]:
        kube = Webhooked({"broken", "slow"}, delay_s=5)
        recorder = EventRecorder(kube, instance="x", clock=DrivenClock(now))
        writing = asyncio.create_task(recorder.run())
        recorder.record(in_namespace("broken"), NewEvent("Normal", "Ready", "failed once"))
        await asyncio.sleep(6)
        recorder.record(in_namespace("slow"), NewEvent("Normal", "Ready", "in progress"))
        await asyncio.sleep(1)
        writing.cancel()
        recorder.record(in_namespace("team"), NewEvent("Normal", "Ready", "new"))
        kube.broken.clear()
        with contextlib.suppress(asyncio.CancelledError):
            await writing
        await recorder.flush(0.3)
        return kube.notes

    assert run(scenario) == ["in progress", "new", "failed once"]


def test_an_event_after_a_quota_conflict_is_written_later() -> None:
    async def scenario(now: VirtualTime) -> list[str]:
        conflicts = iter([errors.Conflicted(409, "cannot be fulfilled on resourcequotas q", reason="Conflict")])

        class Quota(Webhooked):
            @override
            async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
                for conflict in conflicts:
                    raise conflict
                return await super().create(kind, obj, namespace=namespace)

        kube = Quota(set())
        recorder = EventRecorder(kube, instance="x", clock=DrivenClock(now))
        writing = asyncio.create_task(recorder.run())
        recorder.record(resource(), NewEvent("Normal", "Ready", "m"))
        await asyncio.sleep(60)
        writing.cancel()
        return kube.notes

    assert run(scenario) == ["m"]
