"""Day and week: what is expected of the next bins, and when nothing is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.planner.forecast.season_models import AHEAD, DAY
from halcyon.scaling.planner.forecast.seasonality import BIN_S, MAX_BINS, Forecast, History, forecast
from tests.drawn import draws

WEIGHT_BYTES = 65_000
"""Seasons are learnt from simulated weeks."""

Shape = Callable[[int], float]
Load = npt.NDArray[np.float64]


def rng(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def wave(index: int) -> float:
    return 200 + 100 * math.sin(index / DAY * math.tau)


def office(index: int) -> float:
    return 200.0 if 96 <= index % DAY < 204 else 0.0


def weekdays(index: int) -> float:
    return office(index) if index // DAY % 7 < 5 else 2.0


def poisson(shape: Shape, bins: int, *, seed: int = 1) -> list[float]:
    means = np.array([shape(index) for index in range(bins)])
    return [float(count) / BIN_S for count in rng(seed).poisson(means * BIN_S)]


def history(means: Sequence[float | None]) -> History:
    return History.of(means, end=len(means) * BIN_S)


def next_bin(known: History, mean: float) -> History:
    """One sample over the whole of the open bin; the first second of the next one closes it."""
    return known.with_sample(known.open * BIN_S + 299, requests=mean * 299, seconds=299).with_sample(
        (known.open + 1) * BIN_S, requests=mean, seconds=1
    )


@cache
def waves(days: float) -> History:
    return history(poisson(wave, round(days * DAY)))


def ahead(known: History, minutes: float = 15) -> Forecast | None:
    now = known.open * BIN_S
    return forecast(known, now, now + minutes * 60)


@pytest.mark.parametrize("lead", range(1, AHEAD + 1))
def test_the_morning_rise_of_a_daily_wave_is_expected(lead: int) -> None:
    known = waves(5.9)
    begin = (known.open + lead - 1) * BIN_S
    prediction = forecast(known, begin, begin + 1)
    assert prediction is not None
    assert prediction.rate == pytest.approx(wave(known.open + lead - 1), rel=0.02)
    assert prediction.error < 0.9 * prediction.unseasonal_error


def test_the_highest_bin_that_the_window_touches_counts() -> None:
    known = waves(5.9)
    now = known.open * BIN_S
    singles = [forecast(known, now + lead * BIN_S, now + lead * BIN_S) for lead in range(AHEAD)]
    rates = [single.rate for single in singles if single is not None]
    assert len(rates) == AHEAD
    both = forecast(known, now + 200, now + 2 * BIN_S + 1)
    assert both is not None
    assert both.rate == max(rates[:3])


def test_a_window_beyond_what_is_forecast_has_none() -> None:
    known = waves(5.9)
    now = known.open * BIN_S
    assert forecast(known, now + AHEAD * BIN_S, now + 2 * AHEAD * BIN_S) is None
    assert forecast(known, now, math.nan) is None


def test_the_opening_of_an_office_is_expected_before_the_first_request() -> None:
    known = history(poisson(office, 4 * DAY + 96))
    prediction = ahead(known, 1)
    assert prediction is not None
    assert prediction.rate > 100


def test_a_weekend_is_known_by_the_week() -> None:
    means = poisson(weekdays, 12 * DAY + 96)
    saturday, monday = history(means), history(poisson(weekdays, 14 * DAY + 95))
    quiet, busy = ahead(saturday), ahead(monday)
    assert quiet is None or quiet.rate < 10
    assert busy is not None
    assert busy.source == "week"
    assert busy.rate == pytest.approx(200, rel=0.1)


def test_two_days_are_needed_one_to_know_and_one_to_judge() -> None:
    assert all(ahead(waves(days)) is None for days in (0.5, 1.0, 1.9))
    assert ahead(waves(2.5)) is not None


def constant(generator: np.random.Generator, bins: int) -> Load:
    return generator.poisson(100 * BIN_S, bins) / BIN_S


def noise(generator: np.random.Generator, bins: int) -> Load:
    return np.abs(100 * generator.normal(1, 0.2, bins))


def wandering(generator: np.random.Generator, bins: int) -> Load:
    return np.asarray(100 * np.exp(0.03 * np.cumsum(generator.normal(0, 1, bins))))


def bursts(generator: np.random.Generator, bins: int) -> Load:
    return np.where(generator.random(bins) < 0.02, 350.0, generator.poisson(50 * BIN_S, bins) / BIN_S)


@pytest.mark.parametrize("load", [constant, noise, wandering, bursts])
def test_load_without_a_season_has_no_forecast(load: Callable[[np.random.Generator, int], Load]) -> None:
    means = [float(mean) for mean in load(rng(3), 7 * DAY)]
    known = history(means[: 4 * DAY])
    for index in range(4 * DAY, 7 * DAY):
        known = next_bin(known, means[index])
        assert ahead(known) is None


def test_bursts_on_a_wave_are_not_expected_again() -> None:
    generator = rng(5)
    means = [mean + (500 if generator.random() < 0.02 else 0) for mean in poisson(wave, 6 * DAY)]
    means[4 * DAY + 72 : 4 * DAY + 75] = [2000.0] * 3
    prediction = ahead(history(means[: 5 * DAY + 71]))
    assert prediction is not None
    assert prediction.rate < 330


def test_gaps_do_no_harm() -> None:
    generator = rng(6)
    means = [None if generator.random() < 0.1 else mean for mean in poisson(wave, 6 * DAY)]
    means[4 * DAY : 4 * DAY + 40] = [None] * 40
    prediction = ahead(history(means))
    assert prediction is not None
    assert prediction.rate == pytest.approx(wave(3), rel=0.05)


def test_a_level_that_has_doubled_moves_the_forecast() -> None:
    means = poisson(lambda index: wave(index) * (2 if index >= 5 * DAY - 12 else 1), 5 * DAY)
    prediction = ahead(history(means))
    assert prediction is not None
    assert prediction.rate == pytest.approx(2 * wave(3), rel=0.1)


def test_a_season_that_has_gone_is_not_expected_for_long() -> None:
    means = poisson(lambda index: wave(index) / (10 if index >= 5 * DAY else 1), 6 * DAY)
    known = history(means[: 5 * DAY + 4])
    rates: list[float] = []
    for index in range(5 * DAY + 4, 6 * DAY):
        known = next_bin(known, means[index])
        if (prediction := ahead(known)) is not None:
            rates.append(prediction.rate)
    assert rates
    assert max(rates) < 60


def test_ticks_make_the_same_bins_as_means() -> None:
    means = [10.0, 20.0, 0.0, 40.0]
    known = History()
    begin = 1000 * BIN_S
    for tick in range(1, 4 * 300 + 2):
        known = known.with_sample(begin + tick, requests=means[min((tick - 1) // 300, 3)], seconds=1)
    assert known.bins == tuple(means)
    assert known.open == 1004
    assert known.fit == History.of(means, end=1004 * BIN_S).fit


def test_a_sample_over_the_end_of_a_bin_is_split() -> None:
    begin = 1000 * BIN_S
    known = History().with_sample(begin + 290, requests=2900, seconds=290)
    known = known.with_sample(begin + 310, requests=400, seconds=20)
    assert list(known.bins) == pytest.approx([3100 / 300], rel=0.005)
    assert (known.requests, known.seconds) == pytest.approx((200, 10))


def test_repeated_samples_count_once() -> None:
    known = History().with_sample(60.0, requests=60, seconds=60).with_sample(70.0, requests=40, seconds=40)
    assert (known.requests, known.seconds) == pytest.approx((70, 70))


def test_a_bin_of_which_little_was_seen_is_not_known() -> None:
    known = History().with_sample(100.0, requests=100, seconds=100).with_sample(301.0, requests=1, seconds=1)
    assert known.bins == (None,)


@pytest.mark.parametrize("gap", [1, 5, 40, 500])
def test_unobserved_bins_are_unknown_and_not_zero(gap: int) -> None:
    known = waves(2.5)
    later = known.with_sample((known.open + gap) * BIN_S + 1, requests=1, seconds=1)
    assert later.bins == (*known.bins, *[None] * gap)
    assert later.open == known.open + gap
    assert ahead(later) is None or gap == 1
    rebuilt = History.of(later.bins, end=later.open * BIN_S)
    assert (later.fit.day, later.fit.rows[0][:3]) == (rebuilt.fit.day, rebuilt.fit.rows[0][:3])


def test_a_gap_longer_than_the_history_leaves_nothing() -> None:
    known = waves(2.5)
    assert known.with_sample((known.open + MAX_BINS + 2) * BIN_S, requests=1, seconds=1).bins == ()


def test_nonsense_changes_nothing() -> None:
    known = waves(2.5)
    at = known.until
    for values in (
        (at, 1, 1),
        (at + 1, -1, 1),
        (at + 1, math.nan, 1),
        (at + 1, 1, 0),
        (math.nan, 1, 1),
        (at + 400, 1, 400),
    ):
        assert known.with_sample(values[0], requests=values[1], seconds=values[2]) is known


def test_a_clock_that_went_far_back_begins_a_new_history() -> None:
    known = waves(2.5)
    assert known.with_sample(known.until - 7200, requests=1, seconds=1).bins == ()


def test_the_history_keeps_at_most_fifteen_days() -> None:
    known = history([1.0] * (MAX_BINS + 3))
    assert len(known.bins) == MAX_BINS
    extended = known.with_sample(known.open * BIN_S + 200, requests=200, seconds=200)
    assert len(extended.with_sample(known.open * BIN_S + 301, requests=1, seconds=1).bins) == MAX_BINS


@draws(2)
@given(st.lists(st.one_of(st.none(), st.floats(0, 1e9)), max_size=40), st.floats(-1e9, 1e9), st.floats(0, 1e5))
def test_a_forecast_is_never_negative_nor_an_error(means: list[float | None], begin: float, span: float) -> None:
    known = History.of(means * 12, end=12 * len(means) * BIN_S)
    prediction = forecast(known, begin, begin + span)
    assert prediction is None or 0 <= prediction.rate < math.inf


def test_the_history_survives_json() -> None:
    known = waves(5.9)
    known = known.with_sample(known.until + 5, requests=900, seconds=5)
    text = json.dumps(known.packed(), allow_nan=False)
    restored = History.unpacked(json.loads(text))
    assert restored.bins == known.bins
    assert (restored.open, restored.requests, restored.seconds) == (known.open, known.requests, known.seconds)
    assert ahead(restored) == ahead(known)
    assert len(json.dumps(history([123.45] * MAX_BINS).packed())) < 40_000


def test_an_empty_history_survives_json() -> None:
    assert History.unpacked(json.loads(json.dumps(History().packed(), allow_nan=False))) == History()


def test_a_packed_history_of_another_shape_is_refused() -> None:
    packed = waves(2.5).packed()
    with pytest.raises(ValueError, match="unexpected lengths"):
        History.unpacked(packed | {"season": [1.0]})


def test_a_forecast_describes_itself() -> None:
    description = Forecast(412.3, "day", 12.0, 31.0).describe()
    assert description == '412.3 req/s expected by the day (off by 12 on average; "as it is now" is off by 31)'
