"""A surge is seen once or twice, steady loads never, and a load that bursts all the time is not looked at twice each second."""

import random

import pytest

from halcyon.balancer.telemetry.arrival_surge import ArrivalSurge


def confirmed_samples(rates: list[float], *, seed: int | None = None) -> list[int]:
    """Places of the looks, one a second at these rates, that are to be confirmed; with a seed, requests come at random."""
    surge, total, confirmed = ArrivalSurge(), 0, []
    draw = random.Random(seed)
    for place, rate in enumerate(rates):
        total += round(rate) if seed is None else _arrivals(draw, rate)
        if surge.add(total, process="a", now=float(place)):
            confirmed.append(place)
    return confirmed


def _arrivals(draw: random.Random, rate: float) -> int:
    """Of one second, by Poisson."""
    count, at = 0, draw.expovariate(rate)
    while at < 1:
        count, at = count + 1, at + draw.expovariate(rate)
    return count


def test_a_step_is_confirmed_at_its_beginning_and_in_the_next_sample() -> None:
    confirmed = confirmed_samples([30.0] * 20 + [60.0] + [180.0] * 40)
    assert [place for place in confirmed if place > 3][:2] == [20, 21]


def test_a_step_is_confirmed_no_more_than_a_few_times() -> None:
    assert len([place for place in confirmed_samples([30.0] * 20 + [180.0] * 60) if place >= 20]) <= 3


def test_the_first_requests_after_a_silence_are_a_surge() -> None:
    assert confirmed_samples([0.0] * 10 + [8.0, 8.0])[0] == 10


@pytest.mark.parametrize("rate", [3.0, 30.0, 300.0])
def test_chance_is_hardly_ever_confirmed(rate: float) -> None:
    # The mean of three seconds is a noisy one, and few requests are skewed: less than one look in a hundred.
    assert len(confirmed_samples([rate] * 3600, seed=7)) < 36


def test_a_bursting_load_is_confirmed_at_most_twice_every_five_seconds() -> None:
    assert len(confirmed_samples([10.0, 10.0, 200.0, 400.0, 800.0] * 60)) <= 300 * 3 / 5
    assert len(confirmed_samples([2.0**k for k in range(40)])) <= 3 + 40 / 5


def test_a_new_process_counts_from_zero_and_causes_no_surge() -> None:
    surge = ArrivalSurge()
    for second in range(60):
        surge.add(1000 * second, process="a", now=second)
    assert not surge.add(70_000, process="b", now=60)
    assert surge.add(71_000, process="b", now=61)


def test_a_counter_that_falls_or_a_clock_that_stands_is_no_surge() -> None:
    surge = ArrivalSurge()
    confirmed = [
        surge.add(count, process="a", now=at) for count, at in [(0, 0.0), (4, 1.0), (1, 2.0), (900, 2.0), (904, 3.0)]
    ]
    assert not any(confirmed)
