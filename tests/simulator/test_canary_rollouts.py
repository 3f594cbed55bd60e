"""Simulated canary rollouts with queues: a few of those that benchmarks/right/canary.py counts."""

import random

import pytest

from benchmarks.right.canary import FAULTS, run
from benchmarks.right.simulated_canary import LAWS, Disturbances, Fault, Rollout


@pytest.mark.parametrize(("name", "fault", "check", "limit_s"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_fault_ends_its_canary_in_time_and_for_its_own_reason(
    name: str, fault: Fault, check: str, limit_s: float
) -> None:
    for seed in range(3):
        outcome = run(Rollout(seed, fault=fault), limit_s=150)
        assert outcome.action == "rollback", name
        assert check in outcome.checks
        assert outcome.seconds <= limit_s


@pytest.mark.parametrize("cold", ["decay", "step", "sizes"])
def test_a_pod_that_starts_cold_is_no_slow_revision(cold: str) -> None:
    for seed, law in enumerate(LAWS):
        outcome = run(Rollout(seed, law=law, disturbances=Disturbances(cold=cold)), limit_s=60)
        assert outcome.action != "rollback", law


def test_equal_canaries_are_seldom_rolled_back_and_their_step_ends() -> None:
    outcomes = [
        run(Rollout(seed, law=LAWS[0], disturbances=Disturbances.drawn(random.Random(seed))), limit_s=90)
        for seed in range(12)
    ]
    assert [outcome.action for outcome in outcomes].count("rollback") == 0
    assert sum(outcome.ended_s is not None for outcome in outcomes) >= 10
