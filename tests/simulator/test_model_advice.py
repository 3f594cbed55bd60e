"""Advice from the agents' reports: when a model is queued for a reconcile, and what its status says."""

from __future__ import annotations

import asyncio
from typing import Any

from halcyon.api.documents.observation_report import BatchStats
from halcyon.api.spec.parse import parse
from halcyon.control.reporting.model_advice import SAMPLE_INTERVAL_S, ModelAdvice
from halcyon.control.status import advice as status_advice
from halcyon.kube.kinds import Key
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica, Running, live
from tests.unit.control.leadership import FixedLeadership
from tests.unit.control.scope_builders import PVC, resource, scope_of
from tests.unit.signals.records import EPOCH, haproxy, record, triton

SETTINGS = {"batching": {"maxBatchSize": 32, "maxQueueDelay": "50ms"}}


class Advised:
    """A model of one replica with 8 requests a second, that wait 42 ms each in Triton's queue, and the advice on it."""

    def __init__(self, world: OperatorReplica, *, leads: bool = True) -> None:
        self.world, self.queued = world, list[float]()
        world.model(replicas=1)
        document = {"model": {"source": PVC}, "runtime": {"gpu": {"count": 1}}}
        world.specs[DIGITS] = parse("digits", document | SETTINGS | {"scaling": {"minReplicas": 1, "maxReplicas": 4}})
        self.leadership = FixedLeadership(is_leader=leads)
        self.advice = self.another()

    def another(self) -> ModelAdvice:
        world = self.world
        return ModelAdvice(world.caches, world.specs, world.scaler, self._enqueue, self.leadership, world.clock)

    def _enqueue(self, key: Key) -> None:
        assert key == DIGITS
        self.queued.append(self.world.time())

    async def run(self, minutes: float, *, rps: int = 8, wait_us: int = 42_000) -> None:
        """Send a report each second, while decisions are made and samples taken as in the operator."""
        async with Running(self.world.scaler):
            sampling = asyncio.create_task(self.advice.run())
            await self._report(minutes, rps, wait_us)
            sampling.cancel()

    async def _report(self, minutes: float, rps: int, wait_us: int) -> None:
        for _ in range(round(12 * minutes)):
            await asyncio.sleep(5)
            now = round(self.world.time())
            done = rps * now
            small, large = done // 2, done // 16
            ran = BatchStats(EPOCH + now, ((1, small, small * 22_000), (8, large, large * 36_000)))
            pod = triton(
                "digits-a-0",
                at=self.world.time(),
                batches=ran,
                gpu=0.1,
                succeeded=done,
                rows=done,
                executions=small + large,
                queue_us=wait_us * done,
            )
            report = record(
                self.world.time(),
                pod,
                agent="digits-balancer-0",
                balancer=haproxy(requests=done),
                namespace="team",
                name="digits",
            )
            self.world.hub.receive(report, self.world.time())

    def status(self, before: Any = None) -> Any:
        document = resource(SETTINGS, status={"advice": before} if before else {})
        return status_advice.make(scope_of(resource=document, advice=self.advice.published(DIGITS)))


def test_a_delay_that_only_costs_is_in_the_status_after_minutes() -> None:
    async def scenario(world: OperatorReplica) -> None:
        model = Advised(world)
        await model.run(12)
        assert model.status() is None
        await model.run(4)
        (entry,) = model.status()
        assert (entry["rule"], entry["field"]) == ("DelayOnlyCosts", "spec.batching.maxQueueDelay")
        assert (entry["currentValue"], entry["value"]) == ("50ms", "0us")
        assert entry["evidence"].startswith("a request waits 42 ms in Triton's queue, batches have 1.8 rows")
        assert entry["since"] == "2025-11-21T04:45:00Z"
        assert len(model.queued) == 1

    live(scenario)


def test_advice_that_stands_writes_nothing() -> None:
    async def scenario(world: OperatorReplica) -> None:
        model = Advised(world)
        await model.run(16)
        await model.run(16, rps=11)
        assert len(model.queued) == 1

    live(scenario)


def test_a_model_whose_delay_costs_little_has_no_advice() -> None:
    async def scenario(world: OperatorReplica) -> None:
        model = Advised(world)
        await model.run(16, wait_us=3_000)
        assert (model.status(), model.queued) == (None, [])

    live(scenario)


def test_a_standby_gives_no_advice_and_a_new_leader_continues() -> None:
    async def scenario(world: OperatorReplica) -> None:
        model = Advised(world, leads=False)
        await model.run(1)
        assert model.advice.published(DIGITS) is None
        before = [{"rule": "GPUIdle", "field": "spec.runtime.instancesPerGPU", "value": "2"}]
        assert model.status(before) == before, "the status keeps what it has"
        model.leadership.is_leader = True
        await model.run(16)
        written = model.status()
        stored = world.caches.resources.get(DIGITS)
        assert stored is not None
        stored["status"]["advice"] = written
        model.advice = model.another()
        await model.run(SAMPLE_INTERVAL_S / 60 + 0.1)
        assert model.status() == written
        await model.run(16)
        assert model.status() == written
        assert len(model.queued) == 1

    live(scenario)


def test_followed_advice_leaves_the_status_at_once() -> None:
    async def scenario(world: OperatorReplica) -> None:
        model = Advised(world)
        await model.run(16)
        document = resource({"batching": {"maxBatchSize": 32, "maxQueueDelay": "0us"}})
        assert status_advice.make(scope_of(resource=document, advice=model.advice.published(DIGITS))) is None

    live(scenario)


def test_a_model_that_is_no_longer_autoscaled_has_no_advice() -> None:
    async def scenario(world: OperatorReplica) -> None:
        model = Advised(world)
        await model.run(16)
        assert model.status()
        world.specs[DIGITS] = parse("digits", {"model": {"source": PVC}})
        await model.run(SAMPLE_INTERVAL_S / 60 + 0.1)
        assert (model.status(), len(model.queued)) == (None, 2)

    live(scenario)


def test_a_deleted_model_is_forgotten() -> None:
    async def scenario(world: OperatorReplica) -> None:
        model = Advised(world)
        await model.run(1)
        assert model.advice.published(DIGITS) is not None
        world.delete(DIGITS)
        await model.run(1)
        assert model.advice.published(DIGITS) is None

    live(scenario)
