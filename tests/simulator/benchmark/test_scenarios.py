import math
from dataclasses import replace

import numpy as np
import pytest

from halcyon_simulator.benchmark.scenarios import (
    FAMILIES,
    LAWS,
    MODELS,
    ScenarioError,
    budget,
    members,
    scenario,
    wrong_scalings,
)
from halcyon_simulator.bounds.replica_capacity import capacity_rps
from halcyon_simulator.engine.case import SignalFaults
from halcyon_simulator.engine.run import Write

_L1, _L2 = LAWS["L1"], LAWS["L2"]
_DAY_S = 86400.0
_QUICK = ("S1", "S3", "S6-azure", "S6-mooncake", "S6-aibrix", "S7-3m", "S8-pods", "S9-noise-few", "S11-01")


def test_the_laws_are_those_of_the_table() -> None:
    assert (_L1.service.peak_rps, _L1.slo_s) == (10.0, 2.4)
    assert _L2.service.peak_rps == pytest.approx(76.92, abs=0.01)
    assert _L2.slo_s == 0.5


@pytest.mark.parametrize("name", _QUICK)
def test_the_same_seed_is_the_same_case_and_another_seed_another(name: str) -> None:
    first, again, other = (scenario(name, law=_L1, start_s=60, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first.arrivals, again.arrivals)
    assert first.arrivals.shape != other.arrivals.shape or not np.array_equal(first.arrivals, other.arrivals)
    assert np.all(np.diff(first.arrivals) >= 0)
    assert first.arrivals[-1] <= first.duration_s
    assert (first.name, first.seed, first.start_s) == (name, 3, 60)


def _rate(times: np.ndarray, begin: float, end: float) -> float:
    return float(np.searchsorted(times, end) - np.searchsorted(times, begin)) / (end - begin)


def test_the_step_goes_from_twenty_to_two_hundred_for_fifteen_minutes() -> None:
    times = scenario("S1", law=_L1, start_s=60, seed=1).arrivals
    assert _rate(times, 0, 300) == pytest.approx(20, abs=4 * math.sqrt(20 / 300))
    assert _rate(times, 300, 1200) == pytest.approx(200, abs=4 * math.sqrt(200 / 900))
    assert _rate(times, 1200, 3000) == pytest.approx(20, abs=4 * math.sqrt(20 / 1800))


def test_the_ramp_rises_to_four_hundred_and_falls() -> None:
    times = scenario("S2", law=_L1, start_s=60, seed=1).arrivals
    assert _rate(times, 300, 1200) == pytest.approx(210, rel=0.02)
    assert _rate(times, 1200, 1500) == pytest.approx(400, rel=0.02)
    assert _rate(times, 1500, 2400) == pytest.approx(210, rel=0.02)


def test_repeating_spikes_are_scored_from_the_third_cycle_on() -> None:
    case = scenario("S3", law=_L1, start_s=60, seed=1)
    onsets = [1200 * number + 570 for number in range(10)]
    assert all(_rate(case.arrivals, onset, onset + 60) == pytest.approx(400, rel=0.1) for onset in onsets)
    assert sum(onset >= case.score_from_s for onset in onsets) == 8
    assert onsets[1] < case.score_from_s < onsets[2]


def test_random_spikes_are_as_many_and_elsewhere_for_each_seed() -> None:
    ends = {scenario("S3r", law=_L1, start_s=60, seed=seed).duration_s for seed in (1, 2, 3)}
    assert len(ends) == 3
    times = scenario("S3r", law=_L1, start_s=60, seed=1).arrivals
    busy = np.histogram(times, np.arange(0, times[-1], 10))[0] > 2000
    assert int((np.diff(busy.astype(int)) == 1).sum()) == 10


def test_the_flash_crowd_is_a_fifth_of_the_record() -> None:
    case = scenario("S4", law=_L1, start_s=60, seed=1)
    assert len(case.arrivals) / case.duration_s == pytest.approx(262, rel=0.01)


def test_two_weeks_of_days_have_a_learning_and_a_scored_week() -> None:
    case = scenario("S5", law=_L1, start_s=60, seed=1)
    assert (case.duration_s, case.score_from_s) == (14 * _DAY_S, 7 * _DAY_S)
    assert 9.4 <= _rate(case.arrivals, 0, case.duration_s) <= 10.1
    days = [_rate(case.arrivals, day * _DAY_S, (day + 1) * _DAY_S) for day in range(14)]
    assert min(days) > 5
    assert max(days) < 20
    # The hours of a day are alike in both weeks: what was learnt is of use.
    hours = np.histogram(case.arrivals, np.arange(14 * 24 + 1) * 3600.0)[0].reshape(2, 7, 24).mean(axis=1)
    assert np.all(hours.max(axis=1) > 2 * hours.min(axis=1))
    assert np.corrcoef(hours)[0, 1] > 0.5


def test_rates_grow_with_what_a_replica_serves() -> None:
    small, large = (len(scenario("S1", law=law, start_s=60, seed=1).arrivals) for law in (_L1, _L2))
    assert large / small == pytest.approx(_L2.service.peak_rps / 10, rel=0.02)


def test_bursty_loads_have_the_same_rate_and_longer_gaps() -> None:
    case = scenario("S12", law=_L1, start_s=60, seed=1, cv=3)
    gaps = np.diff(case.arrivals)
    assert gaps.std() / gaps.mean() == pytest.approx(3, rel=0.05)
    assert case.drift is not None
    assert case.drift.factor == 2


def test_to_zero_has_pauses_and_a_least_count_of_zero() -> None:
    for name, off_s in (("S7-3m", 180), ("S7-10m", 600), ("S7-60m", 3600)):
        case = scenario(name, law=_L1, start_s=60, seed=1)
        assert case.low == 0
        assert _rate(case.arrivals, 120, 120 + off_s) == 0
        assert _rate(case.arrivals, 120 + off_s, 240 + off_s) > 15


def test_bad_pods_and_missing_capacity_are_scenarios_of_their_own() -> None:
    pods, capacity = (scenario(name, law=_L1, start_s=60, seed=1).start_faults for name in members("S8"))
    assert (pods.slow_share, pods.slow_factor, pods.crash_share, pods.no_capacity) == (0.1, 3.0, 0.05, ())
    assert [end - begin for begin, end in capacity.no_capacity] == [600]


def test_at_least_thirty_cases_have_bad_signals() -> None:
    cases = [scenario(name, law=_L1, start_s=60, seed=1) for name in members("S9")]
    assert len(cases) >= 30
    assert len({case.name for case in cases}) == len(cases)
    assert all(case.signal_faults != SignalFaults() for case in cases)


def test_twenty_models_share_seventy_percent_of_their_peaks() -> None:
    cases = tuple(scenario(name, law=_L1, start_s=60, seed=1) for name in members("S11"))
    assert len(cases) == MODELS
    assert {case.duration_s for case in cases} == {3600.0}
    mu = capacity_rps(_L1.service, _L1.slo_s)
    peaks = sum(math.ceil(np.bincount((case.arrivals // 60).astype(int)).max() / 60 / mu) for case in cases)
    assert budget(cases) == int(0.7 * peaks)


def test_fewer_replicas_are_wrong_if_unknown_or_too_few() -> None:
    case = scenario("S9-frozen-steady", law=_L1, start_s=60, seed=1)
    assert wrong_scalings(case, (Write(100.0, 12, 8), Write(1210.0, 8, 7))) == 0
    assert wrong_scalings(case, (Write(1000.0, 12, 11),)) == 1
    assert wrong_scalings(case, (Write(910.0, 12, 11),)) == 0
    assert wrong_scalings(case, (Write(500.0, 12, 4),)) == 1
    assert wrong_scalings(case, (Write(1000.0, 12, 20),)) == 0
    assert wrong_scalings(replace(case, signal_faults=SignalFaults()), (Write(1000.0, 12, 11),)) == 0


def test_an_unknown_scenario_lists_those_that_there_are() -> None:
    with pytest.raises(ScenarioError, match=r"no scenario 'S13'; there are S1, S2, S3, .*S6, .*S6-azure"):
        members("S13")
    with pytest.raises(ScenarioError, match="make bench-reaction"):
        members("S10")
    with pytest.raises(ScenarioError, match="S6 is a family; name one of its members: S6-azure"):
        scenario("S6", law=_L1, start_s=60, seed=1)
    assert members("S1") == ("S1",)
    assert set(FAMILIES) == {"S6", "S7", "S8", "S9", "S11"}
