"""Shares of a pod's bound: what they add up to, and who gets them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.balancer.runtime.concurrency import Concurrency
from halcyon.balancer.runtime.haproxy_stats import BackendLoads
from halcyon.balancer.runtime.shares import BalancerLoad, Elsewhere, LoadError, PodLoad, decayed, pod_limits

PODS = {f"10.0.0.{number}": 8 for number in range(1, 5)}


def load(agent: str, http: float, grpc: float = 0.0, **pods: PodLoad) -> BalancerLoad:
    return BalancerLoad(agent, {"a": (http, grpc)}, {}, dict(pods))


def settled(bound: int, loads: list[BalancerLoad], rounds: int = 4) -> list[BalancerLoad]:
    """Return the loads after each agent has followed the others' limits some times, without requests in progress."""
    bounds = dict.fromkeys(PODS, bound)
    for _ in range(rounds):
        for index, own in enumerate(loads):
            own_limits = pod_limits(bounds, "a", own, [other for other in loads if other is not own])
            pods = {address: PodLoad((0, 0), limits) for address, limits in own_limits.items()}
            loads[index] = BalancerLoad(own.agent, own.demand, {}, pods)
    return loads


@given(
    bound=st.integers(1, 300),
    demands=st.lists(st.tuples(st.floats(0, 500), st.floats(0, 500)), min_size=1, max_size=5),
)
def test_limits_add_up_to_the_bound_and_at_most_one_each(bound: int, demands: list[tuple[float, float]]) -> None:
    loads = settled(bound, [load(f"b{number}", *demand) for number, demand in enumerate(demands)])
    for address in PODS:
        limits = [limit for balancer in loads for limit in balancer.pods[address].limits]
        assert min(limits) >= 1
        assert sum(limit for limit in limits if limit > 1) <= bound
        assert sum(limits) >= bound


def test_one_with_demand_gets_the_whole_bound() -> None:
    busy, idle = settled(8, [load("a", 30), load("b", 0)])
    assert {pod.limits for pod in busy.pods.values()} == {(8, 1)}
    assert {pod.limits for pod in idle.pods.values()} == {(1, 1)}


def test_shares_follow_demand() -> None:
    more, less = settled(8, [load("a", 30), load("b", 10)])
    assert sum(pod.limits[0] for pod in more.pods.values()) == 24
    assert sum(pod.limits[0] for pod in less.pods.values()) == 8


def test_a_share_grows_only_into_what_others_have_released() -> None:
    other = load("b", 0, **{"10.0.0.1": PodLoad((6, 0), (1, 1))})
    own = load("a", 30, **{"10.0.0.1": PodLoad((1, 0), (1, 1))})
    assert pod_limits({"10.0.0.1": 8}, "a", own, [other]) == {"10.0.0.1": (2, 1)}


def test_a_balancer_that_is_not_known_yet_keeps_its_share() -> None:
    own = load("a", 30)
    assert pod_limits({"10.0.0.1": 8}, "a", own, [], unknown=1)["10.0.0.1"][0] == 4


def test_demand_outlasts_a_short_gap() -> None:
    assert decayed((8.0, 0.0), (0.0, 3.0), lasted_s=4.0) == (4.0, 3.0)


def test_a_load_is_read_as_it_was_written() -> None:
    balancer_load = BalancerLoad(
        "m-1", {"a": (2.5, 0.0)}, {"a": 3}, {"10.0.0.1": PodLoad((1, 2), (3, 4), 5)}, {"m-a-1": 32}, late=4
    )
    assert BalancerLoad.from_json(balancer_load.to_json()) == balancer_load


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"agent":"a","demand":{"a":[1]},"waiting":{},"pods":{},"found":{}}',
        '{"agent":"a","demand":{"a":[1e999,0]},"waiting":{},"pods":{},"found":{}}',
        '{"agent":"a","demand":{"a":[NaN,0]},"waiting":{},"pods":{},"found":{}}',
        '{"agent":"a","demand":{},"waiting":{"a":1e999},"pods":{},"found":{}}',
    ],
)
def test_anything_else_is_no_load(text: str) -> None:
    with pytest.raises(LoadError, match="not the load of a balancer"):
        BalancerLoad.from_json(text)


@pytest.mark.parametrize(
    ("late", "rejected", "demand"), [(0, 0.0, 10.0), (3, 0.0, 13.0), (0, 5.0, 15.0), (3, 5.0, 15.0)]
)
def test_late_requests_and_rejected_ones_are_the_same_demand(late: int, rejected: float, demand: float) -> None:
    plan = BalancerPlan("n", "m", "m", (Slot("a", "m-a", 100, 1),), 4, 100, 1000, 1000, 1000, objective_ms=500)
    concurrency = Concurrency("a")
    concurrency.rejected_load = rejected
    concurrency.limits(plan, (), BackendLoads({"a": (0, 10)}, late=late), 0.0)
    assert concurrency.own.demand["a"] == pytest.approx((0.0, demand))


def test_a_balancer_is_served_in_proportion_to_its_part_of_the_pods() -> None:
    """A limit of 1 that isn't used is allowed on top of the bound, and takes nothing from others."""
    concurrency = Concurrency("a")
    assert concurrency.served_share(1) is None

    concurrency.own = BalancerLoad("a", pods={"10.0.0.1": PodLoad((0, 1), (1, 1))})
    assert concurrency.served_share(1) == 1
    # As long as the load of the other one isn't known, it may have as much.
    assert (concurrency.served_share(2), concurrency.elsewhere(2)) == (None, None)

    concurrency.others = (BalancerLoad("b", waiting={"a": 5}, pods={"10.0.0.1": PodLoad((0, 2), (1, 2))}),)
    assert concurrency.served_share(2) == pytest.approx(1 / 3)
    assert concurrency.elsewhere(2) == Elsewhere(waiting=5, inflight=2)
