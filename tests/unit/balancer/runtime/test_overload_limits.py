"""Limits on the queue that follow from the latency objective."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.balancer.config import overload_rules
from halcyon.balancer.runtime.haproxy_stats import HaproxyStats
from halcyon.balancer.runtime.overload_limits import (
    NO_LIMITS,
    BatchTime,
    OverloadLimits,
    PodCapacity,
    PodStatistics,
    batch_time,
    pod_capacity,
)
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


def limits(
    plan: BalancerPlan = PLAN,
    pods: int = 1,
    rate: ServiceRate | None = None,
    *,
    share: float = 1.0,
    statistics: PodStatistics = DEMO,
    sent: int = 16,
    elsewhere: int | None = None,
) -> list[int]:
    made = OverloadLimits()
    known = {f"pod-{number}": statistics for number in range(pods)}
    made.update(plan, READING, known, rate, servers=pods, now=0.0, share=share)
    found = made.values(
        servers=pods, share=share, least_share=1 / plan.balancers, sent=sent * pods, elsewhere=elsewhere
    )
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
        (0.5, 24, 24),  # 3.7 batches of 128 ms
        (1.0, 56, 24),
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
    two = replace(PLAN, balancers=2)

    assert limits(two, share=0.5, sent=8) == [4, 8, 23, 12]
    assert limits(two, share=1.0, sent=15) == [9, 16, 47, 24]
    # Of a burst it may take more, since it reaches the balancer before its share can grow.
    assert limits(two, share=0.1, sent=2) == [1, 1, 29, 2]


def test_a_burst_at_one_balancer_takes_what_the_others_leave() -> None:
    two = replace(PLAN, balancers=2)

    # Of 24, 31 and 62, as if it were alone.
    assert limits(two, share=0.5, sent=8, elsewhere=0) == [16, 23, 54, 12]
    assert limits(two, share=0.5, sent=8, elsewhere=10) == [6, 13, 44, 12]
    # Never less than its share, however much waits elsewhere.
    assert limits(two, share=0.5, sent=8, elsewhere=1000) == limits(two, share=0.5, sent=8)


def test_the_measured_rate_replaces_the_statistics() -> None:
    assert limits(rate=ServiceRate(rate_rps=31.25, service_s=0.5)) == [1, 1, 16, 16]
    # Near the statistics, it confirms them: 62.5 requests a second.
    for confirms in (45.0, 62.5, 85.0):
        assert limits(rate=ServiceRate(confirms, 0.3)) == limits()
    # A model that returns before the answer: the statistics say microseconds.
    slow = replace(PLAN, objective_ms=40_000, max_batch=0)
    early = PodStatistics(batches=((1, 100, 1000),))
    assert limits(slow, statistics=early)[0] > 100_000
    assert limits(slow, statistics=early, rate=ServiceRate(2.0, 16.0), sent=32) == [44, 48, 128, 76]


def test_one_request_that_waits_in_each_balancer_counts() -> None:
    pod = PodCapacity(in_time=24, in_objective=31.0, sent=24)

    assert [pod.bound(servers, 2) for servers in (1, 2, 4)] == [22, 23, 23]
    assert PodCapacity(in_time=56, in_objective=62.0, sent=24).bound(1, 2) == 24
    assert PodCapacity(in_time=1, in_objective=1.0, sent=1).bound(1, 2) == 1


def test_requests_with_several_rows_fill_a_batch_sooner() -> None:
    made = OverloadLimits()
    # The warm-up's request had eight rows, which says nothing about clients.
    for now, requests, rows in ((0.0, 1, 8), (1.0, 101, 408)):
        made.update(
            PLAN, READING, {"p": replace(DEMO, succeeded=requests, rows=rows)}, None, servers=1, now=now, share=1.0
        )

    assert made.capacity == PodCapacity(in_time=6, in_objective=0.5 * 2 / 0.128, sent=6)


def test_the_measured_rate_counts_the_answers_of_other_balancers() -> None:
    made = OverloadLimits()
    rate = ServiceRate(rate_rps=15.625, service_s=0.5)
    for now, succeeded, own in ((0.0, 0, 0), (1.0, 60, 15)):
        pods = {"p": replace(DEMO, succeeded=succeeded, rows=succeeded)}
        made.update(PLAN, replace(READING, answered=own), pods, rate, servers=1, now=now, share=0.9)

    assert made.capacity is not None
    assert made.capacity.in_objective == 0.5 * 4 * 15.625


def test_rejected_requests_are_demand() -> None:
    made = OverloadLimits()
    for now, rejected in ((0.0, 100), (2.0, 400)):
        made.update(PLAN, replace(READING, rejected=rejected), {"p": DEMO}, None, servers=1, now=now, share=1.0)

    assert made.rejected_load == 75.0, "150 per second, each for half a second"


def test_an_overload_lasts_once_many_requests_are_rejected_for_seconds() -> None:
    made = OverloadLimits()

    def after(seconds: int, *, share: float) -> bool:
        nonlocal now, requests, rejected
        for _ in range(seconds):
            now, requests, rejected = now + 1, requests + 100, rejected + round(100 * share)
            reading = replace(READING, requests=requests, rejected=rejected)
            made.update(PLAN, reading, {"p": DEMO}, None, servers=1, now=float(now), share=1.0)
        return made.lasts

    now = requests = rejected = 0
    assert not after(20, share=0.05), "a bursty load"
    assert not after(1, share=0.3), "one burst"
    assert after(4, share=0.3)
    assert after(3, share=0.0), "it ends later than it began"
    assert not after(10, share=0.0)


@pytest.mark.parametrize(
    ("plan", "servers", "statistics"),
    [(replace(PLAN, objective_ms=0), 1, DEMO), (PLAN, 0, DEMO), (PLAN, 1, PodStatistics())],
)
def test_limits_need_an_objective_a_server_and_a_time(
    plan: BalancerPlan, servers: int, statistics: PodStatistics
) -> None:
    made = OverloadLimits()
    made.update(plan, READING, {"p": statistics}, None, servers=servers, now=0.0, share=1.0)

    assert made.values(servers=servers, share=1.0, least_share=1.0, sent=0) == NO_LIMITS
