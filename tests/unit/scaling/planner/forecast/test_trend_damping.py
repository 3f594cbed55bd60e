"""How far a rise is believed, from what rises have come to."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.planner.forecast.trend_damping import TrendDamping

LEAD_S = 60.0


def driven(damping: TrendDamping, rates: list[float], foreseen: list[float | None], at: float = 0.0) -> TrendDamping:
    """A forecast a second; the mean of the last 30 s judges."""
    for second, (rate, rising) in enumerate(zip(rates, foreseen, strict=True)):
        window = rates[max(second - 29, 0) : second + 1]
        damping = damping.with_forecast(at + second, sum(window) / len(window), rate, rising, LEAD_S)
    return damping


def waves(count: int) -> tuple[list[float], list[float | None]]:
    """Up by 100 in a minute, down again in four; foreseen is that it goes on."""
    rates: list[float] = []
    foreseen: list[float | None] = []
    for _ in range(count):
        rates += [50 + 100 * second / 60 for second in range(60)] + [150 - 100 * second / 240 for second in range(240)]
        foreseen += [None] * 20 + [50 + 100 * (second + 60) / 60 for second in range(20, 60)] + [None] * 240
    return rates, foreseen


def test_a_first_rise_is_believed_in_full() -> None:
    assert TrendDamping().of(100.0, 150.0) == 150.0
    assert TrendDamping().of(100.0, None) is None
    assert TrendDamping(0.25).of(100.0, 180.0) == 120.0
    assert TrendDamping(0.25).of(100.0, 90.0) == 90.0


def test_a_rise_that_goes_on_stays_believed() -> None:
    rates = [50 + second / 2 for second in range(900)]
    damping = driven(TrendDamping(), rates, [50 + (second + 60) / 2 for second in range(900)])
    assert damping.share == pytest.approx(1.0, abs=0.02)


def test_turning_waves_lose_trust_and_a_ramp_restores_it() -> None:
    shares = [driven(TrendDamping(), *waves(count)).share for count in (1, 2, 4)]
    assert 1 > shares[0] > shares[1] > shares[2]
    assert shares[2] < 0.3
    ramp = [50 + second / 2 for second in range(400)]
    again = driven(TrendDamping(shares[2]), ramp, [50 + (second + 60) / 2 for second in range(400)], at=1e6)
    assert again.share > 0.9


def test_few_forecasts_are_remembered_and_each_is_judged_once() -> None:
    damping = driven(TrendDamping(), [100.0] * 60, [200.0] * 60)
    times = [at for at, _, _ in damping.due]
    assert times == [75.0, 90.0, 105.0, 120.0]
    assert damping.share == 1.0
    damping = driven(damping, [100.0] * 70, [None] * 70, at=60.0)
    assert damping.due == ()
    assert damping.share == pytest.approx(0.8**4)


@given(st.floats(0, 1), st.floats(0, 500), st.floats(0, 500), st.floats(0, 500), st.floats(0, 500))
def test_the_damped_trend_is_monotone_and_never_above_the_forecast(
    share: float, rate: float, more: float, rising: float, further: float
) -> None:
    damping = TrendDamping(share)
    low, high = damping.of(rate, rising), damping.of(rate + more, rising + further)
    assert low is not None
    assert high is not None
    assert max(rate, low) <= max(rate + more, high) + 1e-9
    assert low <= rising or math.isclose(low, rising)
