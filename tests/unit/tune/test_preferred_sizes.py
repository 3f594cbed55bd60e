from __future__ import annotations

import math

import pytest

from halcyon_tune.preferred_sizes import preferred_sizes


def padded(rows: int) -> float:
    """Time of a batch that is padded to a multiple of 8."""
    return 0.01 * math.ceil(rows / 8)


def test_even_times_have_no_size_worth_a_preference() -> None:
    assert preferred_sizes({rows: 0.02 + 0.002 * rows for rows in range(1, 33)}, 32) == ()
    assert preferred_sizes(dict.fromkeys(range(1, 33), 0.02), 32) == ()
    assert preferred_sizes({}, 32) == ()


def test_padded_batches_prefer_the_multiples() -> None:
    assert preferred_sizes({rows: padded(rows) for rows in range(1, 25)}, 24) == (8, 16)
    assert preferred_sizes({rows: padded(rows) for rows in (4, 8, 9, 12)}, 12) == (8,)


def test_largest_batch_is_kept_if_its_rows_cost_least() -> None:
    times = {8: 0.010, 9: 0.016, 16: 0.018, 32: 0.030}
    assert preferred_sizes(times, 32) == (8, 32)
    assert preferred_sizes(times, 16) == (8, 16)


@pytest.mark.parametrize("most", [1, 8])
def test_sizes_above_the_largest_batch_are_left_out(most: int) -> None:
    assert preferred_sizes({rows: padded(rows) for rows in range(1, 25)}, most) == ()


def test_number_of_sizes_has_a_limit() -> None:
    times = {rows: 0.01 * rows * (1.0 if rows % 2 else 1.3) for rows in range(1, 81)}
    assert len(preferred_sizes(times, 80)) == 16
