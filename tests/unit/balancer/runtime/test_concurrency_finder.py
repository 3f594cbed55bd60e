"""The number of requests that a pod may hold, found for models of several kinds in a small simulation."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.balancer.runtime.concurrency_finder import MAX_BOUND, ComputeTime, ConcurrencyFinder, Load
from halcyon.triton.client import ModelConcurrency

START, DRAIN_S, TICK_S = 32, 30.0, 0.25


def flooded(finder: ConcurrencyFinder, *, at_once: int, seconds: float, for_s: float, pods: int = 2) -> list[int]:
    """Return the bounds over time while requests always wait, for pods that compute `at_once` requests in `seconds` each."""
    now, bounds, answered = 0.0, [], 0
    inside: list[list[float]] = [[] for _ in range(pods)]
    while now < for_s:
        now += TICK_S
        for pod in inside:
            while pod and pod[0] <= now:
                heapq.heappop(pod)
                answered += 1
            while len(pod) < finder.bound:
                # The request begins when the one before it on its place has ended.
                begins = sorted(pod)[-at_once] if len(pod) >= at_once else now
                heapq.heappush(pod, max(begins, now) + seconds)
        held = sum(map(len, inside))
        bounds.append(finder.add(Load(pods, held, 100, answered), now))
        answered = 0
    return bounds


def test_an_engine_gets_what_it_answers_faster_and_no_more() -> None:
    bounds = flooded(
        ConcurrencyFinder(ModelConcurrency(decoupled=True), most_unproved=START, drain_s=DRAIN_S),
        at_once=256,
        seconds=1.0,
        for_s=60,
    )
    assert max(bounds) <= 1024
    assert 256 <= bounds[-1] <= 512
    reached = next(index for index, bound in enumerate(bounds) if bound >= 128)
    assert reached * TICK_S <= 4


@pytest.mark.parametrize("seconds", [0.3, 1.0, 3.1])
@pytest.mark.parametrize("at_once", [1, 4, 8, 32, 64])
def test_an_engine_with_few_places_keeps_few_waiting_inside(at_once: int, seconds: float) -> None:
    finder = ConcurrencyFinder(ModelConcurrency(decoupled=True), most_unproved=START, drain_s=DRAIN_S)
    bounds = flooded(finder, at_once=at_once, seconds=seconds, for_s=250)
    assert at_once <= bounds[-1] <= 2 * at_once


def test_a_bound_fits_into_the_drain() -> None:
    finder = ConcurrencyFinder(ModelConcurrency(decoupled=True), most_unproved=START, drain_s=DRAIN_S)
    bounds = flooded(finder, at_once=16, seconds=16.0, for_s=400)
    assert bounds[-1] == 16


@pytest.mark.parametrize(
    ("execution_s", "instances", "bound"),
    [(5.0, 1, 2), (5.0, 4, 8), (0.05, 1, 3), (0.001, 1, 32), (20.0, 1, 1), (90.0, 2, 2)],
)
def test_one_request_at_a_time_has_about_one_ahead(execution_s: float, instances: int, bound: int) -> None:
    finder = ConcurrencyFinder(ModelConcurrency(instances), most_unproved=START, drain_s=DRAIN_S)
    assert finder.bound == 2 * instances
    assert finder.add(Load(1, 1, 0, 0, execution_s=execution_s), 0.0) == bound


def test_more_at_once_than_instances_is_an_engine() -> None:
    finder = ConcurrencyFinder(ModelConcurrency(), most_unproved=START, drain_s=DRAIN_S)
    assert finder.add(Load(1, 2, 5, 0, computing=2), 1.0) == 2
    assert finder.add(Load(1, 2, 5, 0, computing=2), 2.0) == START


def test_requests_in_the_pod_s_own_queue_are_not_computed() -> None:
    finder = ConcurrencyFinder(ModelConcurrency(), most_unproved=START, drain_s=DRAIN_S)
    for second in range(10):
        assert finder.add(Load(1, 2, 5, 0, computing=1), float(second)) == 2


def test_executions_that_end_before_their_answers_prove_nothing() -> None:
    finder = ConcurrencyFinder(ModelConcurrency(), most_unproved=START, drain_s=DRAIN_S)
    now = 0.0
    while now < 60:
        now += 1.0
        finder.add(Load(1, finder.bound, 100, finder.bound if now % 2 else 0, execution_s=0.0001), now)
    assert START < finder.bound <= MAX_BOUND


def test_a_found_bound_is_kept() -> None:
    finder = ConcurrencyFinder(ModelConcurrency(decoupled=True), most_unproved=START, drain_s=DRAIN_S, measured=256)
    assert finder.add(Load(1, 3, 0, 0), 0.0) == 256


def sampled(
    executions_s: list[float], samples_s: list[float], *, pods: int = 1, instances: int = 1, at_once: int = 1
) -> bool:
    """Return whether the compute time shows an overlap in any sample.

    Each instance runs `at_once` such series of executions at the same time, and samples are taken at the given distances.
    """
    ends = list(accumulate(executions_s))
    time, now, before = ComputeTime(), 0.0, 0.0
    for distance in samples_s:
        now += distance
        computed = ends[bisect_right(ends, now) - 1] if ends[0] <= now else 0.0
        for pod in range(pods):
            time.add(f"m-{pod}", instances * at_once * (computed - before), distance)
        before = computed
        if time.overlaps(instances):
            return True
    return False


@given(
    st.lists(st.floats(0.001, 60), min_size=1, max_size=200),
    st.lists(st.floats(0.05, 5), min_size=1, max_size=200),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_executions_one_after_the_other_never_overlap(
    executions_s: list[float], samples_s: list[float], pods: int, instances: int
) -> None:
    assert not sampled(executions_s, samples_s, pods=pods, instances=instances)


@pytest.mark.parametrize("pods", [1, 4])
@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("execution_s", [0.25, 1.0, 5.0, 30.0])
def test_executions_of_two_at_once_are_detected(execution_s: float, instances: int, pods: int) -> None:
    seconds = round(10 + (2 + 2 * instances) * execution_s)
    assert sampled([execution_s] * 1000, [1.0] * seconds, pods=pods, instances=instances, at_once=2)


def test_requests_in_transit_are_no_executions() -> None:
    finder = ConcurrencyFinder(ModelConcurrency(), most_unproved=START, drain_s=DRAIN_S)
    for second in range(10):
        assert finder.add(Load(1, 2, 5, 1, computing=2, execution_s=1.0), float(second)) == 2
    assert finder.add(Load(1, 2, 5, 1, computing=1, execution_s=1.0, overlaps=True), 10.0) == START


def test_a_late_response_is_no_overlap() -> None:
    """Executions of 2.5 s end after 0.05, 2.55 and 5.05 s. The counters of the last sample are read late."""
    time = ComputeTime()
    time.add("m-0", 2.5, 1.0)
    assert not time.overlaps(1)
    time.add("m-0", 2.5, 1.0, 0.6)
    assert not time.overlaps(1)
