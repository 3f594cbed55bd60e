"""Limits on the queue that follow from the latency objective."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.balancer.config import overload_rules
from halcyon.balancer.runtime.concurrency import Concurrency
from halcyon.balancer.runtime.haproxy_stats import HaproxyStats
from halcyon.balancer.runtime.overload_limits import (
    LATE_WORK,
    NO_LIMITS,
    BatchTime,
    OverloadLimits,
    PodCapacity,
    PodStatistics,
    batch_time,
    pod_capacity,
)
from halcyon.balancer.runtime.service_rate import ServiceRate
from halcyon.balancer.runtime.shares import Elsewhere
from halcyon.triton.client import Endpoint, ModelConcurrency

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
    elsewhere: int | None = None,
) -> list[int]:
    others = None if elsewhere is None else Elsewhere(inflight=elsewhere)
    variables = values(plan, pods, rate, share=share, statistics=statistics, elsewhere=others)
    return [variables[name] for name in overload_rules.LIMITS]


def values(
    plan: BalancerPlan = PLAN,
    pods: int = 1,
    rate: ServiceRate | None = None,
    *,
    share: float = 1.0,
    statistics: PodStatistics = DEMO,
    sent: int = 16,
    fills: bool = False,
    elsewhere: Elsewhere | None = None,
) -> dict[str, int]:
    overload = OverloadLimits()
    known = {f"pod-{number}": statistics for number in range(pods)}
    overload.update(plan, READING, known, rate, servers=pods, now=0.0, share=share)
    return overload.values(pods, share, 1 / plan.balancers, sent=sent * pods, fills=fills, elsewhere=elsewhere)


def test_the_time_of_a_batch_comes_from_the_smallest_and_the_largest() -> None:
    batch = batch_time([DEMO, DEMO], 0)

    assert batch is not None
    assert batch.rows == 8
    assert (batch.fixed_s, batch.row_s, batch.largest_s) == pytest.approx((0.08, 0.006, 0.128))
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
    capacity = pod_capacity(objective_s, 8, 62.5, BatchTime(8, 0.08, 0.006))

    assert (capacity.in_time, capacity.sent) == (in_time, sent)


@given(st.floats(0.001, 3600), st.integers(1, 256), st.floats(0.01, 1e6), st.floats(0, 10), st.floats(0, 1))
def test_the_numbers_of_a_pod_are_in_order_and_at_least_one(
    objective_s: float, batch: int, rate_rps: float, fixed_s: float, row_s: float
) -> None:
    for time in (None, BatchTime(batch, fixed_s, row_s)):
        capacity = pod_capacity(objective_s, batch, rate_rps, time)

        assert 1 <= capacity.sent <= capacity.in_time <= capacity.in_objective


def test_limits_are_of_requests_that_wait_or_are_in_pods() -> None:
    # Of 31 within the objective, 30 leave a margin.
    assert limits() == [24, 30, 62, 24]
    assert limits(pods=2) == [48, 59, 125, 48]


def test_instances_that_only_the_model_sets_are_kept_busy() -> None:
    concurrency, pod = Concurrency("m-balancer-a"), Endpoint("a", "m-server-a-0-x", "10.0.0.1", True, False)
    concurrency.place([pod])
    assert concurrency.at_once(PLAN) == (1, True)
    concurrency.facts = dict.fromkeys(concurrency.unknown_revisions([pod]), ModelConcurrency(4, batches=True))
    assert concurrency.at_once(PLAN) == (4, True)
    overload = OverloadLimits()
    overload.update(
        PLAN,
        READING,
        {"p": DEMO},
        None,
        servers=1,
        now=0.0,
        share=1.0,
        instances=concurrency.instances(PLAN),
    )
    assert overload.capacity is not None
    # Three batches of 8 in each instance. With three batches in the pod, one of four instances would be idle.
    assert overload.capacity.sent == 4 * 24


def test_a_balancer_has_its_share() -> None:
    two = replace(PLAN, balancers=2)

    assert limits(two, share=0.5) == [12, 15, 31, 12]
    # Of a burst it may take more, since it reaches the balancer before its share can grow.
    assert limits(two, share=0.1) == [2, 3, 31, 2]


def test_a_burst_at_one_balancer_takes_what_the_others_leave() -> None:
    two = replace(PLAN, balancers=2)

    # Of 24, 30 and 62, as if it were alone.
    assert limits(two, share=0.5, elsewhere=0) == [24, 30, 62, 12]
    assert limits(two, share=0.5, elsewhere=10) == [14, 20, 52, 12]
    # Never less than its share, however much waits elsewhere.
    assert limits(two, share=0.5, elsewhere=1000) == limits(two, share=0.5)


def late_limits(**changes: Any) -> list[int]:
    variables = values(**changes)
    return [variables[name] for name in (overload_rules.LATE_MOST, overload_rules.LATE_ROOM)]


def test_the_pace_of_a_balancer_is_its_share_of_the_rate() -> None:
    two = values(replace(PLAN, balancers=2), pods=4, share=0.25)

    # Half of 250 per second; five moments for 32 requests answered within the objective by any balancer.
    assert (two[overload_rules.LATE_PACE], two[overload_rules.LATE_SPREAD]) == (125_000, 1953)
    # With an objective of one batch, a burst at two moments is no overload.
    assert values(replace(PLAN, objective_ms=100))[overload_rules.LATE_SPREAD] == 200


def test_late_requests_have_a_limit_and_leave_pods_two_batches() -> None:
    in_objective = 0.5 * 62.5
    assert late_limits() == [round(LATE_WORK * in_objective), 16]
    assert late_limits(pods=2) == [round(2 * LATE_WORK * in_objective), 32]
    # A model that isn't batched: as many as its servers compute at once.
    assert late_limits(sent=5, fills=True)[1] == 5


def test_late_requests_of_a_balancer_take_what_others_leave() -> None:
    two = replace(PLAN, balancers=2)
    total = round(LATE_WORK * 0.5 * 62.5)

    assert late_limits(plan=two, share=0.5) == [round(total / 2), 8]
    assert late_limits(plan=two, share=0.5, elsewhere=Elsewhere()) == [total, 16]
    assert late_limits(plan=two, share=0.5, elsewhere=Elsewhere(inflight=6, late=5)) == [total - 5, 10]
    assert late_limits(plan=two, share=0.5, elsewhere=Elsewhere(inflight=100, late=1000)) == [round(total / 2), 8]
    # Those that wait elsewhere, and can be in time, have the places in pods.
    assert late_limits(plan=two, share=0.5, elsewhere=Elsewhere(waiting=3, inflight=16))[1] == 0


def test_the_measured_rate_replaces_the_statistics() -> None:
    assert limits(rate=ServiceRate(rate_rps=31.25, service_s=0.5)) == [16, 16, 32, 16]
    # Near the statistics, it confirms them: 62.5 requests a second.
    for confirms in (45.0, 62.5, 85.0):
        assert limits(rate=ServiceRate(confirms, 0.3)) == limits()
    # A model that returns before the answer: the statistics say microseconds.
    slow = replace(PLAN, objective_ms=40_000, max_batch=0)
    early = PodStatistics(batches=((1, 100, 1000),))
    assert limits(slow, statistics=early)[0] > 100_000
    assert limits(slow, statistics=early, rate=ServiceRate(2.0, 16.0)) == [76, 76, 160, 76]


def test_one_request_that_waits_in_each_balancer_counts() -> None:
    pod = PodCapacity(in_time=24, in_objective=31.0, sent=24)

    assert [pod.bound(servers, 2) for servers in (1, 2, 4)] == [22, 23, 23]
    assert PodCapacity(in_time=56, in_objective=62.0, sent=24).bound(1, 2) == 24
    assert PodCapacity(in_time=1, in_objective=1.0, sent=1).bound(1, 2) == 1


def test_requests_with_several_rows_fill_a_batch_sooner() -> None:
    overload = OverloadLimits()
    # The warm-up's request had eight rows, which says nothing about clients.
    for now, requests, rows in ((0.0, 1, 8), (1.0, 101, 408)):
        overload.update(
            PLAN, READING, {"p": replace(DEMO, succeeded=requests, rows=rows)}, None, servers=1, now=now, share=1.0
        )

    assert overload.capacity == PodCapacity(
        in_time=6, in_objective=0.5 * 2 / 0.128, sent=6, busy=4.0, rate_rps=2 / 0.128
    )


def test_the_measured_rate_counts_the_answers_of_other_balancers() -> None:
    overload = OverloadLimits()
    rate = ServiceRate(rate_rps=15.625, service_s=0.5)
    for now, succeeded, own in ((0.0, 0, 0), (1.0, 60, 15)):
        pods = {"p": replace(DEMO, succeeded=succeeded, rows=succeeded)}
        overload.update(PLAN, replace(READING, answered=own), pods, rate, servers=1, now=now, share=0.9)

    assert overload.capacity is not None
    assert overload.capacity.in_objective == 0.5 * 4 * 15.625


def test_answers_of_new_pods_leave_the_share_of_a_balancer() -> None:
    overload = OverloadLimits()
    for now in range(9):
        # Half of the answers of each pod are of this balancer. Three more pods become ready just after the fourth second.
        counts = {"p": 62 * now} | {f"new-{number}": 62 * (now - 4) for number in range(3) if now > 4}
        pods = {name: replace(DEMO, succeeded=count, rows=count) for name, count in counts.items()}
        own = sum(counts.values()) // 2
        rate = ServiceRate(rate_rps=31.0 * len(pods), service_s=0.5)
        overload.update(PLAN, replace(READING, answered=own), pods, rate, servers=len(pods), now=float(now), share=0.5)
        assert overload.capacity is not None
        assert overload.capacity.in_time == 24, now


def test_rejected_requests_are_demand() -> None:
    overload = OverloadLimits()
    for now, rejected in ((0.0, 100), (2.0, 400)):
        overload.update(PLAN, replace(READING, rejected=rejected), {"p": DEMO}, None, servers=1, now=now, share=1.0)

    assert overload.rejected_load == 75.0, "150 per second, each for half a second"


def test_an_overload_lasts_once_many_requests_are_rejected_for_seconds() -> None:
    overload = OverloadLimits()

    def after(seconds: int, *, share: float) -> bool:
        nonlocal now, requests, rejected
        for _ in range(seconds):
            now, requests, rejected = now + 1, requests + 100, rejected + round(100 * share)
            reading = replace(READING, requests=requests, rejected=rejected)
            overload.update(PLAN, reading, {"p": DEMO}, None, servers=1, now=float(now), share=1.0)
        return overload.lasts

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
    overload = OverloadLimits()
    overload.update(plan, READING, {"p": statistics}, None, servers=servers, now=0.0, share=1.0)

    assert overload.values(servers, 1.0, 1.0, sent=0) == NO_LIMITS
