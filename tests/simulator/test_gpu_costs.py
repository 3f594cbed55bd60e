"""What the operator counts of GPUs' time, when it tells it, and what the status says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.spec.parse import parse
from halcyon.control.autoscaling.planner_memory.entries import saved
from halcyon.control.reporting.gpu_costs import GpuCosts
from halcyon.control.reporting.model_metrics import ModelFacts, samples
from halcyon.control.state.scope import PublishedCosts as Shown
from halcyon.control.status import cost as status_cost
from halcyon.kube.kinds import Key
from halcyon.scaling.gpu_cost import Cost, Prices, Spent
from halcyon.scaling.planner.outputs import PlannerMemory
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica, live
from tests.unit.control.leadership import FixedLeadership
from tests.unit.control.scope_builders import PVC, scope_of
from tests.unit.signals.records import haproxy, record, triton

PRICES = Prices("EUR", {"NVIDIA-L4": 0.8}, 2.5)


def document(gpus: int = 2, product: str | None = None, **scaling: Any) -> dict[str, Any]:
    placement = {"placement": {"nodeSelector": {"nvidia.com/gpu.product": product}}} if product else {}
    limits = {"minReplicas": 1, "maxReplicas": 8} | scaling
    return {"model": {"source": PVC}, "runtime": {"gpu": {"count": gpus}, **placement}, "scaling": limits}


class Books:
    """A world with a model on GPUs, and who counts what they cost."""

    def __init__(self, world: OperatorReplica, *, leads: bool = True, prices: Prices = PRICES, **settings: Any) -> None:
        self.world, self.enqueued = world, 0
        world.model(replicas=2, actuator=None)
        for name in ("digits-a-0", "digits-a-1"):
            pod = world.caches.pods.get(Key("team", name))
            assert pod is not None
            pod["status"]["podIP"] = "10.0.0.1"
        world.specs[DIGITS] = parse("digits", document(**settings))
        self.costs = GpuCosts(
            world.caches,
            world.sensing,
            world.specs,
            self._tell,
            FixedLeadership(is_leader=leads),
            world.clock,
            prices=prices,
        )

    def _tell(self, key: Key) -> None:
        assert key == DIGITS
        self.enqueued += 1

    async def run(self, seconds: int, *, gpu: float | None = 0.5, rps: int = 0) -> None:
        """So long, with a look every ten seconds, and records in between."""
        for _ in range(seconds // 5):
            await asyncio.sleep(5)
            now = self.world.time()
            pods = [triton(f"digits-a-{n}", at=now, gpu=gpu, rows=int(rps * now)) for n in range(2)]
            report = record(now, *pods, agent="digits-balancer-0", balancer=haproxy(), namespace="team", name="digits")
            self.world.hub.receive(report, now)
            if round(now) % 10 == 0:
                self.costs.count(DIGITS)


def status(books: Books) -> Any:
    return status_cost.make(scope_of(costs=books.costs.published(DIGITS)))


def test_gpu_time_is_counted_by_what_the_pods_do_and_shown() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        await books.run(1210, rps=10)
        spent = books.costs.spent(DIGITS)
        assert spent is not None
        assert (spent.starting, spent.unknown) == (0, 0)
        assert spent.busy == spent.idle == 1200 * 4 / 2
        assert spent.inferences == 1200 * 2 * 10
        assert books.costs.per_hour(DIGITS) == 10.0
        assert status(books) == {
            "gpus": 4,
            "currency": "EUR",
            "perHour": "10.00",
            "perThousandInferences": "0.14",
            "savingPercent": 75,
            "startingPercent": 0,
            "busyPercent": 50,
            "idlePercent": 50,
        }

    live(scenario)


def test_a_model_at_rest_has_its_status_written_for_nothing() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        await books.run(1300, gpu=0.0)
        before = books.enqueued
        await books.run(2200, gpu=0.0)
        assert books.enqueued == before
        assert before <= 3

    live(scenario)


def test_shares_changed_after_a_load_are_shown_once_more_and_then_hourly() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        await books.run(1210, gpu=0.5, rps=10)
        await books.run(400, gpu=1.0, rps=10)
        at_work = books.enqueued
        assert status(books)["busyPercent"] == 50
        await books.run(120, gpu=0.0)
        assert books.enqueued == at_work + 1
        shown = status(books)
        assert shown["busyPercent"] > 55
        await books.run(3300, gpu=0.0)
        assert books.enqueued == at_work + 1
        assert status(books) == shown
        await books.run(600, gpu=0.0)
        assert books.enqueued == at_work + 2
        assert status(books)["busyPercent"] < 25

    live(scenario)


def test_shares_that_get_known_after_a_short_load_wait_for_the_hour() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        await books.run(300, gpu=0.9, rps=10)
        at_work = books.enqueued
        await books.run(3400, gpu=0.0)
        assert books.enqueued == at_work
        assert "busyPercent" not in status(books)
        await books.run(500, gpu=0.0)
        assert books.enqueued == at_work + 1
        assert status(books)["busyPercent"] < 10

    live(scenario)


def test_a_model_that_never_worked_shows_its_shares_after_an_hour() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        await books.run(3500, gpu=0.0)
        assert books.enqueued == 1
        assert "savingPercent" not in status(books)
        await books.run(200, gpu=0.0)
        assert books.enqueued == 2
        assert status(books)["savingPercent"] == 75

    live(scenario)


def test_a_changing_load_is_shown_every_ten_minutes_at_most() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        for n in range(8):
            await books.run(300, gpu=n % 2, rps=10 * n)
        assert 2 <= books.enqueued <= 8

    live(scenario)


def test_a_pod_that_comes_or_goes_is_shown_at_the_next_sample() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        await books.run(700)
        before = books.enqueued
        world.have_pods(DIGITS, 1)
        await books.run(20)
        assert books.enqueued == before + 1
        assert status(books)["perHour"] == "5.00"

    live(scenario)


def test_a_pod_that_comes_or_goes_changes_the_number_within_two_seconds() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        sampling = asyncio.create_task(books.costs.run())
        await asyncio.sleep(25)
        assert status(books)["gpus"] == 4
        world.have_pods(DIGITS, 1)
        await asyncio.sleep(2)
        assert status(books)["gpus"] == 2
        sampling.cancel()

    live(scenario)


def test_pods_of_an_earlier_revision_hold_the_gpus_that_they_requested() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        earlier = world.caches.pods.get(Key("team", "digits-a-0"))
        assert earlier is not None
        earlier["spec"]["devices"] = {"nvidia.com/gpu": 1}
        await books.run(20)
        assert status(books)["gpus"] == 3

    live(scenario)


@pytest.mark.parametrize("was_ready", [True, False])
def test_a_pod_that_ends_has_served_only_if_it_was_ready(was_ready: bool) -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        pod = world.caches.pods.get(Key("team", "digits-a-0"))
        assert pod is not None
        if not was_ready:
            pod["status"]["conditions"] = []
        await books.run(20)
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        pod["status"]["conditions"] = []
        await books.run(10)
        spent = books.costs.spent(DIGITS)
        assert spent is not None
        assert spent.starting == (0 if was_ready else 2 * 20)

    live(scenario)


def test_an_unscheduled_pod_costs_nothing_and_a_loading_one_is_starting() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        for name, address in (("digits-a-8", None), ("digits-a-9", "10.0.0.9")):
            pod = world.caches.pods.get(Key("team", "digits-a-0"))
            assert pod is not None
            conditions = [{**c, "status": "False"} for c in pod["status"]["conditions"]]
            added = {**pod, "metadata": {**pod["metadata"], "name": name, "uid": name}}
            added["status"] = {**pod["status"], "podIP": address, "conditions": conditions}
            world.caches.pods._store(Key("team", name), added)
        await books.run(20)
        spent = books.costs.spent(DIGITS)
        assert spent is not None
        assert (spent.starting, spent.busy) == (2 * 10, 4 * 10 / 2)

    live(scenario)


@pytest.mark.parametrize(
    ("gpu", "product", "price"),
    [
        ({"resourceName": "nvidia.com/mig-1g.10gb"}, "NVIDIA-L4", 0.3),
        ({"resourceName": "nvidia.com/mig-2g.20gb"}, "NVIDIA-L4", 0.8),
        ({"resourceName": "nvidia.com/mig-2g.20gb"}, "NVIDIA-H200", 2.5),
        ({"resourceClaimTemplateName": "one-gpu"}, "NVIDIA-L4", 0.8),
        ({}, "NVIDIA-L4", 0.8),
    ],
)
def test_a_price_of_the_resource_comes_before_that_of_the_product(
    gpu: dict[str, Any], product: str, price: float
) -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world, prices=Prices("EUR", {"NVIDIA-L4": 0.8, "nvidia.com/mig-1g.10gb": 0.3}, 2.5))
        spec = document(product=product)
        spec["runtime"]["gpu"] = {"count": 1, **gpu}
        assert books.costs.price(parse("digits", spec)) == price

    live(scenario)


def test_the_price_is_that_of_the_product_that_the_pods_ask_for() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world, product="NVIDIA-L4")
        await books.run(20)
        assert status(books)["perHour"] == "3.20"
        world.specs[DIGITS] = parse("digits", document(product="NVIDIA-H200"))
        books.costs.prices = Prices("EUR", {"NVIDIA-L4": 0.8})
        await books.run(20)
        assert status(books) == {"gpus": 4}
        assert books.costs.per_hour(DIGITS) is None

    live(scenario)


def test_a_model_on_cpu_has_no_cost() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world, gpus=0)
        await books.run(700)
        assert (books.costs.spent(DIGITS), books.costs.per_hour(DIGITS), books.enqueued) == (None, None, 0)
        assert status_cost.make(scope_of(costs=Shown(None))) is None

    live(scenario)


def test_unreported_gpus_are_neither_busy_nor_idle_and_are_paid_for() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        await books.run(1300, gpu=None)
        spent = books.costs.spent(DIGITS)
        assert spent is not None
        assert (spent.busy, spent.idle, spent.unknown) == (0, 0, 4 * 1290)
        cost = status(books)
        assert cost["perHour"] == "10.00"
        assert not {"busyPercent", "idlePercent"} & cost.keys()

    live(scenario)


def test_busy_instances_stand_in_if_the_gpus_report_nothing() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world, gpus=1)
        for _ in range(12):
            await asyncio.sleep(5)
            # Six batches a second and pod, of 80 ms each.
            world.speak(arrived=8 * 6 * 5 * 2)
            books.costs.count(DIGITS)
        spent = books.costs.spent(DIGITS)
        assert spent is not None
        assert spent.busy > 0
        assert abs(spent.busy / (spent.busy + spent.idle) - 0.48) < 0.1

    live(scenario)


def test_a_standby_counts_and_has_nothing_written() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world, leads=False)
        await books.run(700)
        assert books.costs.spent(DIGITS) != Spent()
        assert books.enqueued == 0

    live(scenario)


def test_counted_costs_outlive_the_process_with_the_planners_memory() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        await books.run(1200, rps=10)
        kept = saved("digits", PlannerMemory(), at=0.0, cost=books.costs.stored(DIGITS))
        later = GpuCosts(
            world.caches, world.sensing, world.specs, books._tell, FixedLeadership(), world.clock, prices=PRICES
        )
        later.restore({DIGITS: kept})
        books.costs = later
        await books.run(20, rps=10)
        assert status(books)["perThousandInferences"] == "0.14"
        assert status(books)["busyPercent"] == 50
        # The counter for Prometheus begins anew: it would add up what was told already.
        assert later.spent(DIGITS) == Spent(
            busy=20.0, idle=20.0, inferences=200.0, at_max_replicas=160.0, seconds=10.0, scaled=40.0
        )
        other = GpuCosts(
            world.caches, world.sensing, world.specs, books._tell, FixedLeadership(), world.clock, prices=PRICES
        )
        other.restore({DIGITS: replace(kept, uid="another")})
        other.count(DIGITS)
        assert other.stored(DIGITS) == []

    live(scenario)


def test_a_model_that_goes_is_forgotten() -> None:
    async def scenario(world: OperatorReplica) -> None:
        books = Books(world)
        await books.run(20)
        world.delete(DIGITS)
        assert books.costs.spent(DIGITS) is None

    live(scenario)


def test_a_process_without_samples_shows_the_last_published_costs() -> None:
    before = {"gpus": 4, "perHour": "10.00"}
    scope = scope_of(costs=Shown(settling=True))
    scope = replace(scope, resource={**scope.resource, "status": {"cost": before}})

    assert status_cost.make(scope) == before


def test_shares_are_rounded_and_what_is_not_known_is_left_out() -> None:
    cost = Cost(3, None, None, 0.333, None, None, None)

    assert status_cost.make(scope_of(costs=Shown(cost, "EUR"))) == {"gpus": 3, "savingPercent": 33}


def test_prometheus_gets_gpu_time_by_state_and_cost_if_priced() -> None:
    spent = Spent(starting=1, busy=2, idle=3, unknown=4, inferences=5)
    values = {
        (metric.name, more): value for metric, more, value in samples(ModelFacts({}, None, None, None, spent, 7.5))
    }

    assert {
        more[0][1]: values[metric, more] for metric, more in values if metric == "halcyon_model_gpu_seconds_total"
    } == {
        "starting": 1,
        "busy": 2,
        "idle": 3,
        "unknown": 4,
    }
    assert values["halcyon_model_gpu_inferences_total", ()] == 5
    assert values["halcyon_model_cost_per_hour", ()] == 7.5
    unpriced = {metric.name for metric, _, _ in samples(ModelFacts({}, None, None, None, spent, None))}
    assert "halcyon_model_cost_per_hour" not in unpriced
