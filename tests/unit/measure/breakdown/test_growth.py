"""Growth of counters, and counters that aren't believed."""

from __future__ import annotations

import pytest

from halcyon_measure.breakdown import growth
from halcyon_measure.results.observations import Counters, ServerSample, SizeCounters, Statistics


def counters(requests: float, each_s: float = 0.01) -> Counters:
    return Counters(requests, requests, requests, 0, 0, requests * each_s, 0)


def samples(*requests: float) -> list[ServerSample]:
    return [ServerSample(float(at), counters(value)) for at, value in enumerate(requests)]


def test_counters_grow_from_the_first_to_the_last_sample() -> None:
    grown = growth.of_samples(samples(100, 150, 300))
    assert grown is not None
    assert (grown.counters.requests, grown.restarts) == (200, 0)


def test_parts_before_and_after_a_restart_are_added() -> None:
    grown = growth.of_samples(samples(100, 150, 20, 60))
    assert grown is not None
    assert (grown.counters.requests, grown.restarts) == (50 + 20 + 40, 1)


def test_one_sample_has_no_growth() -> None:
    assert growth.of_samples(samples(100)) is None


def test_statistics_that_run_backwards_are_not_believed() -> None:
    grown, why = growth.of_statistics(Statistics(counters(500)), Statistics(counters(80)))
    assert grown is None
    assert "ran backwards, from 500 to 80 requests" in why


def test_batch_sizes_of_the_run_alone_are_kept() -> None:
    before = Statistics(counters(10), {1: SizeCounters(5, 0, 1, 0), 4: SizeCounters(3, 0, 1, 0)})
    after = Statistics(counters(30), {1: SizeCounters(5, 0, 1, 0), 4: SizeCounters(7, 0, 3, 0)})
    grown, _ = growth.of_statistics(before, after)
    assert grown is not None
    assert grown.sizes == {4: SizeCounters(4, 0, 2, 0)}


@pytest.mark.parametrize(
    ("requests", "believed", "text"),
    [
        (1000, True, ""),
        (1040, True, ""),
        (0, False, "stand still, although it answered 1000"),
        (500, False, "count 500 of 1000 requests: there are several replicas"),
        (1500, True, "include 500 requests of others"),
    ],
)
def test_counters_must_fit_the_answers_of_the_run(requests: float, believed: bool, text: str) -> None:
    is_believed, reason = growth.doubt(counters(requests), 1000)
    assert is_believed is believed
    assert text in reason
    assert bool(reason) is bool(text)


@pytest.mark.parametrize(
    ("points", "value", "text"),
    [
        ([(0, 5.0), (1, 7.0), (2, 9.0)], 4.0, ""),
        ([(0, 5.0), (1, 7.0), (2, 6.0)], None, "x ran backwards at 2 s, from 7 to 6"),
        ([(0, 5.0), (1, 5.0)], None, "x stands still at 5"),
        ([(0, 5.0)], None, "was read 1 times"),
    ],
)
def test_a_single_counter_is_believed_if_it_rises(
    points: list[tuple[float, float]], value: float | None, text: str
) -> None:
    increase, reason = growth.counter(points, "x")
    assert increase == value
    assert text in reason
