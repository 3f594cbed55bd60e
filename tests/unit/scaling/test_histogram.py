import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.histogram import Histogram, growth, quantile

BOUNDS = (0.1, 0.2, 0.4, 0.8)
histograms = st.tuples(*[st.integers(0, 50)] * 5).map(lambda counts: Histogram(BOUNDS, counts))


@given(histograms, histograms)
def test_sums_count_each_answer_once(first: Histogram, second: Histogram) -> None:
    both = first + second
    assert both.total == first.total + second.total
    assert all(both.above(bound) == first.above(bound) + second.above(bound) for bound in BOUNDS)


@given(histograms, st.floats(0.01, 0.99))
def test_a_quantile_lies_in_the_bucket_that_holds_it(histogram: Histogram, share: float) -> None:
    bound = histogram.least_bound(share)
    if bound is None:
        assert histogram.total == 0 or histogram.above(BOUNDS[-1]) > (1 - share) * histogram.total - 1e-6
        return
    assert histogram.above(bound) <= (1 - share) * histogram.total + 1e-6
    quantile = histogram.quantile(share)
    assert quantile is not None
    assert quantile <= bound
    assert all(smaller <= quantile for smaller in BOUNDS if smaller < bound)


def test_bounds_and_quantiles_equal_those_computed_by_hand() -> None:
    histogram = Histogram(BOUNDS, (10, 80, 5, 4, 1))
    assert histogram.above(0.2) == 10
    assert histogram.least_bound(0.95) == 0.4
    assert histogram.quantile(0.95) == pytest.approx(0.4)
    assert histogram.quantile(0.5) == pytest.approx(0.15)
    assert histogram.bound_above(0.2) == 0.2
    assert histogram.bound_above(0.201) == 0.2
    assert histogram.bound_above(0.21) == 0.4
    assert histogram.bound_above(1.0) is None


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
def test_a_histogram_knows_no_quantile_above_its_last_bound(histogram: Histogram, share: float) -> None:
    value = quantile(histogram.bounds_s, histogram.counts, share)
    assert histogram.quantile(share) == (None if value == math.inf else value)
    assert (histogram.least_bound(share) is None) == (value in {None, math.inf})
