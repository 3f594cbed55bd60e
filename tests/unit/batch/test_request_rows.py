"""Rows of a request: chosen from the execution times of the first requests."""

from __future__ import annotations

import pytest

from halcyon.api.batch_inference import BatchInferenceSpec
from halcyon.api.documents.batch_documents import MAX_REQUEST_ROWS
from halcyon.api.schema.structural_schema import schema
from halcyon_batch.request_rows import RequestRows


def chosen(t0: float, t1: float, most: int, largest: int = 10**6) -> tuple[int | None, int]:
    """Return the chosen size for a line of execution times, and the requests that it took."""
    sizes, requests = RequestRows(fixed=None, most=most), 0
    while not sizes.is_chosen:
        requests += 1
        assert requests < 200
        rows = sizes.rows
        if rows > largest:
            sizes.limit(largest)
            continue
        # The first execution of each size is slow.
        sizes.answered(rows, (t0 + t1 * rows) * (3.0 if requests % 5 == 1 else 1.0))
    return sizes.chosen, requests


@pytest.mark.parametrize(
    ("t0", "t1", "most", "rows"),
    [(80, 6, 8, 8), (20, 2, 32, 32), (50, 0, 1, 1), (0.1, 10, 64, 1), (20, 2, 30, 30), (1, 10, 64, 2)],
)
def test_the_smallest_size_near_the_best_time_per_row_is_chosen(t0: float, t1: float, most: int, rows: int) -> None:
    assert chosen(t0, t1, most)[0] == rows


def test_the_largest_size_is_the_maximum_of_the_field() -> None:
    field = schema(BatchInferenceSpec)["properties"]["rowsPerRequest"]
    assert chosen(10_000, 0.01, 16_384)[0] == MAX_REQUEST_ROWS == field["maximum"]


def test_a_line_without_gain_ends_the_choice_early() -> None:
    assert chosen(0.1, 10, 64)[1] == 15


def test_a_refused_size_bounds_the_choice() -> None:
    assert chosen(80, 6, 64, largest=8)[0] == 8
    fixed = RequestRows(fixed=32, most=64)
    fixed.limit(8)
    assert fixed.rows == 8


def test_requests_that_are_never_full_end_the_choice() -> None:
    sizes, requests = RequestRows(fixed=None, most=8), 0
    while not sizes.is_chosen:
        requests += 1
        assert requests < 100
        sizes.answered(1, 0.02)  # each row has another shape, so no two of them are in one request
    assert sizes.chosen == 1


def test_a_few_full_requests_among_others_decide_the_choice() -> None:
    sizes, requests = RequestRows(fixed=None, most=8), 0
    while not sizes.is_chosen:
        requests += 1
        assert requests < 200
        rows = sizes.rows if requests % 3 == 0 else 1
        sizes.answered(rows, 0.08 + 0.006 * rows)
    assert sizes.chosen == 8
