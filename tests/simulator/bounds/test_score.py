from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from halcyon_simulator.bounds.clairvoyant import bounds
from halcyon_simulator.bounds.score import direction_changes, last_step_s, score
from halcyon_simulator.engine.case import Case, ServiceLaw
from halcyon_simulator.engine.run import Write
from tests.simulator.case_builders import SECOND, case, poisson, run

L1 = ServiceLaw(0.4, 0.0, 4)


def test_late_refused_and_unanswered_requests_are_violations() -> None:
    of = case([0.1, 0.2, 0.3, 0.4, 19.0], slots=2, queue_limit=1, slo_s=2.0)
    # 1.0 and 1.9 s in time; 2.8 s late; the fourth refused; the last answered after the end, in time.
    outcome = score(of, run(of), policy="plan", params={"n": 1})
    assert (outcome.requests, outcome.violations_pct, outcome.refused_pct) == (5, 40, 20)
    assert outcome.p50_ms == pytest.approx(1450)
    assert (outcome.scenario, outcome.policy, outcome.params) == ("test", "plan", {"n": 1})
    never = replace(of, low=0, first=0)
    assert score(never, run(never), policy="plan", params={}).violations_pct == 100


def test_only_what_arrives_and_happens_in_the_scored_span_counts() -> None:
    of = case([0.1, 0.2, 0.3, 12.0], slots=1, queue_limit=0, score_from_s=10.0)
    outcome = score(of, run(of, {2.0: 3, 3.0: 1, 4.0: 2}), policy="plan", params={})
    assert (outcome.requests, outcome.violations_pct) == (1, 0)
    assert outcome.gpu_seconds == 20
    assert outcome.gpu_ratio_clairvoyant == 2
    assert outcome.gpu_ratio_work == 20
    assert outcome.direction_changes_per_h == 0
    assert outcome.overshoot == 2
    assert outcome.pods_in_vain == 0


def test_percentiles_are_those_of_the_answers_in_the_scored_span() -> None:
    # A hundred at once at one who serves one a second: 1, 2, ... 100 s; the one before them isn't scored.
    of = case([0.0, *[100.0] * 100], duration_s=250.0, score_from_s=50.0)
    outcome = score(of, run(of), policy="", params={})
    assert (outcome.requests, outcome.violations_pct) == (100, 95)
    assert [outcome.p50_ms, outcome.p95_ms, outcome.p99_ms] == pytest.approx([50_500, 95_050, 99_010])


def test_direction_changes_are_the_turns_between_successive_writes() -> None:
    counts = [1, 4, 8, 6, 5, 7, 3]
    writes = [Write(float(at), before, after) for at, (before, after) in enumerate(pairwise(counts))]
    assert direction_changes(writes) == 3
    assert direction_changes(writes[:1]) == direction_changes([]) == 0


def test_direction_changes_per_hour_are_over_the_scored_span() -> None:
    counts = {100.0: 5, 200.0: 2, 300.0: 4, 700.0: 6, 900.0: 3, 1100.0: 7, 1300.0: 5}
    # From 600 s on: up, down, up, down.
    of = case([], duration_s=1800.0, score_from_s=600.0)
    assert score(of, run(of, counts), policy="", params={}).direction_changes_per_h == 9
    from_start = replace(of, score_from_s=0.0)
    assert score(from_start, run(from_start, counts), policy="", params={}).direction_changes_per_h == 5 * 2


def test_overshoot_is_the_maximum_over_the_clairvoyants_replicas() -> None:
    of = replace(_stepped(), high=40)
    most = bounds(of).largest
    assert most > 3
    for counts, largest in (({330.0: 4 * most, 640.0: 3}, 4 * most), ({330.0: 4}, 4)):
        assert score(of, run(of, counts), policy="", params={}).overshoot == pytest.approx(largest / most)


def test_a_pod_released_sooner_than_its_start_took_was_in_vain() -> None:
    of = case([], duration_s=40.0)
    # Ready at 7: released at 11 in vain, at 12 not; never ready at 6.
    vain = [score(of, run(of, {2.0: 2, at: 1}), policy="", params={}).pods_in_vain for at in (6.0, 11.0, 12.0)]
    assert vain == [1, 1, 0]


def _stepped() -> Case:
    arrivals = np.concatenate((poisson(20, 300), 300 + poisson(60, 300, 1), 600 + poisson(20, 300, 2)))
    return Case("test", arrivals, 900.0, L1, slo_s=2.4, start_s=60.0, first=3)


def test_a_loads_last_step_is_found_and_a_ramp_is_none() -> None:
    assert last_step_s(_stepped()) == pytest.approx(600, abs=2)
    ramp = np.sqrt(np.linspace(0, 1, 50_000)) * 900
    assert last_step_s(replace(_stepped(), arrivals=ramp, score_from_s=200.0)) is None


def test_settling_ends_when_the_replicas_stay_near_their_last() -> None:
    of = _stepped()
    assert score(of, run(of, {330.0: 9, 640.0: 5, 700.0: 3}), policy="", params={}).settling_s == pytest.approx(
        100, abs=2
    )
    assert score(of, run(of, {330.0: 9, 870.0: 3}), policy="", params={}).settling_s is None


def test_replicas_are_settled_within_a_tenth_of_their_last_after_a_step() -> None:
    of = _stepped()
    near, far = ({330.0: 45, 640.0: at, 700.0: 30} for at in (33, 34))
    settled = [score(of, run(of, counts), policy="", params={}).settling_s for counts in (near, far)]
    assert settled == pytest.approx([40, 100], abs=2)
    even = replace(of, arrivals=poisson(20, 900))
    assert score(even, run(even, far), policy="", params={}).settling_s is None


def test_an_empty_score_has_no_ratio_and_no_violation() -> None:
    of = case([], SECOND, low=0, first=0)
    outcome = score(of, run(of), policy="", params={})
    assert outcome.violations_pct == 0
    assert math.isnan(outcome.p99_ms)
    assert math.isnan(outcome.gpu_ratio_work)
