from __future__ import annotations

import math

import numpy as np
import pytest

from halcyon_tune.estimates import Estimate
from halcyon_tune.points import Configuration
from halcyon_tune.turns import MAX_ROUNDS, Turns

TODAY, WINNER = Configuration(max_batch=8), Configuration(max_batch=16)


def estimate(score: float) -> Estimate:
    return Estimate(log_factor=0.0, error=0.03, score=score, capacity_rps=score)


def run(gain: float, noise: float, seed: int = 1) -> Turns:
    random = np.random.default_rng(seed)
    turns = Turns(today=TODAY, winner=WINNER)
    while (configuration := turns.next()) is not None:
        score = 100 * (1 + gain if configuration == WINNER else 1) * math.exp(noise * random.standard_normal())
        turns = turns.after(configuration, estimate(score))
    return turns


def test_order_of_turns_is_abba() -> None:
    turns, order = Turns(today=TODAY, winner=WINNER), []
    for _ in range(8):
        configuration = turns.next()
        if configuration is None:
            break
        order.append(configuration)
        turns = turns.after(configuration, estimate(100 + len(order) % 3))
    assert order[:4] == [TODAY, WINNER, WINNER, TODAY]


def test_clear_gain_needs_three_rounds() -> None:
    turns = run(0.3, 0.01)
    gain = turns.gain()
    assert gain is not None
    assert gain.rounds == 3
    assert gain.is_shown
    assert gain.value == pytest.approx(0.3, abs=0.03)


def test_true_gain_is_in_most_intervals() -> None:
    gains = [run(0.2, 0.05, seed).gain() for seed in range(200)]
    inside = [gain.interval[0] <= 0.2 <= gain.interval[1] for gain in gains if gain is not None and gain.interval]
    assert len(inside) == 200
    assert sum(inside) >= 180


def test_equal_settings_show_no_gain() -> None:
    shown = [gain.is_shown for seed in range(200) if (gain := run(0.0, 0.05, seed).gain()) is not None]
    assert len(shown) == 200
    assert sum(shown) <= 10


def test_noise_that_hides_a_gain_names_the_rounds_needed() -> None:
    open_gains = [gain for seed in range(50) if (gain := run(0.05, 0.15, seed).gain()) is not None and gain.is_open]
    assert open_gains
    assert all(gain.rounds == MAX_ROUNDS for gain in open_gains)
    needed = [gain.rounds_needed(gain.value) for gain in open_gains]
    assert all(rounds is not None and rounds > MAX_ROUNDS for rounds in needed)


def test_failed_point_ends_the_turns() -> None:
    turns = Turns(today=TODAY, winner=WINNER).after(TODAY, None)
    assert turns.next() is None
    assert turns.gain() is None


def test_gain_that_noise_hides_is_not_denied() -> None:
    turns = Turns(today=TODAY, winner=WINNER)
    for score in (75, 55, 55):
        turns = turns.after(TODAY, estimate(60)).after(WINNER, estimate(score))
    gain = turns.gain()
    assert gain is not None
    assert not gain.is_open
    assert gain.allows(0.3)
    assert not gain.allows(1.0)
    assert gain.rounds_needed(0.3) == 4
    assert gain.rounds_needed(0.1) == 18


def test_last_turn_of_a_configuration_is_its_newest_estimate() -> None:
    turns = Turns(today=TODAY, winner=WINNER).after(TODAY, estimate(60)).after(WINNER, estimate(75))
    last = turns.after(WINNER, estimate(55)).last(WINNER)
    assert last is not None
    assert last.score == 55
    assert turns.last(Configuration(max_batch=4)) is None
