import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.histogram import Histogram, growth, quantile

BOUNDS = (0.1, 0.2, 0.4, 0.8)
histograms = st.tuples(*[st.integers(0, 50)] * 5).map(lambda counts: Histogram(BOUNDS, counts))


@given(histograms, histograms)
def test_sums_count_each_answer_once(one: Histogram, other: Histogram) -> None:
    both = one + other
    assert both.total == one.total + other.total
    assert all(both.above(bound) == one.above(bound) + other.above(bound) for bound in BOUNDS)


@given(histograms, st.floats(0.01, 0.99))
def test_a_quantile_lies_in_the_bucket_that_holds_it(found: Histogram, share: float) -> None:
    bound = found.least_bound(share)
    if bound is None:
        assert found.total == 0 or found.above(BOUNDS[-1]) > (1 - share) * found.total - 1e-6
        return
    assert found.above(bound) <= (1 - share) * found.total + 1e-6
    quantile = found.quantile(share)
    assert quantile is not None
    assert quantile <= bound
    assert all(smaller <= quantile for smaller in BOUNDS if smaller < bound)


def test_bounds_and_quantiles_equal_those_computed_by_hand() -> None:
    found = Histogram(BOUNDS, (10, 80, 5, 4, 1))
    assert found.above(0.2) == 10
    assert found.least_bound(0.95) == 0.4
    assert found.quantile(0.95) == pytest.approx(0.4)
    assert found.quantile(0.5) == pytest.approx(0.15)
    assert found.bound_above(0.2) == 0.2
    assert found.bound_above(0.201) == 0.2
    assert found.bound_above(0.21) == 0.4
    assert found.bound_above(1.0) is None


def test_a_malformed_histogram_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 5 numbers"):
        Histogram(BOUNDS, (1, 2, 3, 4))
    with pytest.raises(ValueError, match="ascend"):
        Histogram((0.2, 0.1), (1, 2, 3))
    with pytest.raises(ValueError, match="same bounds"):
        Histogram((0.1,), (1, 2)) + Histogram((0.2,), (1, 2))


def test_growth_is_counted_between_two_readings_of_one_process() -> None:
    assert growth((1, 2, 3), (1, 5, 3)) == (0, 3, 0)
    assert growth((1, 2, 3), (1, 1, 9)) is None


def test_a_quantile_keeps_the_unit_of_its_bounds() -> None:
    assert quantile((10, 20), (1, 1, 0), 0.75) == 15.0
    assert quantile((10, 20), (1, 1, 8), 0.5) == math.inf
    assert quantile((10, 20), (0, 0, 0), 0.5) is None


@given(histograms, st.floats(0.01, 1.0))
def test_a_histogram_knows_no_quantile_above_its_last_bound(found: Histogram, share: float) -> None:
    value = quantile(found.bounds_s, found.counts, share)
    assert found.quantile(share) == (None if value == math.inf else value)
    assert (found.least_bound(share) is None) == (value in {None, math.inf})
