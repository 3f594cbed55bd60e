"""Requests in progress from the time that they took, against what is in progress."""

from __future__ import annotations

import pytest

from halcyon.signals.mean_in_progress import MAX_WINDOW_S, MeanInProgress
from halcyon.signals.observation_store import ObservationStore
from tests.unit.signals.records import haproxy, record, triton


def after(ends: list[float], took_s: float, seconds: int, *, together: int = 1) -> list[float | None]:
    """The number at each second if `together` requests of `took_s` end at each of these times."""
    mean = MeanInProgress()
    numbers = []
    for at in range(seconds):
        ended = together * sum(end <= at for end in ends)
        numbers.append(mean.update(float(at), ended, ended * took_s * 1e6))
    return numbers


@pytest.mark.parametrize("took_s", [0.03, 1.0, 7.0, 30.0, 60.0])
def test_requests_that_end_together_are_as_many_between_their_ends(took_s: float) -> None:
    every_s = max(took_s, 1.0)
    ends = [every_s * n for n in range(1, round(400 / every_s))]
    numbers = after(ends, took_s, 300, together=10)
    steady = numbers[round(3.5 * every_s) + 10 :]

    assert steady
    assert steady == pytest.approx([10 * took_s / every_s] * len(steady), rel=0.2)


def test_a_queue_that_ended_is_gone_after_one_more_wait() -> None:
    numbers = after([n / 2 for n in range(1, 100)], 3.0, 100)

    assert numbers[45] == pytest.approx(6.0, rel=0.05)
    assert numbers[60] < 3.0
    assert numbers[99] < 1.0


def test_a_queue_is_seen_while_it_grows() -> None:
    # 20 requests per second with a wait that grows by 0.2 s per second: at second n, 4 n of them wait.
    mean = MeanInProgress()
    spent_us, numbers = 0.0, []
    for at in range(40):
        spent_us += 20 * 0.2 * at * 1e6
        numbers.append(mean.update(float(at), 20.0 * at, spent_us))

    assert numbers[20] == pytest.approx(80, rel=0.2)


@pytest.mark.parametrize("arrivals", [30.0, 50.0, 100.0])
def test_a_queue_without_bound_is_known_while_it_grows(arrivals: float) -> None:
    """33 requests per second leave a queue into which more come."""
    mean, served = MeanInProgress(), 33.0
    spent_us, numbers = 0.0, []
    for at in range(1, 60):
        left = [served * (at - 1) + n for n in range(int(served))] if arrivals > served else []
        spent_us += sum(number / served - number / arrivals for number in left) * 1e6
        numbers.append(mean.update(float(at), served * at, spent_us))

    truth = max(arrivals - served, 0.0) * 50
    assert numbers[49] == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize("arrivals", [50.0, 100.0])
def test_the_store_counts_the_growth_of_a_queue_since_the_confirmed_sample(arrivals: float) -> None:
    """33 requests per second leave a queue, and each sample has the counters' growth of the sample before it."""
    hub, served, waited_s = ObservationStore(), 33, 0.0
    for second in range(50):
        left = range(served * (second - 1), served * second) if second else range(0)
        waited_s += sum(n / served - n / arrivals for n in left)
        sample = triton(at=second, pending=None, succeeded=served * second, queue_us=int(waited_s * 1e6))
        hub.receive(record(second, sample, balancer=haproxy(inflight=10_000)), float(second))
    observation = hub.observe("ns", "m", 49.0)

    assert observation is not None
    assert observation.pods[0].points[-1].pending == pytest.approx((arrivals - served) * 49, rel=0.01)


def test_one_sample_is_not_enough_also_after_a_restart() -> None:
    mean = MeanInProgress()
    assert mean.update(0.0, 100, 5e9) is None
    assert mean.update(1.0, 100, 5e9) == 0.0
    assert mean.update(2.0, 0, 0) is None


def test_samples_are_bounded() -> None:
    mean = MeanInProgress()
    for at in range(1000):
        mean.update(float(at), at, at * 1e6)
    assert len(mean._ring) <= MAX_WINDOW_S + 2


def test_the_store_has_the_queue_of_a_triton_without_the_gauge() -> None:
    hub = ObservationStore()
    for second in range(20):
        waited = triton(at=second, pending=None, succeeded=40 * second, queue_us=3_000_000 * second)
        gauged = triton("m-a-1", at=second, pending=6, succeeded=40 * second, queue_us=9_000_000 * second)
        silent = triton("m-a-2", at=second, pending=None)
        hub.receive(record(second, waited, gauged, silent, balancer=haproxy(inflight=50)), float(second))
    observation = hub.observe("ns", "m", 19.0)

    assert observation is not None
    assert [pod.points[-1].pending for pod in observation.pods] == [pytest.approx(3.0), 6, None]


def test_no_more_requests_wait_in_a_pod_than_balancers_have_in_progress() -> None:
    hub = ObservationStore()
    for second in range(20):
        sample = triton(at=second, pending=None, succeeded=40 * second, queue_us=30_000_000 * second)
        hub.receive(record(second, sample, balancer=haproxy(inflight=30 if second < 14 else 2)), float(second))
    observation = hub.observe("ns", "m", 19.0)

    assert observation is not None
    # The estimate is a mean over five seconds. It follows a fall once the balancers have had two in progress for as long.
    assert [point.pending for point in observation.pods[0].points[-2:]] == [pytest.approx(30), 2]


def test_mean_of_a_light_load_includes_moments_without_a_request() -> None:
    hub = ObservationStore()
    for second in range(20):
        # 3.4 requests per second wait 0.13 s each. In every fourth sample, none is in progress.
        sample = triton(at=second, pending=None, succeeded=34 * second // 10, queue_us=450_000 * second)
        hub.receive(record(second, sample, balancer=haproxy(inflight=0 if second % 4 == 3 else 2)), float(second))
    observation = hub.observe("ns", "m", 19.0)

    assert observation is not None
    assert [point.pending for point in observation.pods[0].points[-8:]] == [pytest.approx(0.45)] * 8
