"""Wilson's interval of a share, against published values."""

from __future__ import annotations

import pytest

from halcyon_measure.stats.proportion import share_interval


@pytest.mark.parametrize(
    ("successes", "count", "interval"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_share_has_the_published_interval(successes: int, count: int, interval: tuple[float, float]) -> None:
    assert share_interval(successes / count, count) == pytest.approx(interval, abs=5e-5)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_interval_of_an_extreme_share_has_a_width(share: float) -> None:
    low, high = share_interval(share, 50)
    assert 0 <= low < high <= 1
