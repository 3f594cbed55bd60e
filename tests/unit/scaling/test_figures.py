import math

import pytest

from halcyon.scaling.figures import figure


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (12.345, 3, "12.3"),
        (999.6, 3, "1000"),
        (12345.6, 4, "12346"),
        (2.5e7, 6, "25000000"),
        (0.0000284, 2, "0.000028"),
        (0.0, 4, "0"),
        (math.inf, 4, "inf"),
    ],
)
def test_figures_have_no_exponent_and_lose_no_digits_before_the_point(value: float, digits: int, text: str) -> None:
    assert figure(value, digits) == text
