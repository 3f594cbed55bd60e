"""The rate in the first minute after a model's first request."""

from __future__ import annotations

import math

import pytest

from halcyon.scaling.planner.forecast.arrival_rate import ArrivalRate

QUIET_S = 30


def arrivals(*, quiet_s: int, each_s: int, for_s: int) -> ArrivalRate:
    """Return samples of each second: none for `quiet_s`, then `each_s` requests in each second."""
    made = ArrivalRate()
    for second in range(quiet_s + for_s + 1):
        made = made.with_sample(float(second), float(each_s * max(second - quiet_s, 0)), block_s=1.0)
    return made


@pytest.mark.parametrize("for_s", [1, 3, 20])
def test_opening_rate_is_one_standard_error_below_the_mean(for_s: int) -> None:
    made = arrivals(quiet_s=QUIET_S, each_s=8, for_s=for_s)
    count = 8 * for_s
    assert made.opening() == pytest.approx((count - math.sqrt(made.spread.doubt * count)) / for_s)


def test_opening_rate_is_above_the_proven_rate_of_the_first_seconds() -> None:
    made = arrivals(quiet_s=QUIET_S, each_s=8, for_s=3)
    opening, rate = made.opening(), made.rate()
    assert opening is not None
    assert rate is not None
    assert opening > 2 * rate


@pytest.mark.parametrize(
    "made",
    [
        ArrivalRate(),
        arrivals(quiet_s=QUIET_S, each_s=0, for_s=3),
        arrivals(quiet_s=0, each_s=8, for_s=3),
        arrivals(quiet_s=QUIET_S, each_s=8, for_s=60),
        arrivals(quiet_s=QUIET_S, each_s=8, for_s=200),
    ],
    ids=["no sample", "no request", "no idle time before", "a minute later", "minutes later"],
)
def test_opening_rate_is_unknown_without_a_first_request_in_the_last_minute(made: ArrivalRate) -> None:
    assert made.opening() is None
