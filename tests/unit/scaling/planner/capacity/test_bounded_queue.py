"""What can wait where balancers refuse."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.planner.capacity.bounded_queue import RejectionBound

LASTING_S = 60.0


def looked(*looks: tuple[float, float | None, float]) -> RejectionBound:
    """After these looks: (time, counter, requests that wait)."""
    seen = RejectionBound()
    for at, refused, waiting in looks:
        seen = seen.with_reading(at, refused, waiting, LASTING_S)
    return seen


def test_the_queue_is_unbounded_without_rejections() -> None:
    assert RejectionBound().max_waiting() == math.inf
    assert looked((0, 0, 10), (1, 0, 900)).max_waiting() == math.inf


def test_rejections_before_the_first_sample_say_nothing_of_now() -> None:
    assert looked((0, 5000, 90)).max_waiting() == math.inf


def test_the_bound_during_rejections_is_the_queue_that_was_seen() -> None:
    assert looked((0, 0, 10), (1, 7, 90), (2, 9, 60), (3, 9, 80)).max_waiting() == 90


def test_a_longer_queue_is_the_new_bound_with_or_without_rejections() -> None:
    assert looked((0, 0, 10), (1, 7, 90), (2, 7, 95)).max_waiting() == 95
    assert looked((0, 0, 10), (1, 7, 90), (2, 8, 120)).max_waiting() == 120


def test_the_bound_is_forgotten_a_start_after_the_last_rejection() -> None:
    assert looked((0, 0, 10), (1, 7, 90), (61, 7, 20)).max_waiting() == 90
    assert looked((0, 0, 10), (1, 7, 90), (62, 7, 20)).max_waiting() == math.inf
    assert looked((0, 0, 10), (1, 7, 90), (62, 9, 20)).max_waiting() == 20, "another time of refusals has its own bound"


@pytest.mark.parametrize("broken", [None, math.nan, math.inf, -1.0])
def test_a_counter_that_is_none_changes_nothing(broken: float | None) -> None:
    assert looked((0, 0, 10), (1, broken, 90)).max_waiting() == math.inf
    assert looked((0, 0, 10), (1, 7, 90), (2, broken, 5), (3, 7, 5)) == looked((0, 0, 10), (1, 7, 90))


def test_a_restarted_counter_is_no_rejection() -> None:
    assert looked((0, 50, 10), (1, 3, 90)).max_waiting() == math.inf
    assert looked((0, 50, 10), (1, 3, 90), (2, 4, 30)).max_waiting() == 30


LOOKS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3), st.floats(0, 1e6)), max_size=40)


@given(LOOKS)
def test_the_bound_is_never_below_what_waits(steps: list[tuple[int, int, float]]) -> None:
    seen, at, refused = RejectionBound(), 0.0, 0.0
    for seconds, more, waiting in steps:
        at, refused = at + seconds, refused + more
        seen = seen.with_reading(at, refused, waiting, LASTING_S)
        assert seen.max_waiting() >= waiting
