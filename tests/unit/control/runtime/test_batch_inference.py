"""What a model reads from the BatchInferences that run: the lower class of its balancers, and their demand."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from halcyon.api.spec.parse import parse
from halcyon.batch.controller import BatchController
from halcyon.batch.job import BatchSite, ServedModel
from halcyon.batch.running_batch import RunningBatch
from halcyon.batch.status import served_model
from halcyon.control.runtime.batch_inference import class_of, demand, demands, in_force
from halcyon.kube import errors
from halcyon.kube.client import Object
from halcyon.kube.clock import SYSTEM_CLOCK
from halcyon.kube.kinds import BATCH_INFERENCE, Key, Kind
from halcyon.scaling.policy.batch_demand import BatchDemand
from tests.unit.kube.memory_kube import MemoryKube
from tests.unit.kube.virtual_time import VirtualTime, run

RUNNING = RunningBatch("nightly", rows_left=500, deadline=1000.0, max_replicas=3, may_wake=True, gentle=False)
GENTLE = replace(RUNNING, name="weekly", gentle=True)


@pytest.mark.parametrize(
    ("batches", "lower_class"),
    [((), "None"), ((RUNNING,), "Fill"), ((GENTLE,), "Gentle"), ((GENTLE, RUNNING), "Fill")],
)
def test_the_class_is_gentle_only_if_all_batches_are(batches: tuple[RunningBatch, ...], lower_class: str) -> None:
    assert class_of(batches) == lower_class


def test_the_demand_of_a_batch_is_what_it_has_left() -> None:
    assert demand(RUNNING) == BatchDemand("nightly", 500.0, 1000.0, 3, may_wake=True)


def test_before_the_input_is_read_only_a_first_replica_is_asked_for() -> None:
    assert demand(replace(RUNNING, rows_left=None)) == BatchDemand("nightly", 1.0, None, 3, may_wake=True)


def test_a_runner_follows_the_spec_that_is_in_force() -> None:
    """Servers have the accepted spec, whatever a rejected one says; only replicas aren't part of it."""
    source = {"configMap": {"name": "files", "items": [{"key": "config.pbtxt", "path": "config.pbtxt"}]}}
    keys = {"apiKeys": {"secretName": "models-keys"}}
    accepted = parse("digits", {"model": {"name": "first", "source": source}, "traffic": keys})
    rejected = {"model": {"name": "second", "source": source}, "traffic": {"mode": "Direct"}, "replicas": 2}
    stored = {"metadata": {"namespace": "team", "name": "digits"}, "spec": rejected, "status": {"operator": "a/b"}}

    effective = in_force(stored, accepted)
    assert served_model(effective, "digits", "team") == ServedModel("digits", "first", api_keys="models-keys")
    assert effective is not None
    assert (effective["spec"]["replicas"], effective["status"]) == (2, {"operator": "a/b"})
    assert in_force(stored, None) == stored
    assert in_force(None, accepted) is None


async def test_demands_are_unknown_until_batches_are_read_or_their_kind_is_absent() -> None:
    answers = [errors.Busy(503, "busy"), errors.NotFound(404, "no such kind")]

    class Kinds(MemoryKube):
        @override
        async def list(self, *_: Any, **__: Any) -> tuple[list[Object], str]:
            raise answers.pop(0)

    model = Key("team", "digits")
    controller = BatchController(Kinds(), SYSTEM_CLOCK, BatchSite("i"), lambda _: None)
    read = demands(controller)
    assert read(model) is None
    for expected in (None, ()):
        running = asyncio.ensure_future(controller.run())
        for _ in range(3):
            await asyncio.sleep(0)
        assert read(model) == expected
        running.cancel()
    assert not answers
    controller._is_absent = False
    controller.batches.synced.set()
    assert read(model) == ()


def test_demands_are_known_if_batches_are_forbidden_in_another_namespace() -> None:
    class Kinds(MemoryKube):
        @override
        async def list(self, kind: Kind, *, namespace: str = "", **_: Any) -> tuple[list[Object], str]:
            if kind == BATCH_INFERENCE and namespace == "old":
                raise errors.Refused(403, "batchinferences is forbidden")
            return [], "5"

        @override
        def watch(self, *_: Any, **__: Any) -> Any:
            raise errors.Unreachable("closed")

    async def scenario(_: VirtualTime) -> object:
        controller = BatchController(Kinds(), SYSTEM_CLOCK, BatchSite("i"), lambda _: None, ("old", "team"))
        running = asyncio.ensure_future(controller.run())
        await asyncio.sleep(60)
        running.cancel()
        return demands(controller)(Key("team", "digits"))

    assert run(scenario) == ()
