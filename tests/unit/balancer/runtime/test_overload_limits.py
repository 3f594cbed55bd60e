"""Limits on the queue that follow from the latency objective."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.balancer.config import overload_rules
from halcyon.balancer.runtime.overload_limits import (
    NO_LIMITS,
    BatchTime,
    OverloadLimits,
    PodCapacity,
    PodStatistics,
    batch_time,
    pod_capacity,
)
from halcyon.balancer.runtime.runtime_api import HaproxyStats
from halcyon.balancer.runtime.service_rate import ServiceRate

PLAN = BalancerPlan(
    namespace="default",
    name="m",
    model="m",
    slots=(Slot("a", "m-server-a", 100, 8),),
    max_connections=16,
    queue_limit=100_000,
    queue_timeout_ms=60_000,
    response_timeout_ms=60_000,
    drain_ms=30_000,
    objective_ms=500,
    max_batch=8,
    balancers=1,
)
READING = HaproxyStats(at=0.0, process=1, config="")


DEMO = PodStatistics(batches=((1, 2, 2 * 86_000), (8, 4, 4 * 128_000)))
"""80 + 6 b ms: 62.5 requests a second."""


def limits(plan: BalancerPlan = PLAN, pods: int = 1, rate: ServiceRate | None = None, **options: float) -> list[int]:
    samples = {f"pod-{number}": DEMO for number in range(pods)}
    found = OverloadLimits().update(plan, READING, samples, rate, servers=pods, now=0.0, **options)  # type: ignore[arg-type]
    return [found[name] for name in overload_rules.LIMITS]


def test_the_time_of_a_batch_comes_from_the_smallest_and_the_largest() -> None:
    found = batch_time([DEMO, DEMO], 0)

    assert found is not None
    assert found.rows == 8
    assert (found.fixed_s, found.row_s, found.largest_s) == pytest.approx((0.08, 0.006, 0.128))
    assert batch_time([], 8) is None


@pytest.mark.parametrize(
    ("objective_s", "in_time", "sent"),
    [
        (0.5, 24, 16),  # 3.7 batches of 128 ms
        (1.0, 56, 48),
        (0.3, 16, 16),  # 2.2 batches
        (0.2, 5, 5),  # two batches of 2.5 rows: 2 x 95 ms
        (0.1, 1, 1),  # nothing but a single request
        (0.01, 1, 1),
    ],
)
def test_a_pod_holds_whole_batches_that_end_within_the_objective(objective_s: float, in_time: int, sent: int) -> None:
    found = pod_capacity(objective_s, 8, 62.5, BatchTime(8, 0.08, 0.006))

    assert (found.in_time, found.sent) == (in_time, sent)


@given(st.floats(0.001, 3600), st.integers(1, 256), st.floats(0.01, 1e6), st.floats(0, 10), st.floats(0, 1))
def test_the_numbers_of_a_pod_are_in_order_and_at_least_one(
    objective_s: float, batch: int, rate_rps: float, fixed_s: float, row_s: float
) -> None:
    for time in (None, BatchTime(batch, fixed_s, row_s)):
        found = pod_capacity(objective_s, batch, rate_rps, time)

        assert 1 <= found.sent <= found.in_time <= found.in_objective


def test_requests_sent_to_pods_are_not_queued() -> None:
    # Of 24 in time, 31 within the objective and 62 within twice the objective, 16 are in the pod.
    assert limits() == [8, 15, 46, 24]
    assert limits(pods=2) == [16, 30, 93, 48]
    assert limits(sent=24) == [1, 7, 38, 24]
    assert limits(sent=1000) == [1, 1, 2, 24]


def test_a_balancer_has_its_share() -> None:
    two = replace(PLAN, balancers=2, max_connections=8)

    assert limits(two) == [4, 8, 23, 12], "an equal one while nothing is known"
    assert limits(two, share=1.0) == [16, 23, 54, 24]
    # Of a burst it may take more, since it reaches the balancer before its share can grow.
    assert limits(two, share=0.1) == [1, 1, 23, 2]


def test_the_measured_rate_replaces_the_statistics() -> None:
    half = ServiceRate(rate_rps=31.25, service_s=0.5)

    assert limits(rate=half) == [1, 1, 16, 16]
    # A model that returns before the answer: the statistics say microseconds.
    early = {"p": PodStatistics(batches=((1, 100, 1000),))}
    slow = OverloadLimits()
    plan = replace(PLAN, objective_ms=40_000, max_batch=0, max_connections=32)
    assert slow.update(plan, READING, early, None, servers=1, now=0.0)["proc.in_time"] > 100_000
    found = slow.update(plan, READING, early, ServiceRate(2.0, 16.0), servers=1, now=1.0)
    assert found == {"proc.in_time": 44, "proc.late": 48, "proc.hopeless": 128, "proc.present": 76}


def test_requests_with_several_rows_fill_a_batch_sooner() -> None:
    made = OverloadLimits()
    made.update(PLAN, READING, {"p": replace(DEMO, succeeded=100, rows=400)}, None, servers=1, now=0.0)

    assert made.capacity == PodCapacity(in_time=6, in_objective=0.5 * 2 / 0.128, sent=4)


def test_limits_need_an_objective_a_server_and_a_time() -> None:
    made = OverloadLimits()

    assert made.update(replace(PLAN, objective_ms=0), READING, {"p": DEMO}, None, servers=1, now=0.0) == NO_LIMITS
    assert made.update(PLAN, READING, {"p": DEMO}, None, servers=0, now=0.0) == NO_LIMITS
    assert made.update(PLAN, READING, {"p": PodStatistics()}, None, servers=1, now=0.0) == NO_LIMITS
    assert made.capacity is None
