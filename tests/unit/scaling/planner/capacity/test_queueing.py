"""The formulae against what was simulated, and against what must hold for all of them."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from halcyon.scaling.planner.capacity.queueing import Replica, ServiceLine, largest_load, rate_within, replicas_within

L1 = Replica(ServiceLine(0.4, 0.0), 4)
LINES = st.builds(ServiceLine, st.floats(0.001, 2.0), st.floats(0.0, 0.2))
REPLICAS = st.builds(Replica, LINES, st.integers(1, 64), st.integers(1, 4))


@given(st.floats(0.1, 1e4), st.floats(0.001, 10.0), st.floats(1.0, 100.0))
def test_the_largest_load_is_the_root_of_the_queue(peak: float, slack: float, dispersion: float) -> None:
    load = largest_load(peak, slack, dispersion=dispersion, late=0.001)
    assert 0 <= load <= 1
    if load > 1e-6:
        # ln z = x and load (z - 1) = ln z, with x mu t / I = ln(1/late)
        x = math.log(1000) * dispersion / (peak * slack)
        assert load * math.expm1(x) == pytest.approx(x)


def test_pools_gain_with_their_size() -> None:
    shares = [rate_within(n, L1, 2.4) / (n * L1.peak_rps) for n in (1, 2, 5, 20, 60)]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(0.82, abs=0.01)  # simulated: 0.86
    assert shares[3] == pytest.approx(0.99, abs=0.005)  # simulated: 0.99


def test_an_objective_of_less_than_two_batches_makes_them_smaller() -> None:
    tight = Replica(ServiceLine(0.08, 0.008), 16).within(0.25)
    assert tight.max_batch == 5
    assert Replica(ServiceLine(0.4, 0.0), 4).within(0.3).max_batch == 1


@given(REPLICAS, st.floats(0.1, 5000.0), st.floats(0.01, 10.0), st.floats(1.0, 20.0))
@example(Replica(ServiceLine(1.0, 5e-324), 1), 1.0, 1.0, 1.0)
def test_the_replicas_are_the_minimum_that_serves_the_rate(
    replica: Replica, rate: float, latency: float, dispersion: float
) -> None:
    count = replicas_within(rate, replica, latency, dispersion=dispersion, most=300)
    assert 1 <= count <= 300
    if count < 300:
        assert rate_within(count, replica, latency, dispersion=dispersion) >= rate
    if count > max(1, math.ceil(rate / replica.peak_rps)):
        assert rate_within(count - 1, replica, latency, dispersion=dispersion) < rate


def test_a_rate_of_zero_needs_no_replica() -> None:
    assert replicas_within(0.0, L1, 2.4, most=10) == 0
