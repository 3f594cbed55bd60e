"""Arrival times of each scenario: their rates, their spread, their end, and their shares among processes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon_measure.schedule.arrivals import chunks, share
from halcyon_measure.schedule.scenario import Scenario


def times(scenario: Scenario) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    arrays = list(chunks(scenario.check()))
    return np.concatenate(arrays) if arrays else np.array([])


def test_sustained_arrivals_are_a_poisson_process_of_the_rate() -> None:
    due = times(Scenario(kind="sustained", rate_rps=200, duration_s=300))
    gaps = np.diff(due)
    assert len(due) / 300 == pytest.approx(200, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.03)
    assert due[-1] < 300


@pytest.mark.parametrize("cv", [0.3, 1.0, 3.0])
def test_gaps_of_a_burst_have_the_coefficient_of_variation(cv: float) -> None:
    due = times(Scenario(kind="burst", rate_rps=500, cv=cv, duration_s=400))
    gaps = np.diff(due)
    assert len(due) / 400 == pytest.approx(500, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.06)


def test_a_burst_with_phases_is_silent_while_they_are_off() -> None:
    due = times(Scenario(kind="burst", rate_rps=100, on_s=2, off_s=3, duration_s=100))
    assert np.all(due % 5 < 2)
    assert len(due) == pytest.approx(100 * 40, rel=0.06)


@pytest.mark.parametrize(("first", "last"), [(10.0, 200.0), (200.0, 10.0), (50.0, 50.0)])
def test_the_rate_of_a_ramp_changes_evenly(first: float, last: float) -> None:
    due = times(Scenario(kind="ramp", rate_rps=first, to_rps=last, duration_s=400))
    counted, _ = np.histogram(due, bins=4, range=(0, 400))
    expected = [100 * (first + (last - first) * (quarter + 0.5) / 4) for quarter in range(4)]
    assert counted == pytest.approx(expected, rel=0.08)


def test_offline_requests_are_all_due_at_the_beginning() -> None:
    assert times(Scenario(kind="offline", requests=40_000, callers=8)).tolist() == [0.0] * 40_000


def test_a_trace_is_played_as_it_is() -> None:
    assert times(Scenario(kind="trace", trace=(0.0, 0.5, 0.5, 2.0))).tolist() == [0.0, 0.5, 0.5, 2.0]


def test_a_trace_is_played_to_its_last_arrival() -> None:
    trace = tuple(n / 2 for n in range(61))
    assert times(Scenario(kind="trace", trace=trace)).tolist() == list(trace)


@given(st.sampled_from([1, 2, 3, 7]), st.sampled_from([10.0, 3000.0]), st.integers(0, 100))
def test_the_shares_of_all_processes_are_the_schedule_of_one(workers: int, rate: float, seed: int) -> None:
    scenario = Scenario(kind="sustained", rate_rps=rate, duration_s=20, seed=seed)
    parts = [list(share(scenario, index=index, workers=workers)) for index in range(workers)]
    assert sorted(itertools.chain(*parts)) == times(scenario).tolist()
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_number_of_requests_ends_the_schedule() -> None:
    assert len(times(Scenario(kind="sustained", rate_rps=1000, duration_s=3600, requests=20_000))) == 20_000


def test_the_seed_decides_the_draw() -> None:
    first, same, other = (times(Scenario(kind="sustained", rate_rps=50, seed=seed)).tolist() for seed in (1, 1, 2))
    assert first == same != other
