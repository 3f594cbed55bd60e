"""A query of the site's Prometheus as a target: its values, both policies, the HPA's metric, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import parse
from halcyon.control.acceptance.site_policy import violations
from halcyon.control.autoscaling.sources.site_queries import MAX_AGE_S, MAX_AT_ONCE, SiteQueries
from halcyon.kube.kinds import Key
from halcyon.render import hpa
from halcyon.render.site import Subject
from halcyon.scaling.hpa.algorithm import signal_proposals
from halcyon.scaling.hpa.metrics import RulesReading
from halcyon.scaling.observations import Missing, Value
from halcyon.scaling.planner.objectives import objectives
from halcyon.scaling.planner.outputs import Plan, PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import PodReading, Reading
from halcyon.scaling.policy.batch_demand import BatchDemand, Supply, with_batches
from halcyon.scaling.policy.decision import of_plan
from halcyon.signals.prometheus.client import PrometheusError
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica, live
from tests.unit.control.scope_builders import scope_of

JOBS = {"jobs": 'sum(pending{ns="$namespace",model="$name"})'}


def spec(**scaling: Any) -> Spec:
    targets = {"metric": {"query": "jobs", "value": 10}}
    document = {"minReplicas": 1, "maxReplicas": 8, "targets": targets, **scaling}
    return parse("digits", {"model": {"source": {"uri": "s3://models/m"}}, "scaling": document})


def test_a_value_of_a_query_counts_until_it_is_too_old() -> None:
    async def scenario(world: OperatorReplica) -> None:
        sent_queries: list[str] = []
        answers: list[float | PrometheusError | None] = [42.0, PrometheusError("down"), None, -1.0, 7.0]

        async def ask(query: str) -> float | None:
            sent_queries.append(query)
            answer = answers.pop(0)
            if isinstance(answer, PrometheusError):
                raise answer
            return answer

        world.model(targets={"metric": {"query": "jobs", "value": 10}})
        queries = SiteQueries(world.caches, world.specs, JOBS, (ask,), world.clock)
        assert queries.value(DIGITS, "jobs") == Missing("query jobs: it has not been queried yet")
        assert queries.value(DIGITS, "other") == Missing("this site has no query other")
        await queries.poll()
        first = queries.value(DIGITS, "jobs")
        assert isinstance(first, Value)
        assert (first.value, sent_queries) == (42.0, ['sum(pending{ns="team",model="digits"})'])
        for _ in ("down", "no value", "below 0"):
            await queries.poll()
            assert queries.value(DIGITS, "jobs") == first
        await asyncio.sleep(MAX_AGE_S + 1)
        assert queries.value(DIGITS, "jobs") == Missing("query jobs: its value -1 is below 0")
        await queries.poll()
        assert isinstance(queries.value(DIGITS, "jobs"), Value)
        world.delete(DIGITS)
        await queries.poll()
        assert queries.value(DIGITS, "jobs") == Missing("query jobs: it has not been queried yet")

    live(scenario)


def test_slow_queries_of_some_models_leave_the_values_of_others_current() -> None:
    async def scenario(world: OperatorReplica) -> None:
        async def ask(query: str) -> float | None:
            if "slow" in query:
                await asyncio.sleep(5)
                raise PrometheusError("no response within 5 s")
            await asyncio.sleep(0.1)
            return 1.0

        names = [*(f"slow-{n}" for n in range(30)), *(f"quick-{n}" for n in range(30))]
        for name in names:
            world.model(name=name, targets={"metric": {"query": "jobs", "value": 10}})
        queries = SiteQueries(world.caches, world.specs, JOBS, (ask,) * MAX_AT_ONCE, world.clock)
        running = asyncio.create_task(queries.run())
        await asyncio.sleep(100)
        for _ in range(60):
            await asyncio.sleep(5)
            assert all(isinstance(queries.value(Key("team", name), "jobs"), Value) for name in names[30:])
        running.cancel()

    live(scenario)


@pytest.mark.parametrize(
    ("value", "proposal"), [(Value(35.0, 0.0), 4), (Value(0.0, 0.0), 0), (Missing("query jobs: down"), None)]
)
def test_the_rules_propose_replicas_for_the_result(value: Value | Missing, proposal: int | None) -> None:
    targets = defaults.targets(spec(policy="Rules"))
    terms = signal_proposals(RulesReading(0.0, 2, Value(0.0, 0.0), None, metric=value), targets)

    assert {term.name: term.proposal for term in terms} == {"queueDepth": 0, "metric": proposal}


def test_the_hpa_has_the_metric() -> None:
    autoscaler = hpa.hpa(Subject("team", "digits", "uid"), spec(policy="Rules"), tolerance=True)
    named = {
        metric["external"]["metric"]["name"]: metric["external"]["target"] for metric in autoscaler["spec"]["metrics"]
    }

    assert named["metric"] == {"type": "AverageValue", "averageValue": "10"}


def planned(
    model_spec: Spec, metric: float | None, *, replicas: int = 1, rate: float = 20.0, seconds: int = 90
) -> Plan:
    """Return the last of the plans, one a second, for a constant load and result."""
    model_objectives, memory = objectives(model_spec), PlannerMemory()
    for second in range(seconds):
        batches = {1: (int(rate * second), 0.02 * rate * second)}
        pods = tuple(PodReading(f"p{n}", "ready", 0.0, 0.0) for n in range(replicas))
        reading = Reading(
            float(second),
            replicas,
            rate * second,
            0.0,
            0.0,
            batches=batches if rate else None,
            pods=pods,
            metric=metric,
        )
        result = plan(float(second), model_objectives, reading, memory)
        memory = result.memory
    return result


def test_the_planner_has_replicas_for_the_result() -> None:
    last_plan = planned(spec(), 35.0)

    assert (last_plan.count, last_plan.winner) == (4, "metric"), last_plan.describe()
    texts = {part.name: str(part.text) for part in last_plan.parts}
    assert texts["metric"] == "the site's query is 35, and at 10 per replica needs 4"


def test_a_missing_result_takes_no_replicas_away_and_adds_none() -> None:
    last_plan = planned(spec(), None, replicas=3, seconds=400)

    assert last_plan.count == 3, last_plan.describe()
    texts = {part.name: str(part.text) for part in last_plan.parts}
    assert texts["metric"] == "the result of the site's query is missing, so the replicas are not lowered"


@pytest.mark.parametrize(("metric", "count"), [(0.0, 0), (5.0, 1), (None, 1)])
def test_a_model_with_work_for_it_does_not_go_to_zero(metric: float | None, count: int) -> None:
    assert planned(spec(minReplicas=0, idleTimeout="30s"), metric, rate=0.0).count == count


def test_a_model_at_zero_starts_for_the_result() -> None:
    last_plan = planned(spec(minReplicas=0, idleTimeout="30s"), 5.0, replicas=0, rate=0.0)

    assert last_plan.count == 1, last_plan.describe()


def after_requests(metric: Callable[[int], float | None], *, seconds: int) -> list[Plan]:
    """Return the plans, one a second, of a model whose requests end after a minute; `metric` is the result by second."""
    model_objectives, memory, plans = objectives(spec(minReplicas=0, idleTimeout="30s")), PlannerMemory(), []
    count = 1
    for second in range(seconds):
        arrived = 20.0 * min(second, 60)
        pods = tuple(PodReading(f"p{n}", "ready", 0.0, 0.0) for n in range(count))
        batches = {1: (int(arrived), 0.02 * arrived)}
        reading = Reading(float(second), count, arrived, 0.0, 0.0, batches=batches, pods=pods, metric=metric(second))
        result = plan(float(second), model_objectives, reading, memory)
        memory, count = result.memory, result.count
        plans.append(result)
    return plans


def test_a_missing_result_starts_no_model_from_zero() -> None:
    plans = after_requests(lambda second: 0.0 if second < 150 else None, seconds=300)

    assert plans[149].count == 0
    assert {result.count for result in plans[150:]} == {0}, plans[150].describe()


def test_batch_inference_adds_its_replicas_once_while_a_result_is_missing() -> None:
    model_objectives = objectives(spec(maxReplicas=20), batch_prior={8: 0.08})
    memory, counts = PlannerMemory(), [2]
    batch, supply = BatchDemand("b", rows_left=1e7, max_replicas=2), Supply(100.0, 20.0, 30.0)
    for second in range(200):
        arrived = 20.0 * second
        pods = tuple(PodReading(f"p{n}", "ready", 0.0, 0.0) for n in range(counts[-1]))
        batches, metric = {8: (int(arrived / 8), 0.01 * arrived)}, 20.0 if second < 100 else None
        reading = Reading(float(second), counts[-1], arrived, 0.0, 0.2, batches=batches, pods=pods, metric=metric)
        result = plan(float(second), model_objectives, reading, memory)
        memory = result.memory
        decision = with_batches(of_plan(result, at=float(second), signals=()), [batch], supply, high=20)
        counts.append(decision.desired or 0)

    assert set(counts[50:]) == {4}


@pytest.mark.parametrize("metric", [5.0, None])
def test_a_replica_kept_by_the_result_has_another_reason(metric: float | None) -> None:
    last_plan = after_requests(lambda _: metric, seconds=400)[-1]

    assert last_plan.count == 1
    assert "the last start cost" not in last_plan.describe()


@pytest.mark.parametrize(
    ("queries", "messages"),
    [
        (("jobs",), []),
        ((), ["spec.scaling.targets.metric.query is jobs, but this site defines no queries (chart value prometheus.queries); remove spec.scaling.targets.metric"]),
        (("a", "b"), ["spec.scaling.targets.metric.query is jobs, but this site defines only a, b (chart value prometheus.queries); set it to one of these, for example a"]),
    ],
)  # fmt: skip
def test_a_query_that_the_site_does_not_have_is_refused(queries: tuple[str, ...], messages: list[str]) -> None:
    view = scope_of()

    assert violations(replace(view, site=replace(view.site, queries=queries)), spec()) == messages
