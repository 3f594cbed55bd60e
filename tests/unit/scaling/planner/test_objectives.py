"""Specs to objectives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon.scaling.planner.objectives import NoScalingError, largest, objectives, windows
from halcyon.scaling.planner.reading import Objectives, OpenWindow
from halcyon.scaling.schedules import CronSchedule, in_force
from tests.drawn import draws
from tests.simulator.planner.driver import OBJECTIVES, Driven
from tests.strategies import specs


def spec(**parts: Any) -> Spec:
    document = {
        "model": {"source": {"persistentVolumeClaim": {"claimName": "models", "path": "m"}}},
        "runtime": {"gpu": {"count": 1}},
        "scaling": {"minReplicas": 2, "maxReplicas": 9},
        **parts,
    }
    return parse("m", document)


def test_a_small_spec_leaves_the_planner_to_decide_by_the_rate() -> None:
    assert objectives(spec()) == Objectives(low=2, high=9, max_batch=1, instances=1, queue_limit=400)


def test_settings_of_the_user_are_honoured() -> None:
    aims = objectives(
        spec(
            batching={"maxBatchSize": 16},
            runtime={"gpu": {"count": 2}, "instancesPerGPU": 3, "startupTimeout": "30m"},
            scaling={"maxReplicas": 9, "targets": {"queueDepth": 40, "gpuUtilization": 70}},
            traffic={"queueLimit": 100, "balancerReplicas": 3},
        ),
        low=0,
        latency_s=0.3,
        idle_after_s=600.0,
        windows=(OpenWindow("day", 4),),
        batch_prior={1: 0.01},
        largest_seen=4,
    )
    assert aims == Objectives(
        low=0,
        high=9,
        max_batch=16,
        instances=6,
        latency_s=0.3,
        queue_depth=40,
        gpu_utilization=70,
        queue_limit=300,
        idle_after_s=600.0,
        startup_timeout_s=1800.0,
        windows=(OpenWindow("day", 4),),
        batch_prior={1: 0.01},
    )


def test_the_largest_batch_seen_counts_without_a_setting() -> None:
    assert objectives(spec(), largest_seen=12).max_batch == 12
    assert largest({1: (5, 0.1), 8: (1, 0.1), 16: (0, 0.0)}) == 8
    assert largest(None) is largest({}) is None


def test_a_spec_without_scaling_is_refused_with_an_example() -> None:
    with pytest.raises(NoScalingError, match=r"spec.scaling is missing.*for example scaling: \{minReplicas"):
        objectives(spec(scaling=None))


def test_open_schedules_are_the_planners_windows() -> None:
    day = CronSchedule("day", "0 8 * * *", 3600.0, low=3)
    assert windows(in_force([day], 8.5 * 3600)) == (OpenWindow("day", 3, None),)
    assert windows(in_force([day], 12 * 3600)) == ()


@draws(1.5)
@given(specs())
def test_every_spec_with_scaling_has_objectives(any_spec: Spec) -> None:
    if any_spec.scaling is not None:
        aims = objectives(any_spec)
        assert 0 <= aims.low <= aims.high
        assert aims.max_batch >= 1
        assert aims.instances >= 1


def test_a_raised_minimum_holds_at_once_from_zero() -> None:
    driven = Driven(objectives=replace(OBJECTIVES, low=3), replicas=0)
    assert driven.run([0.0])[-1] == 3


@pytest.mark.parametrize("change", [{"latency_s": 3.0}, {"high": 200}, {"low": 2}], ids=str)
def test_a_change_of_objectives_removes_no_replica_that_the_load_needs(change: dict[str, Any]) -> None:
    driven = Driven(replicas=3)
    before = driven.run([50.0] * 600)[-1]
    driven.objectives = replace(OBJECTIVES, **change)
    assert before >= 5
    assert min(driven.run([50.0] * 300)) >= 5
