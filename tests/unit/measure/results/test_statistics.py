"""Percentiles and intervals against values that are known."""

from __future__ import annotations

import numpy as np
import pytest

from halcyon_measure.results import statistics
from halcyon_measure.results.statistics import Blocks, percentile, supports


def test_a_percentile_is_the_value_that_the_share_does_not_exceed() -> None:
    values = np.arange(1, 101, dtype=np.float64)
    np.random.default_rng(1).shuffle(values)
    assert [percentile(values, share) for share in (0.01, 0.5, 0.95, 0.99, 0.999, 1.0)] == [1, 50, 95, 99, 100, 100]


def test_a_percentile_of_nothing_is_unknown() -> None:
    assert percentile(np.array([]), 0.5) is None


def test_a_percentile_needs_ten_values_above_it() -> None:
    assert (supports(999, 0.99), supports(1000, 0.99), supports(20, 0.5), supports(19, 0.5)) == (
        False,
        True,
        True,
        False,
    )


def exponential(seed: int, length: int = 60, rate: int = 100) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(seed)
    due = np.sort(rng.uniform(0, length, length * rate))
    return due, rng.exponential(0.05, len(due))


def test_intervals_of_percentiles_hold_the_true_value_in_nineteen_of_twenty() -> None:
    true = -0.05 * np.log(0.05)
    held = 0
    for seed in range(200):
        due, latency = exponential(seed, length=30, rate=60)
        low, high = Blocks(due, latency, 30, seed=seed).percentile(0.95) or (0, 0)
        held += low <= true <= high
    assert 180 <= held <= 200


def test_latencies_that_depend_on_each_other_have_a_wider_interval() -> None:
    due, latency = exponential(1)
    slow = np.where(np.floor(due) % 10 == 0, latency + 0.5, latency)
    narrow, wide = (Blocks(due, values, 60).percentile(0.9) for values in (latency, slow))
    assert narrow is not None
    assert wide is not None
    assert wide[1] - wide[0] > 3 * (narrow[1] - narrow[0])


def test_the_interval_of_a_rate_holds_the_rate() -> None:
    due, latency = exponential(3)
    low, high = Blocks(due, latency, 60).rate() or (0, 0)
    assert low < 100 < high
    assert high - low == pytest.approx(2 * 1.96 * 10 / np.sqrt(60), rel=0.35)


@pytest.mark.parametrize("length_s", [5.9, 9.99, 60.5])
def test_a_last_block_longer_than_a_second_does_not_shift_the_rate(length_s: float) -> None:
    due = np.arange(0, length_s, 0.01)
    low, high = Blocks(due, np.full(len(due), 0.05), length_s).rate() or (0, 0)
    assert low <= 100 <= high
    assert (low, high) == pytest.approx((100, 100), rel=0.02)


def test_a_short_run_has_no_intervals() -> None:
    due, latency = exponential(1, length=4)
    blocks = Blocks(due, latency, 4)
    assert (blocks.percentile(0.5), blocks.rate()) == (None, None)


def test_requests_are_counted_in_the_second_when_they_were_due() -> None:
    due = np.array([0.1, 0.9, 1.0, 2.5])
    counted = statistics.per_second(due, 3.0, np.array([True, True, True, False]))
    assert counted.tolist() == [2, 1, 0]


def test_answers_of_a_server_that_keeps_up_arrive_within_the_run() -> None:
    for seed in range(50):
        due, latency = exponential(seed, length=6)
        assert statistics.answering_s(due, latency, 6.0) == 6.0
        # One answer takes long, as after a cold connection.
        latency[-1] = 20.0
        assert statistics.answering_s(due, latency, 6.0) == 6.0


@pytest.mark.parametrize("length", [10, 30])
@pytest.mark.parametrize("kind", ["exponential", "two kinds of requests"])
def test_answers_that_take_different_times_are_no_sign_of_an_overload(kind: str, length: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        due = np.sort(rng.uniform(0, length, 50 * length))
        long = rng.random(len(due)) < 0.2
        latency = rng.exponential(1, len(due)) if kind == "exponential" else np.where(long, 4.0, 0.2)
        assert statistics.answering_s(due, latency, length) == length
        # The same answers of a server that does a third less than what is due.
        behind = statistics.answering_s(due, latency + due / 2, length)
        assert behind == pytest.approx(1.5 * length, rel=0.2)


def test_answering_time_is_the_same_of_requests_and_of_their_counts() -> None:
    due = np.arange(1000) / 100
    latency = np.arange(1, 1001) / 40 - due
    counts = np.full(1000, 3)
    assert statistics.answering_s(due, latency, 10.0) == pytest.approx(25, rel=0.01)
    assert statistics.answering_s(due, latency, 10.0, counts=counts) == pytest.approx(25, rel=0.01)


def test_answering_time_is_known_of_few_large_counts() -> None:
    """One entry of a histogram may have more than a quarter of all answers."""
    due, latency = np.array([0.0, 1.0]), np.array([1.0, 100.0])
    assert statistics.answering_s(due, latency, 10.0, counts=np.array([50, 50])) > 100


def test_answers_to_requests_that_are_due_together_arrive_within_the_run() -> None:
    with np.errstate(all="raise"):
        assert statistics.answering_s(np.zeros(100), np.linspace(1, 100, 100), 10.0) == 10.0
