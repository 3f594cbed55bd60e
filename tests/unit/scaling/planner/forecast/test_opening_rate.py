"""The rate in the first minute after a model's first request."""

from __future__ import annotations

import math

import pytest

from halcyon.scaling.planner.forecast.arrival_rate import ArrivalRate

QUIET_S = 30


def arrivals(*, quiet_s: int, each_s: int, for_s: int) -> ArrivalRate:
    """Return samples of each second: none for `quiet_s`, then `each_s` requests in each second."""
    arrival_rate = ArrivalRate()
    for second in range(quiet_s + for_s + 1):
        arrival_rate = arrival_rate.with_sample(float(second), float(each_s * max(second - quiet_s, 0)), block_s=1.0)
    return arrival_rate


@pytest.mark.parametrize(
    ("each_s", "for_s", "errors"),
    [
        *((1, 3, 3**0.5), (2, 2, 2.0), (3, 3, 2.0)),
        *((64, 1, 8.0), (32, 2, 0.75 * 8), (12, 3, 0.5 * 6), (8, 20, 0.5 * 160**0.5)),
    ],
    ids=["3 requests", "4 requests", "9 requests", "first second", "second one", "third one", "20 seconds"],
)
def test_opening_rate_is_up_to_one_standard_error_below_the_mean(each_s: int, for_s: int, errors: float) -> None:
    arrival_rate = arrivals(quiet_s=QUIET_S, each_s=each_s, for_s=for_s)
    assert arrival_rate.opening() == pytest.approx(
        (each_s * for_s - errors * math.sqrt(arrival_rate.spread.doubt)) / for_s
    )


def test_opening_rate_is_above_the_proven_rate_of_the_first_seconds() -> None:
    arrival_rate = arrivals(quiet_s=QUIET_S, each_s=8, for_s=3)
    opening, rate = arrival_rate.opening(), arrival_rate.rate()
    assert opening is not None
    assert rate is not None
    assert opening > 2 * rate


@pytest.mark.parametrize(
    "arrival_rate",
    [
        ArrivalRate(),
        arrivals(quiet_s=QUIET_S, each_s=0, for_s=3),
        arrivals(quiet_s=0, each_s=8, for_s=3),
        arrivals(quiet_s=QUIET_S, each_s=8, for_s=60),
        arrivals(quiet_s=QUIET_S, each_s=8, for_s=200),
    ],
    ids=["no sample", "no request", "no idle time before", "a minute later", "minutes later"],
)
def test_opening_rate_is_unknown_without_a_first_request_in_the_last_minute(arrival_rate: ArrivalRate) -> None:
    assert arrival_rate.opening() is None
