"""What /metrics tells of models: what is known, nothing of what isn't, and nothing of a model that is gone."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon.control.autoscaling.model_state import ModelState
from halcyon.control.reporting.gpu_costs import GpuCosts
from halcyon.control.reporting.model_metrics import ModelFacts, ModelMetrics, samples
from halcyon.control.reporting.start_time_metrics import PodStart, StartTimes
from halcyon.kube.kinds import Key
from halcyon.monitoring import per_model_metrics
from halcyon.render import names
from halcyon.scaling.planner.capacity_source import CapacitySource
from halcyon.scaling.planner.outputs import PlanPart
from halcyon.scaling.policy.decision import Decision, Signal
from tests.clocks import DrivenClock
from tests.unit.control.autoscaling.autoscaler_simulation import DIGITS, OperatorReplica, Running, live, pod
from tests.unit.control.scope_builders import PVC, resource

QUEUE = Signal("queueDepth", value=41.0, target=10, at=1000.0, shown=41.0)
VERDICT = Decision(
    at=1000.0,
    policy="Planner",
    current=4,
    desired=6,
    limited_by=("max", "max"),
    parts=(PlanPart("rate", 6, "why"), PlanPart("backlog", 5, "why")),
    capacity=CapacitySource("TimeInPods", 2.5, "why"),
    signals=(
        QUEUE,
        Signal("gpuUtilization", value=120.0, at=999.0, source="derived", shown=30.0),
        Signal("requestRate", missing="no"),
    ),
)
STATUS = {
    "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
    "replicas": 5,
    "readyReplicas": 4,
    "pods": {
        "total": 5,
        "ready": 4,
        "updated": 4,
        "unschedulable": 1,
        "failed": 3,
        "failures": [{"reason": "ContainerFailed", "pods": 1}, {"reason": "OOMKilled", "pods": 2}],
    },
}
LabeledValues = dict[tuple[str, ...], float]


def spec(**fields: Any) -> Spec:
    return parse("digits", {"model": {"source": PVC}, "runtime": {"gpu": {"count": 2}}} | fields)


def exported_values(status: dict[str, Any] | None = None, *, of: Spec | None = None, **known: Any) -> LabeledValues:
    """Name and values of the labels beside the model's -> value."""
    facts = ModelFacts(
        resource({"replicas": 9}, status=status), of, known.get("scaled"), known.get("start"), held=known.get("held")
    )
    return {
        (metric.name.removeprefix("halcyon_model_"), *(text for _, text in more)): value
        for metric, more, value in samples(facts)
    }


def test_known_values_are_exported_in_base_units() -> None:
    scaled = ModelState(DIGITS, 0.0, raised=3, lowered=1, decision=VERDICT)
    limits = spec(scaling={"minReplicas": 2, "maxReplicas": 6}, batching={"maxBatchSize": 5})
    assert exported_values(STATUS, of=limits, scaled=scaled, start=PodStart(12.0, 990.0), held=10) == {
        ("condition", "Ready", "True", "Ready"): 1,
        ("replicas",): 5,
        ("replicas_ready",): 4,
        ("replicas_unschedulable",): 1,
        ("replicas_failed", "ContainerFailed"): 1,
        ("replicas_failed", "OOMKilled"): 2,
        ("spec_replicas",): 6,
        ("gpus",): 10,
        ("replicas_min",): 2,
        ("replicas_max",): 6,
        ("queue_target_requests",): 10,
        ("gpu_target_ratio",): 0.8,
        ("desired_changes_total", "up"): 3,
        ("desired_changes_total", "down"): 1,
        ("replicas_desired",): 6,
        ("part_replicas", "rate"): 6,
        ("part_replicas", "backlog"): 5,
        ("limited", "max"): 1,
        ("replica_capacity_requests_per_second", "TimeInPods"): 2.5,
        ("signal_missing", "queueDepth"): 0,
        ("signal_timestamp_seconds", "queueDepth", "agents"): 1000,
        ("queue_requests",): 41,
        ("signal_missing", "gpuUtilization"): 0,
        ("signal_timestamp_seconds", "gpuUtilization", "derived"): 999,
        ("gpu_utilization_ratio",): pytest.approx(0.3),
        ("signal_missing", "requestRate"): 1,
        ("start_seconds",): 12,
        ("start_timestamp_seconds",): 990,
    }


def test_unknown_values_have_no_sample_and_are_never_zero() -> None:
    assert exported_values() == {}, "nothing was accepted and no status was written"
    assert exported_values(of=spec()) == {("spec_replicas",): 9}, "no scaling: no limits and no targets"
    none = replace(
        VERDICT,
        desired=None,
        limited_by=(),
        parts=(),
        signals=(replace(QUEUE, value=None, at=None, missing="no"),),
        capacity=CapacitySource("Unknown", None, "why"),
    )
    changes = {("desired_changes_total", "up"): 0, ("desired_changes_total", "down"): 0}
    assert exported_values(scaled=ModelState(DIGITS, 0.0)) == changes
    assert exported_values(scaled=ModelState(DIGITS, 0.0, decision=none)) == changes | {
        ("signal_missing", "queueDepth"): 1
    }
    unready = replace(VERDICT, signals=(replace(VERDICT.signals[1], value=None, at=None, shown=None),))
    values = exported_values(scaled=ModelState(DIGITS, 0.0, decision=unready))
    assert ("gpu_utilization_ratio",) not in values, "a mean of no servers"
    assert values["signal_missing", "gpuUtilization"] == 0, "there is nothing to measure"


def test_target_that_leaves_the_spec_takes_its_series_with_it() -> None:
    targets = {"queueDepth": 10, "gpuUtilization": 70, "latency": "500ms"}
    scaling = {"minReplicas": 1, "maxReplicas": 6}
    names_of = [
        {key[0] for key in exported_values(of=spec(scaling=scaling | more)) if "target" in key[0]}
        for more in ({"targets": targets}, {"policy": "Planner"})
    ]

    assert names_of[0] == {"queue_target_requests", "gpu_target_ratio", "latency_target_seconds"}
    assert names_of[0] - names_of[1] >= {"latency_target_seconds"}
    assert exported_values(of=spec(scaling=scaling | {"targets": {"gpuUtilization": 70}}))["gpu_target_ratio",] == 0.7


def test_new_process_exports_the_state_of_a_paused_model_from_its_status() -> None:
    paused = {"conditions": [{"type": "ScalingActive", "status": "False", "reason": "Paused"}], "pods": STATUS["pods"]}
    # Nothing but the object is known: no decision was made, and no pod was seen to start.
    values = exported_values(paused, of=spec(scaling={"minReplicas": 1, "maxReplicas": 6, "mode": "Paused"}))

    assert values["condition", "ScalingActive", "False", "Paused"] == 1
    assert values["replicas_ready",] == 4
    assert values["replicas_max",] == 6


def of_models(world: OperatorReplica, clock: Callable[[], float]) -> ModelMetrics:
    costs = GpuCosts(world.caches, world.sensing, world.specs, lambda _: None, world.leadership, world.clock)
    return ModelMetrics(
        caches=world.caches,
        specs=world.specs,
        autoscaler=world.scaler,
        starts=StartTimes(world.caches, CollectorRegistry()),
        costs=costs,
        leadership=world.leadership,
        clock=DrivenClock(clock),
    )


def page(world: OperatorReplica) -> str:
    return asyncio.run(of_models(world, world.time).page())


def test_series_of_a_model_go_with_it_and_a_standby_exports_none() -> None:
    async def scenario(world: OperatorReplica) -> None:
        world.dictate().desired[DIGITS] = 3
        world.model()
        world.model("other")
        async with Running(world.scaler):
            await asyncio.sleep(5)

    world = live(scenario)
    both = page(world)
    families = {family.name: family for family in text_string_to_metric_families(both)}
    assert families.keys() <= {metric.name.removesuffix("_total") for metric in per_model_metrics.METRICS}
    desired = families["halcyon_model_replicas_desired"].samples
    assert {(s.labels["namespace"], s.labels["model_deployment"], s.value) for s in desired} == {
        ("team", "digits", 3),
        ("team", "other", 1),
    }
    raised = families["halcyon_model_desired_changes"].samples
    assert {(s.labels["model_deployment"], s.labels["direction"]): s.value for s in raised} == {
        ("digits", "up"): 1,
        ("digits", "down"): 0,
        ("other", "up"): 0,
        ("other", "down"): 0,
    }
    world.delete(Key("team", "other"))
    assert 'model_deployment="other"' not in page(world)
    assert 'model_deployment="digits"' in page(world)
    world.leadership.is_leader = False
    assert page(world) == ""


def test_a_large_page_yields_to_other_tasks_and_omits_deleted_models() -> None:
    async def scenario(world: OperatorReplica) -> None:
        for n in range(5):
            world.model(f"m{n}")

    world = live(scenario)

    async def go(metrics: ModelMetrics) -> str:
        task = asyncio.ensure_future(metrics.page())
        await asyncio.sleep(0)
        world.caches.resources._store(Key("team", "m4"), None)
        return await task

    ticks = iter(range(1000))
    page = asyncio.run(go(of_models(world, lambda: float(next(ticks)))))
    assert 'model_deployment="m3"' in page
    assert 'model_deployment="m4"' not in page


CREATED, READY, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:42Z", "2026-01-01T01:00:00Z"


def test_a_start_ends_at_readiness_and_is_measured_once() -> None:
    async def scenario(world: OperatorReplica) -> None:
        registry = CollectorRegistry()
        starts = StartTimes(world.caches, registry)
        world.model(replicas=0)
        versions = itertools.count(1)

        def become(name: str, ready_at: str | None, component: str = names.SERVER) -> None:
            document = pod(name, "digits", component, ready_at=ready_at, created_at=CREATED)
            document["metadata"]["resourceVersion"] = str(next(versions))
            world.caches.pods._store(Key("team", name), document)

        def count() -> float:
            return registry.get_sample_value("halcyon_pod_start_seconds_count") or 0

        become("there-before", READY)
        become("balancer", None, names.BALANCER)
        become("balancer", READY, names.BALANCER)
        assert (starts.last(DIGITS), count()) == (None, 0), "ready when it was first seen; no server"
        become("new", None)
        become("new", READY)
        first = starts.last(DIGITS)
        assert first is not None
        assert (first.seconds, count()) == (42, 1)
        become("new", None)
        become("new", LATER)
        assert (starts.last(DIGITS), count()) == (first, 1), "ready again is no start"
        world.delete(DIGITS)
        assert starts.last(DIGITS) is None

    live(scenario)


def test_a_pod_that_bears_no_models_name_breaks_nothing() -> None:
    async def scenario(world: OperatorReplica) -> None:
        starts = StartTimes(world.caches, CollectorRegistry())
        for version, ready_at in enumerate((None, READY)):
            document = pod("theirs", "digits", names.SERVER, ready_at=ready_at, created_at=CREATED)
            document["metadata"]["resourceVersion"] = str(version)
            del document["metadata"]["labels"][names.OWNER_LABEL]
            world.caches.pods._store(Key("team", "theirs"), document)
        assert starts.last(DIGITS) is None

    live(scenario)


def test_a_start_on_a_node_whose_clock_is_behind_is_not_negative() -> None:
    async def scenario(world: OperatorReplica) -> None:
        starts = StartTimes(world.caches, CollectorRegistry())
        for version, ready_at in enumerate((None, "2025-12-31T23:59:59Z")):
            document = pod("new", "digits", names.SERVER, ready_at=ready_at, created_at=CREATED)
            document["metadata"]["resourceVersion"] = str(version)
            world.caches.pods._store(Key("team", "new"), document)
        last = starts.last(DIGITS)
        assert last is not None
        assert last.seconds == 0.0

    live(scenario)


def test_replicas_and_limits_that_an_hpa_sets_are_those_of_the_status() -> None:
    """With the policy Rules and an HPA, the decision has no desired replicas; HalcyonModelAtMax needs them."""
    by_hpa = replace(VERDICT, policy="Rules", desired=None, limited_by=())
    scaled = ModelState(DIGITS, 0.0, decision=by_hpa)
    values = exported_values(STATUS | {"scaling": {"desired": 6, "limitedBy": ["max", "pace"]}}, scaled=scaled)
    assert values["replicas_desired",] == 6
    assert {key[1] for key in values if key[0] == "limited"} == {"max", "pace"}
    planned = exported_values(
        STATUS | {"scaling": {"desired": 5, "limitedBy": ["hold"]}},
        scaled=ModelState(DIGITS, 0.0, decision=VERDICT),
    )
    assert planned["replicas_desired",] == 6, "the planner's, which is newer than the status"
    assert ("limited", "hold") not in planned


def test_desired_replicas_of_disabled_scaling_are_those_of_the_status() -> None:
    off = replace(VERDICT, policy="Rules", current=0, desired=0, limited_by=("off",))
    status = STATUS | {"scaling": {"desired": 2, "limitedBy": ["off"]}}
    values = exported_values(status, scaled=ModelState(DIGITS, 0.0, decision=off))

    assert values["replicas_desired",] == 2
    assert {key[1] for key in values if key[0] == "limited"} == {"off"}


@pytest.mark.parametrize(
    ("phase", "began_at"),
    [("Progressing", 1000.0), ("Blocked", 1000.0), ("Complete", None), ("RolledBack", None), ("Failed", None)],
)
def test_only_a_rollout_in_progress_has_a_start(phase: str, began_at: float | None) -> None:
    status = STATUS | {"rollout": {"phase": phase, "startedAt": "1970-01-01T00:16:40Z"}}

    assert exported_values(status).get(("rollout_start_timestamp_seconds",)) == began_at


def test_conditions_of_a_batch_are_exported_under_its_model() -> None:
    conditions = [
        {"type": "Failed", "status": "True", "reason": "InputChanged"},
        {"type": "Complete", "status": "False", "reason": "Failed"},
    ]
    night: dict[str, Any] = {
        "metadata": {"namespace": "team", "name": "night"},
        "spec": {"modelDeployment": "digits"},
        "status": {"conditions": conditions},
    }
    new = {"metadata": {"namespace": "team", "name": "new"}, "spec": {"modelDeployment": "digits"}}
    malformed: list[dict[str, Any]] = [
        {"metadata": {"namespace": "team", "name": "malformed"}, "spec": 7, "status": status}
        for status in ({"conditions": [5]}, {"conditions": 5}, "text")
    ]

    async def scenario(world: OperatorReplica) -> None:
        world.model()

    world = live(scenario)
    metrics = replace(of_models(world, world.time), batches=lambda: (*malformed, new, night))
    families = {family.name: family for family in text_string_to_metric_families(asyncio.run(metrics.page()))}

    assert [s.labels for s in families["halcyon_model_batch_condition"].samples] == [
        {"namespace": "team", "model_deployment": "digits", "batch": "night", **labels} for labels in conditions
    ]
