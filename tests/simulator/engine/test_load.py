import math

import numpy as np
import pytest

from halcyon_simulator.engine.load import Profile, arrivals, merged, renewal, superposed, thinned


def _rng(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _counts(times: np.ndarray, *edges: float) -> list[int]:
    return np.histogram(times, np.array(edges))[0].tolist()


def test_a_step_has_its_rates_on_both_sides() -> None:
    times = arrivals(Profile.steps((100, 20), (100, 200), (100, 20)), rng=_rng())
    for count, expected in zip(_counts(times, 0, 100, 200, 300), (2000, 20000, 2000), strict=True):
        assert abs(count - expected) < 4 * math.sqrt(expected)


def test_a_ramp_has_the_counts_of_its_integral() -> None:
    times = arrivals(Profile(((100, 0, 400), (100, 400, 0))), rng=_rng())
    for count, expected in zip(_counts(times, 0, 25, 50, 100, 150, 200), (1250, 3750, 15000, 15000, 5000), strict=True):
        assert abs(count - expected) < 4 * math.sqrt(expected)


def test_a_ramp_and_a_step_of_equal_rates_are_one_time_change() -> None:
    expected = np.linspace(0.0, 2999.0, 1000)
    flat = Profile.steps((100, 10), (100, 20))
    nearly = Profile(((100, 10, 10), (100, 20, 20.000001)))
    assert np.allclose(flat.times(expected), nearly.times(expected), atol=1e-4)


def test_arrivals_are_none_at_a_rate_of_zero() -> None:
    times = arrivals(Profile(((10, 50, 50), (100, 0, 0), (10, 0, 100))), rng=_rng())
    assert _counts(times, 10, 110) == [0]
    assert times[-1] < 120


@pytest.mark.parametrize("cv", [0.3, 1.0, 3.0])
def test_gaps_have_the_wanted_variation_and_the_rate_stays(cv: float) -> None:
    times = arrivals(Profile.steps((1000, 200)), rng=_rng(), cv=cv)
    gaps = np.diff(times)
    assert np.all(gaps >= 0)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03)
    assert abs(len(times) - 200_000) < 4 * cv * math.sqrt(200_000)


def test_a_bursty_process_is_stationary_from_its_beginning() -> None:
    counts = [len(renewal(5.0, rng=_rng(seed), cv=3)) for seed in range(4000)]
    # A process that began with a burst at time 0 would have 5 + (cv^2 - 1) / 2 = 9 on average.
    assert np.mean(counts) == pytest.approx(5.0, abs=4 * np.std(counts) / math.sqrt(4000))


def test_the_same_seed_gives_the_same_times_and_another_one_others() -> None:
    profile = Profile.steps((50, 40))
    assert np.array_equal(arrivals(profile, rng=_rng(7)), arrivals(profile, rng=_rng(7)))
    assert not np.array_equal(arrivals(profile, rng=_rng(7))[:100], arrivals(profile, rng=_rng(8))[:100])


def test_copies_keep_the_span_and_add_up() -> None:
    times = np.sort(_rng().random(500) * 400)
    several = superposed(times, copies=7, spread_s=60, rng=_rng())
    assert len(several) == 7 * 500
    assert np.all(np.diff(several) >= 0)
    assert several[0] >= 0
    assert several[-1] <= times[-1] + 1e-6
    assert superposed(times, copies=1, spread_s=60, rng=_rng()) is times


def test_thinning_keeps_the_share() -> None:
    times = np.arange(100_000, dtype=np.float64)
    kept = thinned(times, share=0.2, rng=_rng())
    assert abs(len(kept) - 20_000) < 4 * math.sqrt(16_000)
    assert np.isin(kept, times).all()


def test_loads_are_merged_in_order() -> None:
    assert merged([np.array([1.0, 4.0]), np.array([2.0])]).tolist() == [1.0, 2.0, 4.0]
    assert merged([]).tolist() == []


@pytest.mark.parametrize("piece", [(0, 1, 1), (10, -1, 1), (10, 1, float("inf"))])
def test_a_piece_that_makes_no_sense_is_refused(piece: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"piece 0 .* for example \(900, 20, 400\)"):
        Profile((piece,))


def test_other_senseless_values_are_refused() -> None:
    with pytest.raises(ValueError, match="superposed 0 times"):
        superposed(np.zeros(1), copies=0, spread_s=1, rng=_rng())
    with pytest.raises(ValueError, match=r"share of 1\.5"):
        thinned(np.zeros(1), share=1.5, rng=_rng())
    with pytest.raises(ValueError, match="variation of a load is 0"):
        renewal(10, rng=_rng(), cv=0)
