"""Arrivals, backlog, hold and margin: each by itself."""

import functools
import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from halcyon.scaling.planner.capacity.backlog import Drain, drain
from halcyon.scaling.planner.forecast.arrival_rate import ArrivalRate
from halcyon.scaling.planner.forecast.dispersion import Dispersion
from halcyon.scaling.planner.headroom import Headroom
from halcyon.scaling.planner.scale_down_hold import MAX_FIRST_HOLD_S, MAX_HOLD_S, MIN_HOLD_S, ScaleDownHold

WEIGHT_BYTES = 115_000
"""The planner learns from drawn loads."""


def observed_rate(rates: list[float], arrivals: ArrivalRate | None = None, at: float = 0.0) -> ArrivalRate:
    arrivals, total = arrivals or ArrivalRate().with_sample(at, 0.0, block_s=2.0), 0.0
    total = arrivals.counts[-1]
    for rate in rates:
        at, total = arrivals.times[-1] + 1, total + rate
        arrivals = arrivals.with_sample(at, total, block_s=2.0)
    return arrivals


@pytest.mark.parametrize("began_s", [1.0, 2.0, 3.0, 4.0])
def test_a_rise_is_seen_at_the_same_moments_for_any_first_sample(began_s: float) -> None:
    early, late = ArrivalRate(), ArrivalRate()
    rises, when = [], []
    for second in range(300):
        counter = 50.0 * second + 0.25 * max(second - 100, 0) ** 2
        early = early.with_sample(second, counter, block_s=2.0)
        if second >= began_s:
            late = late.with_sample(second, counter, block_s=2.0)
        rises.append((early.rising(20.0), late.rising(20.0)))
        when += [second] if early.rising(20.0) is not None else []
    assert len(when) > 150
    assert [rise is None for rise, _ in rises[100:]] == [other is None for _, other in rises[100:]]
    assert [rise or 0.0 for rise, _ in rises[100:]] == pytest.approx([other or 0.0 for _, other in rises[100:]])


def test_a_steady_rate_is_its_mean() -> None:
    assert observed_rate([50.0] * 100).rate() == pytest.approx(50.0)


def test_a_step_is_proven_within_seconds_and_never_overrated() -> None:
    arrivals = observed_rate([20.0] * 120)
    rates = []
    for _ in range(10):
        arrivals = observed_rate([200.0], arrivals)
        rates.append(arrivals.rate() or 0.0)
    assert rates[1] > 175
    assert rates[-1] > 185
    assert max(rates) <= 200


def test_an_unproven_change_moves_the_rate_no_more_than_minutes_do() -> None:
    calm = observed_rate([100.0] * 120)
    rates = [(observed_rate([more] * 4, calm).rate() or 0) for more in (118.0, 126.0, 136.0)]
    # 5 standard errors of 504 in 4 s are 28 a second, and two of 544 are 12.
    assert rates == [
        pytest.approx(100 + 4 * 18 / 124),
        pytest.approx(100 + 4 * 26 / 124),
        pytest.approx(136 - 12, rel=0.01),
    ]


def test_the_rate_of_a_steady_load_is_the_mean_of_fifteen_minutes() -> None:
    drawn = np.random.Generator(np.random.PCG64(3)).poisson(100, 1800).astype(float).tolist()
    arrivals, rates, minutes = observed_rate(drawn[:900]), [], []
    for count in drawn[900:]:
        arrivals = observed_rate([count], arrivals)
        rates.append(arrivals.rate() or 0.0)
        minutes.append(arrivals.mean(60.0))
    assert arrivals.rate() == pytest.approx(sum(drawn[-900:]) / 900, rel=0.005)
    assert float(np.ptp(rates)) < float(np.ptp(minutes)) / 3


@pytest.mark.parametrize(("before", "after"), [(100.0, 20.0), (100.0, 92.0)])
def test_a_load_that_has_fallen_takes_the_rate_along_within_a_minute(before: float, after: float) -> None:
    arrivals = observed_rate([before] * 900)
    rates = [(arrivals := observed_rate([after], arrivals)).rate() or 0.0 for _ in range(62)]
    assert all(later <= earlier for earlier, later in pairwise(rates))
    assert after <= rates[-1] <= after + 2 * arrivals.error() + 1e-9


def test_old_samples_do_not_hide_that_the_load_has_grown() -> None:
    arrivals = observed_rate([40.0] * 840 + [50.0] * 62)
    assert arrivals.rate() == pytest.approx(50.0 - 2 * arrivals.error(), rel=0.01)


@pytest.mark.parametrize("every_s", [(1.0,), (2.0,), (5.0,), (1.0, 2.0), (1.0, 1.0, 5.0), (1.0, 30.0)])
@pytest.mark.parametrize("noise", [1.0, 4.0])
def test_the_dispersion_is_that_of_the_load_however_long_its_blocks_are(
    every_s: tuple[float, ...], noise: float
) -> None:
    drawn, arrivals, at, total, dispersions = np.random.Generator(np.random.PCG64(5)), ArrivalRate(), 0.0, 0.0, []
    for turn in range(6000):
        arrivals = arrivals.with_sample(at, total, block_s=2.4)
        dispersions.append(arrivals.spread.value)
        at += every_s[turn % len(every_s)]
        # Requests that come in groups of `noise`: their number has `noise` times the variance of single ones.
        total += noise * float(drawn.poisson(60.0 / noise * every_s[turn % len(every_s)]))
    assert float(np.mean(dispersions[1000:])) == pytest.approx(noise, rel=0.12)


def poisson(seed: int, seconds: int, group: float = 1.0) -> ArrivalRate:
    """30 requests a second, in groups of `group`: a dispersion of as much."""
    return observed_rate(
        list(group * np.random.Generator(np.random.PCG64(seed)).poisson(30 / group, seconds).astype(float))
    )


def poisson_spread(seed: int, seconds: int, group: float) -> Dispersion:
    """The dispersion of the same arrivals, without the rest of their memory, which takes as long again."""
    spread, total = Dispersion().beginning(0.0), 0.0
    for at, count in enumerate(np.random.Generator(np.random.PCG64(seed)).poisson(30 / group, seconds).tolist(), 1):
        total += group * count
        spread = spread.with_count(float(at), total, 2.0)
    return spread


def test_a_dispersion_by_itself_is_that_of_the_arrivals() -> None:
    assert poisson_spread(7, 300, 5.0) == poisson(7, 300, 5.0).spread


@pytest.mark.parametrize("group", [1.0, 5.0])
def test_the_dispersion_varies_between_runs_by_its_own_error(group: float) -> None:
    runs = [poisson_spread(seed, 1200, group) for seed in range(150)]
    dispersions = [spread.value for spread in runs]
    mean_error = float(np.mean([spread.error() for spread in runs]))
    assert float(np.std(dispersions) / group) == pytest.approx(mean_error, rel=0.35)


def test_the_error_is_unknown_without_samples() -> None:
    assert ArrivalRate().spread.error() == 0.0


@pytest.mark.parametrize("group", [1.0, 5.0, 15.0])
def test_noise_is_known_within_half_a_minute_if_sizes_take_minutes(group: float) -> None:
    runs = [poisson_spread(seed, 70, group) for seed in range(100)]  # blocks of 2 s
    assert float(np.median([spread.doubt for spread in runs])) == pytest.approx(max(group, 1.0), rel=0.35)
    assert float(np.median([spread.value for spread in runs])) < 1 + 0.3 * group


def test_noise_is_known_better_with_every_block_after_the_first_median() -> None:
    def off(seconds: int) -> float:
        return float(np.std([poisson_spread(seed, seconds, 5.0).noise / 5 for seed in range(100)]))

    after = [off(seconds) for seconds in (64, 124, 244)]  # 31, 61 and 121 differences
    assert after[1] < 0.75 * after[0]
    assert after[2] < 0.55 * after[0]


def test_the_dispersion_is_one_once_sizes_have_learnt_the_noise() -> None:
    early, late = poisson(1, 120, 5.0).spread, poisson(1, 2400, 5.0).spread
    assert (early.is_learnt, late.is_learnt) == (False, True)
    assert late.value == pytest.approx(late.noise, rel=0.02)


def test_a_few_seconds_prove_nothing_at_the_start() -> None:
    arrivals = observed_rate([20.0, 20.0, 45.0])
    assert arrivals.rate() == pytest.approx(arrivals.mean(60.0)), "the last second is no step yet"


def test_a_few_equal_seconds_by_chance_make_no_step_of_noise() -> None:
    """A fifth of noise in each second is possible until it's known; where few arrive, chance alone is as much."""
    many, few = [1000.0] * 12, [5.0] * 12
    arrivals = observed_rate([*many, 1200.0, 1200.0])
    assert arrivals.rate() == pytest.approx(arrivals.mean(60.0))
    assert (observed_rate([*many, 3000.0, 3000.0]).rate() or 0) > 2400
    assert (observed_rate([*many * 6, 1200.0, 1200.0]).rate() or 0) > 1150, "noise that is known to be none"
    assert (observed_rate([*few, 30.0, 30.0]).rate() or 0) > 20


def test_a_busy_first_second_is_no_surer_than_its_noise_allows() -> None:
    assert observed_rate([2000.0]).sure() < 0.75
    assert observed_rate([2000.0] * 30).sure() > 0.98


def test_a_step_after_quiet_is_proven_at_once_and_noise_with_it() -> None:
    quiet = observed_rate([0.0] * 60)
    assert (observed_rate([100.0, 100.0], quiet).rate() or 0.0) > 80
    drawn = (5.0 * np.random.Generator(np.random.PCG64(seed)).poisson(20, 62).astype(float) for seed in range(50))
    assert float(np.median([observed_rate(list(counts), quiet).spread.noise for counts in drawn])) == pytest.approx(
        5, rel=0.2
    )


def rates_of_pulses(
    pulses: list[tuple[float, float, float]], phase: float, *, is_random: bool, seed: int
) -> list[list[float]]:
    """Return the known rate as a share of the true one, by pulse and second. A pulse is its seconds, the rest before it, its rate."""
    draw = np.random.default_rng(seed)
    arrivals, at, total, shares = ArrivalRate(), 0.0, 0.0, list[list[float]]()
    for lasts_s, rest_s, rate in pulses:
        for _ in range(int(rest_s / 5)):  # as an agent that has nothing new to tell
            at += 5.0
            arrivals = arrivals.with_sample(at, total, block_s=0.5)
        shares.append([])
        for second in range(int(lasts_s)):
            wait_s = 1.0 if second else phase
            at += 1.0
            total += draw.poisson(rate * wait_s) if is_random else rate * wait_s
            arrivals = arrivals.with_sample(at, total, block_s=0.5)
            shares[-1].append((arrivals.rate() or 0.0) / rate)
    return shares


def test_a_load_that_comes_and_goes_is_known_as_soon_each_time() -> None:
    assert min(pulse[2] for pulse in rates_of_pulses([(12.0, 60.0, 210.0)] * 4, 0.5, is_random=False, seed=0)) >= 0.6


@given(
    pulses=st.lists(st.tuples(st.floats(8, 40), st.floats(25, 120), st.floats(60, 500)), min_size=2, max_size=6),
    phase=st.floats(0.05, 0.95),
)
@example(pulses=[(13.0, 25.0, 135.0), (8.0, 25.0, 60.0)], phase=0.5)
def test_any_even_loads_are_known_in_five_seconds(pulses: list[tuple[float, float, float]], phase: float) -> None:
    # A pulse of few requests soon after one of many takes longer to prove than three seconds.
    assert min(pulse[4] for pulse in rates_of_pulses(pulses, phase, is_random=False, seed=0)) >= 0.6


def test_nearly_all_random_loads_are_known_in_three_seconds() -> None:
    # The first few seconds of some draws look like noise of many times a Poisson process's, and the next pulse is doubted then.
    drawn = [
        pulse[2]
        for seed in range(60)
        for pulse in rates_of_pulses(
            [(8.0 + seed % 30, 25.0 + seed, 60.0 + 7 * seed)] * 3, 0.5, is_random=True, seed=seed
        )
    ]
    assert sum(known >= 0.6 for known in drawn) >= 0.97 * len(drawn)


def test_a_burst_among_the_first_blocks_is_no_noise() -> None:
    drawn = list(np.random.Generator(np.random.PCG64(1)).poisson(30, 70).astype(float))
    drawn[20:24] = [400.0] * 4
    assert observed_rate(drawn).spread.noise < 3


def test_seconds_of_evidence_raise_the_rate_by_and_by() -> None:
    drawn = np.random.Generator(np.random.PCG64(1)).poisson(200, 90).astype(float).tolist()
    arrivals, sure = ArrivalRate().with_sample(0.0, 0.0, block_s=2.0), []
    for count in drawn:
        arrivals = observed_rate([count], arrivals)
        sure.append(arrivals.sure())
    assert 0.6 < sure[0] < 0.75
    assert sure[29] > 0.98
    assert sure[59:] == [1.0] * 31
    assert ArrivalRate().sure() == 1.0


def test_a_silence_is_one_sample_whatever_its_seconds() -> None:
    arrivals = observed_rate([float(count) for count in np.random.Generator(np.random.PCG64(7)).poisson(60, 300)])
    at, total = arrivals.times[-1] + 300.0, arrivals.counts[-1] + 300 * 60 * 1.05
    assert arrivals.with_sample(at, total, block_s=2.0).spread.value < arrivals.spread.value + 0.5


@given(st.integers(0, 2**16), st.integers(0, 80), st.floats(1.0, 300.0), st.floats(0.0, 300.0))
def test_the_rate_is_monotone_in_the_last_counter_value(seed: int, seconds: int, last: float, more: float) -> None:
    drawn = random.Random(seed)
    arrivals = observed_rate([drawn.uniform(0, 100) for _ in range(seconds)])
    assert (observed_rate([last], arrivals).rate() or 0) <= (observed_rate([last + more], arrivals).rate() or 0) + 1e-9


def test_a_ramp_is_extrapolated_and_a_step_is_not() -> None:
    ramp = observed_rate([50.0] * 300 + [50 + 0.5 * second for second in range(200)]).rising(60.0)
    assert ramp == pytest.approx(180.0, rel=0.08)
    for after in range(5, 120, 5):
        stepped = observed_rate([50.0] * 300 + [100.0] * after).rising(60.0)
        assert stepped is None or stepped <= 101


def test_a_ramp_before_a_slow_start_is_seen_sooner_than_the_start() -> None:
    calm = [50.0] * 900
    early = [
        observed_rate([*calm, *(50 + 0.5 * second for second in range(seconds))]).rising(400.0) for seconds in (60, 110)
    ]
    # As far ahead as it was seen, and no further: 50 + 0.5 x 110 now, and 100 s of it to come.
    assert early[1] == pytest.approx(155, rel=0.08)
    assert (early[0] or 0) <= 130


def test_noise_is_no_trend() -> None:
    drawn = random.Random(1)
    arrivals, alarms = observed_rate([100.0] * 60), 0
    for _ in range(3000):
        arrivals = observed_rate([max(drawn.gauss(100, 20), 0)], arrivals)
        alarms += arrivals.rising(60.0) is not None
    assert alarms <= 30


@functools.cache
def last_minutes(stairs: tuple[int, ...]) -> list[ArrivalRate]:
    """The arrivals after each second of the last minute of stairs, drawn fifteen times."""
    seen = []
    for seed in range(15):
        drawn = np.random.Generator(np.random.PCG64(seed))
        calm = [stairs[0]] * 300 + [rate for rate in stairs[1:-1] for _ in range(60)]
        arrivals = observed_rate([float(count) for count in drawn.poisson(calm)])
        for count in drawn.poisson(stairs[-1], 60).tolist():
            arrivals = observed_rate([float(count)], arrivals)
            seen.append(arrivals)
    return seen


@pytest.mark.parametrize("horizon_s", [24.0, 62.0, 182.0])
@pytest.mark.parametrize("stairs", [(0, 20), (50, 100), (20, 200), (0, 35, 210), (50, 100, 200)], ids=str)
def test_noisy_stairs_are_no_trend(stairs: tuple[int, ...], horizon_s: float) -> None:
    """A minute each. Where only all blocks have to be a line rather than a step it is up to half of the looks."""
    foreseen = [arrivals.rising(horizon_s) is not None for arrivals in last_minutes(stairs)]
    assert sum(foreseen) < 0.2 * len(foreseen)


@pytest.mark.parametrize(("before", "after"), [(0, 20), (50, 100), (20, 200)])
def test_a_noisy_step_is_hardly_ever_a_steep_trend(before: int, after: int) -> None:
    foreseen, calm = [], observed_rate([float(before)] * 300)
    for seed in range(30):
        arrivals = calm
        for count in np.random.Generator(np.random.PCG64(seed)).poisson(after, 60).tolist():
            arrivals = observed_rate([float(count)], arrivals)
            foreseen.append((arrivals.rising(60.0) or 0.0) > (arrivals.rate() or 0.0) + 0.05 * after)
    assert sum(foreseen) < 0.08 * len(foreseen)


def test_a_noisy_ramp_is_a_trend() -> None:
    foreseen = []
    for seed in range(20):
        drawn = np.random.Generator(np.random.PCG64(seed))
        arrivals = observed_rate(
            [float(count) for count in drawn.poisson([50.0] * 300 + [50 + 0.5 * s for s in range(30)])]
        )
        for count in drawn.poisson([65 + 0.5 * second for second in range(90)]).tolist():
            arrivals = observed_rate([float(count)], arrivals)
            foreseen.append((arrivals.rising(60.0) or 0.0) > (arrivals.rate() or 0.0) + 5)
    assert sum(foreseen) > 0.8 * len(foreseen)


@given(st.integers(0, 2**16), st.floats(0.0, 300.0), st.floats(0.0, 300.0))
def test_more_in_the_last_second_never_is_a_reason_against_a_trend(seed: int, last: float, more: float) -> None:
    drawn = random.Random(seed)
    arrivals = observed_rate([drawn.uniform(0, second) for second in range(1, 120)])
    less, much = (observed_rate([now], arrivals).rising(60.0) or 0.0 for now in (last, last + more))
    assert less <= much + 1e-9


def test_a_restarted_process_goes_on_counting() -> None:
    arrivals = (
        ArrivalRate().with_sample(0, 1000, block_s=2.0).with_sample(1, 1010, block_s=2.0).with_sample(2, 5, block_s=2.0)
    )
    assert arrivals.counts == (0.0, 10.0, 15.0)
    assert arrivals.with_sample(2, 99, block_s=2.0) is arrivals


def test_a_clock_set_back_resets_the_rate_and_does_not_blind() -> None:
    arrivals = observed_rate([50.0] * 100)
    for second in range(1, 30):
        arrivals = arrivals.with_sample(
            100.0 - 3600 + second, arrivals.raw + 20.0 if arrivals.raw else 0.0, block_s=2.0
        )
    assert arrivals.rate() == pytest.approx(20.0)


def test_the_dispersion_distinguishes_bursts_from_poisson() -> None:
    drawn = random.Random(2)
    plain = observed_rate([float(sum(drawn.random() < 0.05 for _ in range(400))) for _ in range(900)])
    bursty = observed_rate([float(10 * sum(drawn.random() < 0.005 for _ in range(400))) for _ in range(900)])
    assert plain.spread.value == pytest.approx(1.0, abs=0.35)
    assert 6 < bursty.spread.value < 15


def drained(
    *,
    backlog: float,
    rate: float,
    arriving: list[float],
    most: float = 1e9,
    later: float | None = None,
    ready: int = 3,
    start_s: float = 60.0,
) -> Drain:
    later_rate = rate if later is None else later
    return drain(
        backlog=backlog, rate=rate, later_rate=later_rate, arriving_s=arriving, most=most,
        peak_rps=10.0, ready=ready, start_s=start_s, drain_s=10.0,
    )  # fmt: skip


def test_pods_are_added_for_what_would_still_wait_when_they_come() -> None:
    drain = drained(backlog=170.0, rate=200.0, arriving=[], start_s=20.0)
    # 170 + 170 x 30 s wait then; one pod works off 100 of them in 10 s.
    assert drain == Drain(keep=3, new=53, quickest=53, left=170 + 170 * 30)


def test_added_pods_are_worth_their_late_answers() -> None:
    drain = drained(backlog=170.0, rate=200.0, arriving=[])
    # 10,370 wait in a minute. By n pods beyond the 20 that serve the rate: n x 60 s of GPU time, and 200 x 10,370 / (10 n) late
    # answers, each worth 20 / 10 s of it. Least at n = 83.15.
    assert (drain.new, drain.quickest) == (101, 121)

    def costs(more: float) -> float:
        return more * 60 + 200 * 10_370 / (10 * more) * 2.0

    assert min(range(1, 200), key=costs) == 83


def test_a_start_that_takes_longer_is_worth_fewer_pods() -> None:
    shares = [
        drain.new / drain.quickest
        for drain in (drained(backlog=0.0, rate=200.0, arriving=[], start_s=start) for start in (60.0, 180.0, 600.0))
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.8
    assert shares[2] < 0.15


def test_a_finished_burst_starts_no_pods_unless_no_other_serves() -> None:
    assert drained(backlog=2000.0, rate=0.0, arriving=[]).new == 0
    assert drained(backlog=2000.0, rate=0.0, arriving=[], ready=0).new == 1
    assert drained(backlog=0.0, rate=0.0, arriving=[], ready=0).new == 0


def test_a_start_that_takes_no_time_is_worth_all_the_pods() -> None:
    drain = drained(backlog=170.0, rate=200.0, arriving=[], start_s=0.0)
    assert drain.new == drain.quickest == 19


def test_pods_under_way_are_counted_and_not_ordered_again() -> None:
    assert drained(backlog=340.0, rate=200.0, arriving=[59.0] * 121).new == 0


def test_pods_that_would_come_too_late_to_help_are_not_kept() -> None:
    drain = drained(backlog=20.0, rate=10.0, arriving=[0.5, 30.0])
    assert (drain.keep, drain.new) == (4, 0)


def test_a_bounded_queue_bounds_what_is_ordered() -> None:
    assert drained(backlog=170.0, rate=200.0, arriving=[], most=200.0).new == 19


@example(backlog=0.0, rate=36.0, more=1.0, arriving=[0.0])
@given(st.floats(0, 5000), st.floats(0, 500), st.floats(0, 5000), st.lists(st.floats(0, 80), max_size=20))
def test_more_backlog_never_means_fewer_pods(backlog: float, rate: float, more: float, arriving: list[float]) -> None:
    less = drained(backlog=backlog, rate=rate, arriving=sorted(arriving))
    much = drained(backlog=backlog + more, rate=rate, arriving=sorted(arriving))
    assert less.keep + less.new <= much.keep + much.new


def test_a_need_is_held_as_long_as_a_start_takes() -> None:
    hold = ScaleDownHold(patience_s=60.0)
    held = [0]
    for second in range(400):
        count, hold = hold.with_need(float(second), 5 if second == 0 else 2, 120.0)
        held.append(count)
    assert held.count(5) == 120


def test_released_needs_leave_no_state() -> None:
    _, hold = ScaleDownHold().with_need(0.0, 9, 60.0)
    assert hold.released().with_need(1.0, 2, 60.0)[0] == 2


def test_regret_doubles_the_patience_and_calm_halves_it() -> None:
    hold, spans = ScaleDownHold(), []
    for second in range(0, 6 * 210, 5):
        _, hold = hold.with_need(float(second), 5 if second % 210 < 10 else 2, 60.0)
        spans.append(hold.seconds(60.0))
    # Rises every three and a half minutes: holds of 1 and of 2 lose the next one and regret it; one of 4 doesn't.
    assert (spans[0], max(spans)) == (MIN_HOLD_S, 4 * MIN_HOLD_S)
    assert max(spans) <= MAX_HOLD_S
    for second in range(6 * 210, 30000, 5):
        _, hold = hold.with_need(float(second), 2, 60.0)
    assert hold.patience_s == hold.min_s


@pytest.mark.parametrize(
    ("dispersion", "held_s"),
    [(0.5, 60.0), (1.0, 60.0), (2.0, 120.0), (3.0, MAX_FIRST_HOLD_S), (50.0, MAX_FIRST_HOLD_S)],
)
def test_an_unknown_load_is_met_with_patience_by_its_bursts(dispersion: float, held_s: float) -> None:
    hold = ScaleDownHold()
    held = []
    for second in range(200):
        count, hold = hold.with_need(float(second), 5 if second == 0 else 2, 20.0, dispersion=dispersion)
        held.append(count)
    assert held.count(5) == held_s
    assert hold.seconds(300.0, dispersion=dispersion) == 300.0, "a start that takes longer is a longer hold"


def test_patience_that_was_learnt_counts_whatever_the_bursts_are() -> None:
    assert ScaleDownHold(patience_s=90.0).seconds(20.0, dispersion=50.0) == 90.0


def test_regret_is_learnt_from_the_load_itself_where_chance_keeps_the_count() -> None:
    hold = ScaleDownHold()
    for second in range(0, 900, 5):
        bare = 5 if second % 210 < 10 else 2
        held, hold = hold.with_need(float(second), 5, 60.0, bare=bare)
        assert held == 5
    assert hold.patience_s == 4 * MIN_HOLD_S


def test_a_release_that_chance_has_put_off_is_regretted_too() -> None:
    hold = ScaleDownHold(patience_s=60.0)
    for second in range(1000):
        _, hold = hold.with_need(
            float(second), 5 if second < 900 or second > 980 else 2, 60.0, bare=2 if second > 5 else 5
        )
    assert hold.patience_s == 120.0


def test_a_release_by_a_wrong_capacity_is_no_regret() -> None:
    for excused, patience_s in ((False, 120.0), (True, 60.0)):
        _, hold = ScaleDownHold(patience_s=60.0).with_need(0.0, 7, 10.0)
        _, hold = hold.with_need(61.0, 2, 10.0)
        assert hold.lowered_at == 61.0
        _, hold = (hold.excused() if excused else hold).with_need(65.0, 7, 10.0)
        assert hold.patience_s == patience_s


def test_a_foreseen_rise_is_no_regret() -> None:
    hold = ScaleDownHold(patience_s=60.0)
    for second in range(0, 5000, 5):
        _, hold = hold.with_need(float(second), 9 if second % 600 < 60 else 2, 60.0, foreseen=True)
    assert hold.patience_s == 60.0


def test_holds_do_not_run_out_in_the_dark() -> None:
    _, hold = ScaleDownHold(patience_s=60.0).with_need(0.0, 9, 60.0)
    for second in range(300):
        hold = hold.blind(float(second))
    assert hold.with_need(301.0, 2, 60.0)[0] == 9


def test_a_step_is_one_surprise() -> None:
    margin = Headroom()
    before = margin.value
    for second in range(0, 200, 5):
        rate = 100.0 if second < 100 else 300.0
        margin = margin.with_forecast(float(second), rate, rate, 60.0)
    assert before - 0.001 < margin.value < before + 0.005


def test_the_headroom_learns_how_far_the_load_outruns_its_forecasts() -> None:
    calm, wild = Headroom(), Headroom()
    for step in range(20000):
        now = 5.0 * step
        calm = calm.with_forecast(now, 100.0, 100.0, 60.0)
        wild = wild.with_forecast(now, 130.0 if step % 4 == 0 else 100.0, 100.0, 60.0)
    assert calm.value == 0.0
    assert wild.value == pytest.approx(0.3, abs=0.03)
