import math

from hypothesis import given
from hypothesis import strategies as st

from halcyon.signals.time_series import Ring

COUNTER = st.one_of(st.just(math.nan), st.floats(0, 1e6))
ROWS = st.lists(st.tuples(st.floats(0, 60), COUNTER, COUNTER), max_size=30)


@given(ROWS, st.floats(0, 90), st.floats(1, 60))
def test_the_rates_of_several_columns_are_those_of_each(
    rows: list[tuple[float, float, float]], now: float, window_s: float
) -> None:
    ring = Ring(3, max_age_s=60.0, step_s=0.0)
    for row in sorted(rows):
        ring.add(row)
    assert ring.rates((1, 2), now, window_s) == [ring.rate(column, now, window_s) for column in (1, 2)]
