from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from halcyon_simulator.bounds.clairvoyant import bounds
from halcyon_simulator.bounds.replica_capacity import capacity_rps
from halcyon_simulator.engine.case import Case, Drift, ServiceLaw
from halcyon_simulator.engine.policy_view import PolicyView
from halcyon_simulator.engine.run import simulate
from tests.simulator.case_builders import Plan, poisson

L1 = ServiceLaw(0.4, 0.0, 4)
MU = capacity_rps(L1, 2.4)


def _even(pieces: list[tuple[float, float]], **fields: object) -> Case:
    """Evenly spaced arrivals: (duration in s, requests per second)."""
    parts, begin = [], 0.0
    for duration_s, rate in pieces:
        parts.append(begin + (np.arange(round(duration_s * rate)) + 0.5) / max(rate, 1e-9))
        begin += duration_s
    plain = Case("test", np.concatenate(parts), begin, L1, slo_s=2.4, start_s=60.0)
    return replace(plain, **fields)  # type: ignore[arg-type]  # the fields' names are checked at run time


def test_a_replica_is_on_while_needed_and_starts_just_in_time() -> None:
    bound = bounds(_even([(200, 5), (100, 25), (200, 5)]))
    # 25 requests per second need 3; windows of 2.4 s reach into the step 2 s before it.
    begin, end = 198 - 60, 300
    assert bound.schedule[begin - 1] == 1
    assert set(bound.schedule[begin + 2 : end - 2]) == {3}
    assert bound.schedule[end] == 1
    assert bound.gpu_seconds == pytest.approx(500 + 2 * (end - begin), abs=6)
    assert bound.largest == 3


def test_a_gap_no_longer_than_a_start_is_bridged() -> None:
    short = bounds(_even([(100, 5), (50, 25), (50, 5), (50, 25), (100, 5)]))
    long = bounds(_even([(100, 5), (50, 25), (80, 5), (50, 25), (100, 5)]))
    assert set(short.schedule[100:248]) == {3}
    assert 1 in long.schedule[150:170]


def test_to_zero_only_where_nothing_arrives_and_low_allows_it() -> None:
    load = [(100.0, 5.0), (300.0, 0.0), (100.0, 5.0)]
    assert bounds(_even(load)).gpu_seconds == 500
    idle = bounds(_even(load, low=0))
    assert set(idle.schedule[101:330]) == {0}
    assert idle.gpu_seconds == pytest.approx(100 + 60 + 2 + 100, abs=3)


def test_only_the_scored_span_is_billed_and_high_caps_the_need() -> None:
    bound = bounds(_even([(300, 50)], score_from_s=100.0, high=4))
    assert set(bound.need) == {4, 3, 2} or set(bound.need[:-3]) == {4}
    assert bound.gpu_seconds == pytest.approx(4 * 200, abs=12)
    assert bound.work_s == pytest.approx(200 * 50 / 10)


def test_work_takes_longer_under_a_drift() -> None:
    still, drifting = _even([(300, 5)]), _even([(300, 5)], drift=Drift(0.0, 300.0, 2.0))
    assert bounds(drifting).work_s == pytest.approx(1.5 * bounds(still).work_s, rel=0.01)
    assert bounds(drifting).need.max() >= bounds(still).need.max()


def test_a_steps_reactive_floor_is_its_excess_over_present_pods_during_start() -> None:
    bound = bounds(_even([(300, 5), (600, 100)], first=1))
    lost = (100 - MU) * 60
    assert bound.reactive_floor_pct == pytest.approx(100 * lost / (1500 + 60_000), rel=0.05)
    assert bounds(_even([(600, 5)], first=1)).reactive_floor_pct == 0


def test_the_clairvoyant_schedule_meets_the_objective_when_it_is_run() -> None:
    arrivals = np.concatenate((poisson(20, 300), 300 + poisson(150, 300, 1), 600 + poisson(20, 300, 2)))
    case = Case("test", arrivals, 900.0, L1, slo_s=2.4, start_s=60.0)
    bound = bounds(case)
    schedule = bound.schedule

    class Follow(Plan):
        def desired(self, view: PolicyView) -> int:
            return int(schedule[int(view.now)])

    done = simulate(replace(case, first=int(schedule[0])), Follow())
    assert np.mean(done.latency_s > 2.4) < 0.02
    assert done.gpu_seconds == pytest.approx(bound.gpu_seconds, rel=0.02)
