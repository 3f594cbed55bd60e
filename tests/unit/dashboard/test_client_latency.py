import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.observation_report import ReportedHistogram
from halcyon.dashboard.client_latency import NO_RESPONSES, ClientLatency, Quantiles, quantile
from halcyon.dashboard.ports import Name

MODEL, OTHER = Name("a", "one"), Name("a", "other")
BOUNDS = (10, 100, 1000)


def counted(*counts: int, bounds_ms: tuple[int, ...] = BOUNDS) -> ReportedHistogram:
    return ReportedHistogram(bounds_ms, counts)


def test_answers_between_two_samples_count_and_earlier_ones_do_not() -> None:
    answered = ClientLatency()
    assert answered.update(MODEL, {"p": counted(0, 0, 900, 0)}) == NO_RESPONSES
    # 100 more within 10 ms to 100 ms, and no more of the slow ones.
    assert answered.update(MODEL, {"p": counted(0, 100, 900, 0)}) == pytest.approx((55.0, 95.5, 99.1))


def test_the_quantile_of_no_answers_is_unknown_and_not_0() -> None:
    answered = ClientLatency()
    for _ in range(3):
        assert answered.update(MODEL, {"p": counted(5, 0, 0, 0)}) == Quantiles(None, None, None)
    assert answered.update(MODEL, {}) == NO_RESPONSES


def test_balancers_are_one_crowd() -> None:
    answered = ClientLatency()
    answered.update(MODEL, {"p": counted(0, 0, 0, 0), "q": counted(7, 7, 7, 7)})
    quantiles = answered.update(MODEL, {"p": counted(50, 0, 0, 0), "q": counted(7, 57, 7, 7)})
    assert quantiles == pytest.approx((10.0, 91.0, 98.2))


def test_a_balancer_that_is_new_counts_from_the_second_look_on() -> None:
    answered = ClientLatency()
    answered.update(MODEL, {"p": counted(0, 0, 0, 0)})
    quantiles = answered.update(MODEL, {"p": counted(10, 0, 0, 0), "new": counted(0, 0, 0, 10_000)})
    assert quantiles.p99 == pytest.approx(9.9)
    quantiles = answered.update(MODEL, {"p": counted(10, 0, 0, 0), "new": counted(0, 0, 10, 10_000)})
    assert quantiles.p50 == pytest.approx(550.0)


def test_a_restarted_haproxy_is_counted_from_its_restart() -> None:
    answered = ClientLatency()
    answered.update(MODEL, {"p": counted(0, 500, 0, 0)})
    assert answered.update(MODEL, {"p": counted(10, 0, 0, 0)}).p50 == pytest.approx(5.0)


def test_the_scheme_with_more_answers_of_two_counts() -> None:
    answered = ClientLatency()
    finer = (1, 2)
    answered.update(MODEL, {"old": counted(0, 0, 0, 0), "new": counted(0, 0, 0, bounds_ms=finer)})
    quantiles = answered.update(MODEL, {"old": counted(0, 0, 3, 0), "new": counted(4, 0, 0, bounds_ms=finer)})
    assert quantiles.p50 == pytest.approx(0.5)
    # A pod whose scheme is another one now has another HAProxy.
    assert answered.update(MODEL, {"old": counted(0, 8, 0, bounds_ms=finer)}).p50 == pytest.approx(1.5)


def test_answers_counted_during_a_silence_belong_to_no_step() -> None:
    answered = ClientLatency()
    answered.update(MODEL, {"p": counted(0, 0, 0, 0)})
    answered.forget(MODEL)
    assert answered.update(MODEL, {"p": counted(0, 0, 9_000, 0)}) == NO_RESPONSES
    assert answered.update(MODEL, {"p": counted(9, 0, 9_000, 0)}).p99 == pytest.approx(9.9)


def test_models_that_are_gone_are_forgotten() -> None:
    answered = ClientLatency()
    for name in (MODEL, OTHER):
        answered.update(name, {"p": counted(0, 0, 0, 0)})
    answered.retain([MODEL])
    assert answered.update(OTHER, {"p": counted(9, 0, 0, 0)}) == NO_RESPONSES
    assert answered.update(MODEL, {"p": counted(9, 0, 0, 0)}) != NO_RESPONSES


def test_above_the_highest_bound_only_the_bound_is_known() -> None:
    assert quantile(BOUNDS, (0, 0, 0, 3), 0.5) == 1000.0
    assert quantile(BOUNDS, (0, 0, 0, 0), 0.5) is None


@given(st.lists(st.floats(0, 999), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_the_quantile_lies_in_the_bucket_of_the_true_one(took_ms: list[float], share: float) -> None:
    bounds_ms = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    counts, _ = np.histogram(took_ms, bins=(0, *bounds_ms))
    # The answer in whose place it lies, which is what a histogram can know of it.
    true_ms = sorted(took_ms)[max(math.ceil(share * len(took_ms) - 1e-9), 1) - 1]
    number = int(np.searchsorted(bounds_ms, true_ms, side="right"))
    estimate_ms = quantile(bounds_ms, (*map(int, counts), 0), share)
    assert estimate_ms is not None
    assert (0, *bounds_ms)[number] - 1e-6 <= estimate_ms <= bounds_ms[number] + 1e-6
