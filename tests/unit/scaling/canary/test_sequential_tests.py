import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.canary.sequential_tests import (
    MAX_BLOCKS,
    MIN_BLOCKS,
    Blocks,
    Capital,
    Spread,
    Tally,
    boundary,
    log_e,
    nearest,
    tightest,
)

shares = st.floats(0.001, 0.999)
counts = st.integers(1, 6)
margins = st.sampled_from([0.0, 0.01, 0.1, -0.1])


def divergence(bet: tuple[float, float], point: tuple[float, float], trials: tuple[int, int]) -> float:
    return sum(
        n * (q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p)))
        for q, p, n in zip(bet, point, trials, strict=True)
    )


@given(shares, shares, counts, counts)
def test_the_nearest_point_without_a_margin_is_the_pooled_share(q: float, r: float, n: int, m: int) -> None:
    # Turner, Ly and Gruenwald 2024: their closed form for "both streams are one".
    assert nearest((q, r), (n, m), 0.0) == pytest.approx(((n * q + m * r) / (n + m),) * 2)


@given(shares, shares, counts, counts, margins)
def test_no_neighbour_on_the_line_is_nearer(q: float, r: float, n: int, m: int, margin: float) -> None:
    near = nearest((q, r), (n, m), margin)
    assert near[1] - near[0] == pytest.approx(margin)
    for step in (-1e-4, 1e-4):
        other = near[0] + step, near[1] + step
        if all(0 < p < 1 for p in other):
            assert divergence((q, r), other, (n, m)) >= divergence((q, r), near, (n, m)) - 1e-12


def test_an_e_variable_worked_by_hand() -> None:
    # One request each, bet (0.2, 0.8): the nearest equal pair is (0.5, 0.5). Success, then failure: (0.8 / 0.5) x (0.8 / 0.5) = 2.56.
    assert math.exp(log_e(Tally(0, 1), Tally(1, 1), (0.2, 0.8), 0.0)) == pytest.approx(2.56)
    assert math.exp(log_e(Tally(1, 1), Tally(0, 1), (0.2, 0.8), 0.0)) == pytest.approx(0.16)


pairs = st.tuples(shares, shares)


@given(pairs, pairs, st.tuples(counts, counts), margins)
def test_an_e_variable_has_a_mean_of_one_at_most_under_hypothesis(
    bet: tuple[float, float], truth: tuple[float, float], trials: tuple[int, int], margin: float
) -> None:
    # All outcomes, with their true probabilities, for shares anywhere in the half-plane across from the bet: no simulation.
    (first, second), (n, m) = truth, trials
    if (second - first - margin) * (bet[1] - bet[0] - margin) > 0:
        return
    mean = math.fsum(
        math.comb(n, x)
        * first**x
        * (1 - first) ** (n - x)
        * math.comb(m, y)
        * second**y
        * (1 - second) ** (m - y)
        * math.exp(log_e(Tally(x, n), Tally(y, m), bet, margin))
        for x, y in itertools.product(range(n + 1), range(m + 1))
    )
    assert mean <= 1 + 1e-9


@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize("count", [20, 60, 500])
def test_the_boundary_is_where_the_mixture_reaches_one_over_alpha(alpha: float, count: int) -> None:
    # By quadrature of the definition, with none of the algebra that led to the closed form.
    rho = tightest(alpha=alpha, at=60)
    total = boundary(count, alpha=alpha, best_at=60) * math.sqrt(count)
    middle, width = total / (count + rho), 1 / math.sqrt(count + rho)
    step = width / 200
    mixture = step * math.fsum(
        math.exp(s * total - s * s * count / 2 - s * s * rho / 2) * math.sqrt(rho / (2 * math.pi))
        for s in (middle + k * step for k in range(-2000, 2001))
    )
    assert mixture == pytest.approx(1 / alpha, rel=1e-6)
    assert boundary(count, alpha=alpha, best_at=60) > {0.05: 1.96, 0.01: 2.576}[alpha]  # what one look would do with


def test_the_boundary_is_tightest_about_where_it_should_be() -> None:
    widths = {at: boundary(60, alpha=0.05, best_at=at) for at in (6, 60, 600)}
    assert min(widths, key=lambda at: widths[at]) == 60


def test_peeking_at_every_window_errs_no_more_often_than_alpha() -> None:
    draw = random.Random(7)
    broke = 0
    for _ in range(200):
        capital = Capital()
        for _ in range(60):
            first, second = (Tally(sum(draw.random() < 0.05 for _ in range(n)), n) for n in (12, 4))
            bets = [(0.05, 0.1), (0.05, 0.3)]
            capital = capital.after([log_e(first, second, bet, 0.0) for bet in bets], design=1.0)
        broke += capital.peak >= math.log(20)
    assert broke <= 0.05 * 200


def test_one_ruinous_window_does_not_end_all_bets() -> None:
    capital = Capital().after([-800.0, -900.0], design=1.0)
    assert capital.now > -2
    for _ in range(10):
        capital = capital.after([2.0, 1.0], design=1.0)
    assert capital.now > math.log(100)


def test_a_design_effect_weighs_requests_that_share_a_fate_as_one() -> None:
    assert Capital().after([8.0], design=8.0).logs[0] == pytest.approx(Capital().after([1.0], design=1.0).logs[0])


def test_spread_is_one_for_independent_requests_and_finds_those_that_fail_together() -> None:
    draw = random.Random(3)

    def spread(together: int) -> float:
        estimate, totals = Spread(), (Tally(), Tally())
        for _ in range(150):
            window = tuple(
                Tally(together * sum(draw.random() < 0.1 for _ in range(n // together)), n) for n in (80, 40)
            )
            totals = totals[0] + window[0], totals[1] + window[1]
            estimate = estimate.after((window[0], window[1]), totals, prior=0.1)
        return estimate.factor()

    assert spread(1) < 1.4
    assert 5 < spread(8) < 12


def test_spread_counts_what_carries_over_to_the_next_window() -> None:
    def spread(carry: float) -> float:
        draw = random.Random(4)
        estimate, totals = Spread(), (Tally(), Tally())
        for late in autoregressive(draw, 150, carry):
            window = Tally(20, 100), Tally(min(max(round(20 + 3 * late), 0), 100), 100)
            totals = totals[0] + window[0], totals[1] + window[1]
            estimate = estimate.after(window, totals, prior=0.2)
        return estimate.factor()

    # Of six tenths that carry over, a mean varies (1 + 0.6) / (1 - 0.6) = 4 times as much as its windows make believe.
    assert spread(0.6) > 2 * spread(0.0)


def test_spread_that_is_assumed_gives_way_to_what_is_measured() -> None:
    draw, estimate, totals = random.Random(3), Spread(), (Tally(), Tally())
    assert (estimate.factor(), estimate.factor(3.0)) == (1.0, 3.0)
    for _ in range(200):
        window = tuple(Tally(sum(draw.random() < 0.1 for _ in range(n)), n) for n in (80, 40))
        totals = totals[0] + window[0], totals[1] + window[1]
        estimate = estimate.after((window[0], window[1]), totals, prior=0.1)
    assert estimate.factor(3.0) < 1.5


def test_no_window_wins_more_than_its_part() -> None:
    capital = Capital().after([50.0, 60.0], design=1.0, most=2.0)
    assert capital.now < 2.0
    assert Capital().after([-50.0], design=1.0, most=0.0).now < 0


rows = st.tuples(st.floats(0, 9), st.integers(0, 5), st.floats(0, 9), st.integers(0, 5))


@given(st.lists(rows, max_size=150))
def test_blocks_lose_nothing_and_stay_few(windows: list[tuple[float, int, float, int]]) -> None:
    blocks = Blocks()
    for row in windows:
        blocks = blocks.after(row)
    counted = [row for row in windows if row[1] and row[3]]
    assert blocks.windows == len(counted)
    assert len(blocks.rows) <= MAX_BLOCKS
    assert blocks.totals == pytest.approx(tuple(math.fsum(row[n] for row in counted) for n in range(4)))


def autoregressive(draw: random.Random, count: int, carry: float) -> list[float]:
    values, state = [], 0.0
    for _ in range(count):
        state = carry * state + draw.gauss(0, 1)
        values.append(5 + state)
    return values


def test_correlated_values_make_blocks_no_surer_than_warranted() -> None:
    draw = random.Random(5)
    missed = 0
    for _ in range(40):
        blocks = Blocks()
        for a, b in zip(autoregressive(draw, 200, 0.6), autoregressive(draw, 200, 0.6), strict=True):
            blocks = blocks.after((a, 1, b, 1))
            within = blocks.difference(0.05) if blocks.windows % 8 == 0 else None
            if within is not None and not within[0] <= 0 <= within[1]:
                missed += 1
                break
    # Of 40 at 5 %, for values of which 6 tenths carry over: 4 are typical. Taken for independent, half of them go wrong.
    assert missed <= 8


def test_blocks_find_a_difference() -> None:
    draw = random.Random(2)
    blocks = Blocks()
    assert blocks.difference(0.05) is None
    for _ in range(200):
        blocks = blocks.after((10 * draw.uniform(0.8, 1.2), 10, 4 * draw.uniform(1.6, 2.4), 4))
    difference = blocks.difference(0.05)
    assert difference is not None
    assert 0.9 < difference[0] < 1 < difference[1] < 1.1


def test_few_blocks_say_nothing() -> None:
    blocks = Blocks()
    for _ in range(MIN_BLOCKS - 1):
        blocks = blocks.after((1, 1, 2, 1))
    assert blocks.difference(0.05) is None
    assert blocks.after((1, 1, 2, 1)).difference(0.05) is not None
