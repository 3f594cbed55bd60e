"""Figures of a tuning run as text."""

from __future__ import annotations

import pytest

from halcyon_tune.points import Configuration, Point, Rate
from halcyon_tune.results.steps import point_text


@pytest.mark.parametrize(
    ("rate_rps", "p99_s", "text"),
    [
        (123.456, 0.01234, "123.5 requests/s: 123.5 answered/s, P99 12.3 ms"),
        (12345.6, 1.2345, "12350 requests/s: 12350 answered/s, P99 1230 ms"),
        (9999.96, 0.99996, "10000 requests/s: 10000 answered/s, P99 1000 ms"),
    ],
)
def test_figures_of_points_have_no_exponents(rate_rps: float, p99_s: float, text: str) -> None:
    point = Point(
        configuration=Configuration(max_batch=8),
        load=Rate(rate_rps=rate_rps),
        seconds=1.0,
        throughput_rps=rate_rps,
        p99_s=p99_s,
    )
    assert point_text(point) == f"1 instance, batch 8, {text}"
