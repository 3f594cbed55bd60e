"""Defaults that depend on other fields."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import parse
from halcyon.render import server_maxconn
from tests.strategies import specs


def spec(**fields: Any) -> Spec:
    return parse("digits", {"model": {"source": {"persistentVolumeClaim": {"claimName": "m"}}}, **fields})


@pytest.mark.parametrize(
    ("fields", "capacity"),
    [
        ({}, 8),
        ({"batching": {}}, 8),
        ({"batching": {"maxBatchSize": 16}}, 16),
        ({"batching": {"maxBatchSize": 16}, "runtime": {"instancesPerGPU": 2}}, 32),
        ({"batching": {"maxBatchSize": 16}, "runtime": {"instancesPerGPU": 2, "gpu": {"count": 4}}}, 128),
        ({"batching": {"maxBatchSize": 16}, "runtime": {"gpu": {"count": 0}}}, 16),
    ],
)
def test_a_replica_computes_one_batch_for_every_instance(fields: dict[str, Any], capacity: int) -> None:
    assert defaults.batch_capacity(spec(**fields)) == capacity


@pytest.mark.parametrize(
    ("targets", "gpus", "queue", "gpu"),
    [
        ({}, 1, 8, 80),
        ({}, 0, 8, None),
        ({"queueDepth": 3}, 1, 3, 80),
        ({"gpuUtilization": 50}, 2, 16, 50),
    ],
)
def test_targets_left_out_are_resolved(targets: dict[str, int], gpus: int, queue: int, gpu: int | None) -> None:
    resolved = defaults.targets(spec(runtime={"gpu": {"count": gpus}}, scaling={"maxReplicas": 2, "targets": targets}))

    assert resolved == defaults.ResolvedTargets(queue_depth=queue, gpu_utilization=gpu)


@pytest.mark.parametrize(
    ("replicas", "limits", "bounded", "most"),
    [
        (0, None, 0, 1),
        (7, None, 7, 7),
        (7, (1, 10), 7, 10),
        (0, (2, 10), 2, 10),
        (20, (2, 10), 10, 20),
    ],
)
def test_replicas_stay_within_the_limits_of_scaling(
    replicas: int, limits: tuple[int, int] | None, bounded: int, most: int
) -> None:
    scaling = {"scaling": {"minReplicas": limits[0], "maxReplicas": limits[1]}} if limits else {}
    model_spec = spec(replicas=replicas, **scaling)

    assert defaults.bounded_replicas(model_spec) == bounded
    assert defaults.most_replicas(model_spec) == most


@pytest.mark.parametrize(("policy", "replicas", "bounded"), [("Planner", 1, 2), ("Planner", 3, 3), ("Rules", 1, 4)])
def test_a_schedules_maximum_below_the_minimum_is_in_force(policy: str, replicas: int, bounded: int) -> None:
    night = {"name": "night", "start": "0 22 * * *", "duration": "8h", "maxReplicas": 2}
    model_spec = spec(
        replicas=replicas, scaling={"policy": policy, "minReplicas": 4, "maxReplicas": 8, "schedules": [night]}
    )

    assert defaults.bounded_replicas(model_spec) == bounded


@given(specs())
def test_replicas_in_force_never_exceed_the_reserved_maximum(model_spec: Spec) -> None:
    assert 0 <= defaults.bounded_replicas(model_spec) <= defaults.most_replicas(model_spec) <= 1000
    assert server_maxconn.server_connections(model_spec) >= 2 * defaults.batch_capacity(model_spec)


def test_a_pinned_memory_pool_needs_a_gpu() -> None:
    pool = {"server": {"pinnedMemoryPool": "64Mi"}}
    (sentence,) = defaults.ignored(spec(runtime=pool))
    assert sentence.startswith("spec.runtime.server.pinnedMemoryPool: ignored without a GPU")
    assert defaults.ignored(spec(runtime={**pool, "gpu": {"count": 1}})) == ()


_LATENCY = {"maxReplicas": 2, "targets": {"latency": "500ms"}}


@pytest.mark.parametrize(
    ("scaling", "traffic", "mode", "limit"),
    [
        (None, {}, "Wait", 200),
        ({"maxReplicas": 2}, {}, "Wait", 200),
        (_LATENCY, {}, "Reject", None),
        (_LATENCY, {"queueLimit": 9}, "Wait", 9),
        (_LATENCY, {"queueLimit": 9, "overload": {"mode": "Reject"}}, "Reject", 9),
        (_LATENCY, {"overload": {"mode": "Wait"}}, "Wait", 200),
        ({**_LATENCY, "policy": "Rules"}, {}, "Wait", 200),
    ],
)
def test_a_latency_objective_alone_limits_the_queue(
    scaling: dict[str, Any] | None, traffic: dict[str, Any], mode: str, limit: int | None
) -> None:
    model_spec = spec(traffic=traffic, **({} if scaling is None else {"scaling": scaling}))

    assert (defaults.overload_mode(model_spec), defaults.queue_limit(model_spec)) == (mode, limit)
    assert defaults.ignored(model_spec) == (
        ("spec.scaling.targets.latency: ignored with policy Rules; set policy: Planner to use it",)
        if scaling and "policy" in scaling
        else ()
    )


@pytest.mark.parametrize(
    ("limits", "messages"),
    [
        ({"minReplicas": 2, "maxReplicas": 8}, ()),
        ({"minReplicas": 6, "maxReplicas": 7}, ()),
        ({"maxReplicas": 1}, ()),
        ({"minReplicas": 1}, ("minReplicas 1 of schedule fair is ignored, because spec.scaling.minReplicas is 2",)),
        (
            {"minReplicas": 20},
            ("minReplicas 20 of schedule fair is ignored above spec.scaling.maxReplicas, which is 8",),
        ),
        ({"maxReplicas": 9}, ("maxReplicas 9 of schedule fair is ignored above spec.scaling.maxReplicas, which is 8",)),
    ],
)
def test_a_limit_of_a_schedule_beyond_those_of_the_model_is_reported(
    limits: dict[str, int], messages: tuple[str, ...]
) -> None:
    schedule = {"name": "fair", "start": "0 8 * * *", "duration": "10h", **limits}
    ignored = defaults.ignored(spec(scaling={"minReplicas": 2, "maxReplicas": 8, "schedules": [schedule]}))

    assert [text.partition("; ")[0] for text in ignored] == [f"spec.scaling.schedules: {text}" for text in messages]


def test_rejection_without_an_objective_is_reported_as_ineffective() -> None:
    [text] = defaults.ignored(spec(traffic={"overload": {"mode": "Reject"}}))

    assert text.startswith("spec.traffic.overload.mode: Reject needs a latency objective")


ZERO = {"scaling": {"minReplicas": 0, "maxReplicas": 2}}


@pytest.mark.parametrize(
    ("fields", "start_s", "hold_ms"),
    [
        (ZERO, None, 60_000),
        (ZERO, 40.0, 60_000),
        (ZERO, 41.0, 120_000),
        (ZERO, 79.0, 120_000),
        (ZERO, 600.0, 960_000),
        (ZERO, 90_000.0, 3_600_000),
        (ZERO | {"traffic": {"queueTimeout": "30s"}}, 600.0, 30_000),
        ({"scaling": {"minReplicas": 1, "maxReplicas": 2}}, 600.0, 60_000),
        ({}, 600.0, 60_000),
    ],
    ids=["no start", "short", "just longer", "same step", "long", "longest", "given", "a pod stays", "no scaling"],
)
def test_a_request_at_zero_waits_for_the_last_measured_start(
    fields: dict[str, Any], start_s: float | None, hold_ms: int
) -> None:
    model_spec = spec(**fields)

    assert defaults.hold_timeout_ms(model_spec, start_s) == hold_ms
    assert defaults.queue_timeout_ms(model_spec) == min(hold_ms, 60_000)


def test_a_queue_timeout_shorter_than_the_last_start_is_reported() -> None:
    short = spec(**ZERO, traffic={"queueTimeout": "2m"})

    assert defaults.late_starts(short, 119.0) == ()
    (message,) = defaults.late_starts(short, 130.0)
    assert "spec.traffic.queueTimeout is 2m but the last start of a pod took 130 s" in message
    assert message.endswith("for example 195s")
    (message,) = defaults.late_starts(short, 3000.0)
    assert message.endswith("for example 3600s"), "the maximum of queueTimeout is 1h"
    assert defaults.late_starts(short, None) == defaults.late_starts(spec(**ZERO), 130.0) == ()


def test_a_source_share_without_a_queue_limit_is_reported_as_ineffective() -> None:
    [text] = defaults.ignored(spec(scaling=_LATENCY, traffic={"sourceShare": 50}))
    assert text.startswith("spec.traffic.sourceShare: ignored, because the latency objective replaces queueLimit; set")
    both = {"queueLimit": 200, "overload": {"mode": "Reject"}}
    for traffic in (both, {"queueLimit": 200}, {"overload": {"mode": "Wait"}}):
        assert defaults.ignored(spec(scaling=_LATENCY, traffic={"sourceShare": 50} | traffic)) == ()
    assert defaults.ignored(spec(traffic={"sourceShare": 50})) == ()


def test_limits_of_a_disabled_analysis_are_reported_as_ineffective() -> None:
    limits = {"maxFailureIncrease": 2, "maxLatencyIncrease": 30, "maxQueueTimeIncrease": 99, "minRequests": 200}

    def reported(mode: str) -> list[str]:
        rollout = {"strategy": "Canary", "canary": {"analysis": {"mode": mode, **limits}}}
        return [sentence.partition(":")[0] for sentence in defaults.ignored(spec(rollout=rollout))]

    assert reported("Enabled") == []
    assert reported("Disabled") == [f"spec.rollout.canary.analysis.{name}" for name in limits]
