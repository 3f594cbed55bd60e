"""Loads over time, and what they are held against."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.profile import Phase, Profile, bursts, clairvoyant_pod_s, integral, outcome, step

STEP = step(low_rps=35, high_rps=210, before_s=60, for_s=180, after_s=90)


def test_a_step_is_low_high_and_low_again() -> None:
    assert STEP.spans() == [(0.0, 60, 35), (60, 240, 210), (240, 330, 35)]
    assert STEP.rises_s == [60]
    assert [STEP.rate_at(at) for at in (0, 59.9, 60, 239, 240, 329)] == [35, 35, 210, 210, 35, 35]


def test_three_bursts_are_as_far_apart_as_they_are_said_to_be() -> None:
    profile = bursts(low_rps=35, high_rps=210, before_s=45, for_s=30, apart_s=60, count=3, after_s=60)
    high = [(begin, end) for begin, end, rate in profile.spans() if rate == 210]
    assert high == [(45, 75), (135, 165), (225, 255)]
    assert profile.until_s == 315
    assert profile.rises_s == [45, 135, 225]


def test_arrivals_are_poisson_at_each_phases_rate_and_repeat_for_a_seed() -> None:
    times = list(STEP.arrivals(7))
    assert times == sorted(times) == list(STEP.arrivals(7)) != list(STEP.arrivals(8))
    assert times[-1] < STEP.until_s
    for begin, end, rate in STEP.spans():
        mean = rate * (end - begin)
        assert sum(begin <= at < end for at in times) == pytest.approx(mean, abs=4 * math.sqrt(mean))


def test_the_clairvoyant_schedule_starts_pods_ahead_of_the_load() -> None:
    # One pod throughout, three more for 180 s and the 23 s that they start.
    assert clairvoyant_pod_s(STEP, capacity_rps=55.9, start_s=23) == pytest.approx(330 + 3 * 203)


def test_the_clairvoyant_schedule_keeps_a_pod_through_a_short_gap() -> None:
    load = bursts(low_rps=10, high_rps=90, before_s=100, for_s=10, apart_s=30, count=2, after_s=50)
    assert clairvoyant_pod_s(load, capacity_rps=50, start_s=29) == pytest.approx(load.until_s + 2 * (10 + 29))
    assert clairvoyant_pod_s(load, capacity_rps=50, start_s=30) == pytest.approx(load.until_s + 30 + 50)


@given(
    rates=st.lists(st.floats(0, 300), min_size=1, max_size=6),
    start_s=st.floats(0, 60),
    capacity_rps=st.floats(10, 100),
)
def test_the_clairvoyant_schedule_is_the_lower_bound_except_for_starts(
    rates: list[float], start_s: float, capacity_rps: float
) -> None:
    load = Profile(tuple(Phase(20.0 * n, rate) for n, rate in enumerate(rates)), 20.0 * len(rates))
    instant = sum((end - begin) * max(math.ceil(rate / capacity_rps), 1) for begin, end, rate in load.spans())
    most = max(max(math.ceil(rate / capacity_rps), 1) for rate in rates)
    pod_s = clairvoyant_pod_s(load, capacity_rps=capacity_rps, start_s=start_s)
    assert instant - 1e-6 <= pod_s <= most * load.until_s + 1e-6


def test_late_and_failed_requests_are_counted_apart() -> None:
    counts = outcome([0.1, 0.5, 0.51, None], slo_s=0.5)
    assert (counts.requests, counts.late, counts.failed, counts.violations_pct) == (4, 1, 1, 50.0)
    assert math.isnan(outcome([], slo_s=0.5).violations_pct)


def test_pod_seconds_count_within_the_run_only() -> None:
    changes = [(0.0, 1), (10.0, 4), (20.0, 2)]
    assert integral(changes, begin_s=5, end_s=25) == 5 * 1 + 10 * 4 + 5 * 2
    assert integral(changes, begin_s=12, end_s=15) == 12
    assert integral([], begin_s=0, end_s=10) == 0
