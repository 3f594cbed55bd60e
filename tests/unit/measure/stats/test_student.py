import pytest

from halcyon_measure.stats.student import mean_interval, quantile


@pytest.mark.parametrize(
    ("share", "freedom", "value"),
    [(0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 9, 2.262), (0.995, 4, 4.604), (0.5, 7, 0.0), (0.025, 30, -2.042)],
)
def test_quantiles_are_those_of_published_tables(share: float, freedom: int, value: float) -> None:
    assert quantile(share, freedom) == pytest.approx(value, abs=2e-3)


def test_interval_of_a_mean_is_symmetric_about_it() -> None:
    low, high = mean_interval([9.0, 10.0, 11.0]) or (0.0, 0.0)
    assert (low + high) / 2 == pytest.approx(10.0)
    assert high - 10.0 == pytest.approx(4.303 / 3**0.5, rel=1e-3)


def test_two_values_have_no_interval() -> None:
    assert mean_interval([1.0, 2.0]) is None
