from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.balancer.config.haproxy_cfg import render
from halcyon.balancer.config.model import Listen
from halcyon.balancer.runtime.haproxy_stats import HaproxyStats
from halcyon.balancer.runtime.retry_budget import MAX_SHARE, MIN_RETRIES, WINDOW_S, RetryBudget

PLAN = BalancerPlan("default", "m", "m", (Slot("a", "m-a", 100, 4),), 48, 200, 60000, 60000, 30000)


def reading(requests: int, repeated: int, errors: int = 0, *, process: int = 1) -> HaproxyStats:
    return HaproxyStats(0.0, process, "x", requests=requests, retried=repeated, errors=errors)


def test_a_killed_pod_among_many_requests_is_within_the_budget() -> None:
    budget = RetryBudget()
    assert budget.allows(reading(0, 0), now=0.0)
    assert budget.allows(reading(800, 48), now=1.0)


def test_a_few_retries_are_always_allowed() -> None:
    budget = RetryBudget()
    budget.allows(reading(0, 0), now=0.0)
    assert budget.allows(reading(MIN_RETRIES, MIN_RETRIES), now=1.0)
    assert not budget.allows(reading(MIN_RETRIES + 1, MIN_RETRIES + 1), now=2.0)


def test_retries_stay_forbidden_while_servers_fail_and_are_allowed_afterwards() -> None:
    budget = RetryBudget()
    budget.allows(reading(0, 0), now=0.0)
    assert not budget.allows(reading(100, 50), now=1.0)
    # Nothing is repeated any more, so what fails is lost.
    assert not any(budget.allows(reading(100 * s, 50, 50 * (s - 1)), now=float(s)) for s in range(2, 30))
    last = [budget.allows(reading(100 * s, 50, 50 * 28), now=float(s)) for s in range(30, 45)]
    assert not last[0]
    assert last[-1]


def test_a_new_process_and_restarted_counters_are_no_failures() -> None:
    budget = RetryBudget()
    budget.allows(reading(0, 0), now=0.0)
    assert not budget.allows(reading(100, 50), now=1.0)
    assert budget.allows(reading(100, 50, process=2), now=2.0)
    assert budget.allows(reading(5, 0, process=2), now=3.0)


@given(st.lists(st.tuples(st.floats(0.1, 3), st.integers(0, 500), st.integers(0, 100)), min_size=1, max_size=30))
def test_allowed_retries_never_exceed_their_share_of_the_window(steps: list[tuple[float, int, int]]) -> None:
    budget = RetryBudget()
    now, requests, repeated = 0.0, 0, 0
    looks = [(now, requests, repeated)]
    budget.allows(reading(0, 0), now=now)
    for pause_s, fresh, again in steps:
        now, requests, repeated = now + pause_s, requests + fresh, repeated + min(again, fresh)
        allowed = budget.allows(reading(requests, repeated), now=now)
        looks.append((now, requests, repeated))
        first = next(look for look in looks if now - look[0] <= WINDOW_S)
        assert allowed == (repeated - first[2] <= max(MIN_RETRIES, MAX_SHARE * (requests - first[1])))


def test_sequences_and_streams_are_sent_once_and_their_bodies_are_not_awaited() -> None:
    text = render(PLAN, listen=Listen())
    waits = [line for line in text.splitlines() if "http-request wait-for-body" in line]
    assert len(waits) == 4
    assert sum("!{ path -m str /inference.GRPCInferenceService/ModelStreamInfer }" in line for line in waits) == 2
    once = render(replace(PLAN, sequences=True), listen=Listen())
    assert "http-request wait-for-body" not in once
    assert once.count("  http-request disable-l7-retry\n") >= 4


def test_a_plan_without_sequences_is_written_as_agents_of_before_read_it() -> None:
    assert "sequences" not in PLAN.to_json()
    assert BalancerPlan.from_json(replace(PLAN, sequences=True).to_json()).sequences
