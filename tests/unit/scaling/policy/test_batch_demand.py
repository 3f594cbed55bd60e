"""The second demand on a model's replicas: batch inference, after the users."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.planner.outputs import PlanPart
from halcyon.scaling.policy.batch_demand import BatchDemand, Supply, added, with_batches
from halcyon.scaling.policy.decision import Decision, ReplicaLimit, limited

NOW = 1_000_000.0
SUPPLY = Supply(replica_rows_s=60.0, users_rows_s=30.0, start_s=30.0)
JOB = BatchDemand("nightly", 36_000)
USERS = Decision(
    NOW, "Planner", 1, 1, "1 replica: 30 req/s needs 1; no limit applies", parts=(PlanPart("rate", 1, "x"),)
)


def count(*jobs: BatchDemand, users: int = 1, current: int = 1, high: int = 10, supply: Supply = SUPPLY) -> int:
    return added(jobs, supply, users=users, current=current, high=high, now=NOW).replicas


def test_a_job_without_deadline_or_replicas_of_its_own_adds_none() -> None:
    assert count(JOB) == 0
    assert with_batches(USERS, (JOB,), SUPPLY, high=10) is USERS


def test_a_deadline_adds_what_the_users_do_not_leave() -> None:
    # 36,000 rows in 1,000 s after the start need 36 rows/s, with the margin 39.6; the users leave 30.
    assert count(replace(JOB, deadline=NOW + 1030)) == 1
    assert count(replace(JOB, deadline=NOW + 10_000)) == 0
    # In 300 s they need 132 rows/s with the margin.
    assert count(replace(JOB, deadline=NOW + 330)) == 2


def test_jobs_share_evenly_so_each_needs_its_rate_as_many_times() -> None:
    pressing = replace(JOB, deadline=NOW + 1030)
    assert count(pressing, BatchDemand("other", 10)) == 1
    assert count(pressing, *(BatchDemand(f"other-{number}", 10) for number in range(4))) == 3


def test_a_jobs_own_maximum_and_the_models_bound_what_is_added() -> None:
    pressing = replace(JOB, deadline=NOW + 330)
    assert count(replace(pressing, max_replicas=1)) == 1
    assert count(pressing, high=2) == 1
    assert count(pressing, users=10, supply=replace(SUPPLY, users_rows_s=600.0)) == 0
    more = added((pressing,), SUPPLY, users=1, current=1, high=1, now=NOW)
    assert (more.replicas, more.needed) == (0, 2)


def test_replicas_without_a_deadline_are_added_only_while_they_have_work() -> None:
    assert count(replace(JOB, max_replicas=3)) == 3
    assert count(replace(JOB, max_replicas=3, rows_left=1000)) == 0
    # The one that runs already stays while there is work for half a minute.
    assert count(replace(JOB, max_replicas=3, rows_left=2000), current=2) == 1
    assert count(replace(JOB, max_replicas=3, rows_left=0), current=2) == 0


def test_a_rate_that_changes_a_little_keeps_the_replicas() -> None:
    just = replace(JOB, deadline=NOW + 1000, rows_left=28_000)
    # 29 rows/s after the start, with the margin, fit into what the users leave: nothing is started, but one that runs stays.
    assert count(just, supply=replace(SUPPLY, users_rows_s=28.0)) == 0
    assert count(just, supply=replace(SUPPLY, users_rows_s=28.0), current=2) == 1
    assert count(replace(just, rows_left=10_000), current=2) == 0


def test_at_zero_only_a_waking_job_has_a_replica() -> None:
    asleep = replace(SUPPLY, users_rows_s=0.0)
    pressing = replace(JOB, deadline=NOW + 330)
    assert count(pressing, users=0, current=0, supply=asleep) == 0
    assert count(replace(pressing, may_wake=True), users=0, current=0, supply=asleep) == 3
    waking = replace(JOB, may_wake=True)
    assert count(waking, users=0, current=0, supply=asleep) == 1
    assert count(waking, users=0, current=1, supply=asleep) == 1
    assert count(waking, users=0, current=0, supply=replace(asleep, replica_rows_s=None)) == 1
    assert count(replace(waking, rows_left=0), users=0, current=1, supply=asleep) == 0
    assert count(waking, users=0, current=0, high=0, supply=asleep) == 0


def test_while_the_capacity_is_unknown_nothing_is_added_to_running_replicas() -> None:
    assert count(replace(JOB, deadline=NOW + 330), supply=replace(SUPPLY, replica_rows_s=None)) == 0


def test_a_deadline_too_close_for_a_new_replica_adds_none() -> None:
    late = replace(JOB, deadline=NOW + 20)
    assert count(late) == 0
    assert count(replace(late, deadline=NOW - 5), current=4) == 3
    assert "too late" in added((late,), SUPPLY, users=1, current=1, high=9, now=NOW + 25).why


def test_rows_that_free_capacity_finishes_in_time_add_no_replica() -> None:
    # 900 rows take 30 s of what the users leave, and a new replica would be ready 6 s before the deadline.
    assert count(replace(JOB, rows_left=900, deadline=NOW + 36)) == 0
    # 2,000 rows: 30 s at 30 rows/s, and the rest by replicas that serve for 30 s.
    assert count(replace(JOB, rows_left=2_000, deadline=NOW + 60)) == 1
    assert count(replace(JOB, rows_left=6_000, deadline=NOW + 60)) == 3


def test_the_decision_says_for_whom_the_replicas_are() -> None:
    decision = with_batches(USERS, (replace(JOB, deadline=NOW + 1030),), SUPPLY, high=10)
    assert decision.desired == 2
    assert decision.why == (
        "2 replicas: 1 for users and 1 for batch inference (nightly: 36,000 rows until the deadline need 34.95 rows/s, "
        "and users leave 30). For users: 1 replica: 30 req/s needs 1"
    )
    assert [(part.name, part.replicas) for part in decision.parts] == [("rate", 1), ("batch", 2)]
    # The limits apply to the sum, so what is taken away is the batch's.
    cut = limited(decision, (ReplicaLimit("budget", 1, "the GPU budget has 1 left"),))
    assert cut.desired == 1
    assert "2 replicas are desired: the GPU budget has 1 left" in cut.why


@pytest.mark.parametrize(
    "decision",
    [
        replace(USERS, desired=None),
        replace(USERS, unknown="a balancer is silent"),
        replace(USERS, desired=4, limited_by=("unknown", "min")),
    ],
)
def test_without_a_decision_of_its_own_nothing_is_added(decision: Decision) -> None:
    assert with_batches(decision, (replace(JOB, deadline=NOW + 1030),), SUPPLY, high=10) is decision


JOBS = st.builds(
    BatchDemand,
    st.just("job"),
    st.floats(0, 1e7),
    st.none() | st.floats(NOW - 1000, NOW + 100_000),
    st.none() | st.integers(0, 20),
    st.booleans(),
)


@given(
    jobs=st.lists(JOBS, max_size=4),
    users=st.integers(0, 10),
    current=st.integers(0, 12),
    each=st.none() | st.floats(0, 1000),
    users_rps=st.floats(0, 1000),
)
def test_the_users_replicas_and_the_maximum_always_hold(
    jobs: list[BatchDemand], users: int, current: int, each: float | None, users_rps: float
) -> None:
    more = added(jobs, Supply(each, users_rps, 30.0), users=users, current=current, high=10, now=NOW)
    assert 0 <= more.replicas <= 10 - users
    if not any(job.may_wake and job.rows_left for job in jobs) and not users:
        assert more.replicas == 0
    # One more job never takes replicas away.
    assert (
        added(
            [*jobs, BatchDemand("more", 10.0)],
            Supply(each, users_rps, 30.0),
            users=users,
            current=current,
            high=10,
            now=NOW,
        ).replicas
        >= more.replicas
    )
