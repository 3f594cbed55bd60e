from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.balancer.runtime.haproxy_stats import BackendLoads, HaproxyStats
from halcyon.balancer.runtime.service_rate import MAX_AGE_S, MAX_WINDOW_S, ServiceRate, ServiceRateMeter


def reading(
    answered: int, *, queued: int = 9, late: int = 0, process: int = 1, service_ms: int | None = None
) -> HaproxyStats:
    spent = 50 * answered if service_ms is None else service_ms
    loads = BackendLoads({"a": (0, queued - late)}, late=late)
    return HaproxyStats(0.0, process, "x", queued=queued, answered=answered, service_ms=spent, loads=loads)


def sampled_rate(
    meter: ServiceRateMeter, rate: int, *, seconds: int, servers: int = 2, start: int = 0, queued: int = 9
) -> ServiceRate | None:
    pace = None
    for second in range(start, start + seconds + 1):
        pace = meter.add(reading(rate * second, queued=queued), servers=servers, now=float(second))
    return pace


def test_answers_while_requests_wait_are_the_service_rate() -> None:
    assert sampled_rate(ServiceRateMeter(), 100, seconds=4) == ServiceRate(100.0, 0.05)


def test_answers_without_a_queue_give_no_rate() -> None:
    assert sampled_rate(ServiceRateMeter(), 100, seconds=60, queued=0) is None


def test_answers_while_only_late_requests_wait_give_no_rate() -> None:
    meter = ServiceRateMeter()
    rates = [meter.add(reading(100 * second, late=9), servers=2, now=float(second)) for second in range(30)]
    assert rates == [None] * 30


def test_a_burst_after_calm_is_not_measured_by_the_calm() -> None:
    meter = ServiceRateMeter()
    assert sampled_rate(meter, 1, seconds=60, queued=0) is None
    # Requests wait at this look, but did not at the one before.
    assert meter.add(reading(61), servers=2, now=61.0) is None


def test_a_server_more_is_a_higher_rate_at_once() -> None:
    meter = ServiceRateMeter()
    sampled_rate(meter, 100, seconds=4, servers=2)
    assert meter.add(reading(500), servers=3, now=5.0) is not None
    last = meter.add(reading(600, queued=0), servers=4, now=6.0)
    assert last is not None
    assert last.rate_rps == pytest.approx(100 * 4 / 2, rel=0.2)


@pytest.mark.parametrize("service_ms", [200, 1500, 60_000])
def test_rate_of_a_server_is_not_that_of_new_ones_without_answers(service_ms: int) -> None:
    meter = ServiceRateMeter()
    for second in range(5):
        meter.add(reading(60 * second, service_ms=60 * second * service_ms), servers=1, now=float(second))
    # Three more servers come between two samples, and send their first responses after the time of a response.
    answered, rates = 240, []
    for second in range(5, 16):
        answered += 60 if second - 5 <= min(service_ms / 1000, 2) else 240
        rates.append(meter.add(reading(answered, service_ms=answered * service_ms), servers=4, now=float(second)))
    assert [None if rate is None else round(rate.rate_rps) for rate in rates] == [240] * len(rates)


def test_rate_of_a_server_is_not_that_of_one_that_left() -> None:
    meter = ServiceRateMeter()
    sampled_rate(meter, 100, seconds=4)
    assert meter.add(reading(490), servers=1, now=5.0) == ServiceRate(50.0, 0.05)
    assert meter.add(reading(540), servers=1, now=6.0) == ServiceRate(50.0, 0.05)


def test_slow_answers_take_longer_to_be_known() -> None:
    meter = ServiceRateMeter()
    assert sampled_rate(meter, 1, seconds=19) is None
    assert sampled_rate(ServiceRateMeter(), 1, seconds=20) == ServiceRate(1.0, 0.05)
    slow_meter = ServiceRateMeter()
    paces = [
        slow_meter.add(reading(second // 5), servers=1, now=float(second)) for second in range(int(MAX_WINDOW_S) + 1)
    ]
    assert paces[-2] is None
    assert paces[-1] == ServiceRate(0.2, 0.05)


def test_a_service_rate_is_forgotten_when_requests_have_not_waited_for_long() -> None:
    meter = ServiceRateMeter()
    sampled_rate(meter, 100, seconds=4)
    assert meter.add(reading(400, queued=0), servers=2, now=4 + MAX_AGE_S) is not None
    assert meter.add(reading(400, queued=0), servers=2, now=4.1 + MAX_AGE_S) is None


def test_the_service_rate_is_unknown_without_a_server() -> None:
    meter = ServiceRateMeter()
    sampled_rate(meter, 100, seconds=4)
    assert meter.add(reading(400), servers=0, now=5.0) is None


def test_a_new_process_starts_without_a_service_rate() -> None:
    meter = ServiceRateMeter()
    sampled_rate(meter, 100, seconds=4)
    assert meter.add(reading(1000, process=2), servers=2, now=5.0) is None
    assert meter.add(reading(1100, process=2), servers=2, now=6.0) == ServiceRate(100.0, 0.05)


def test_a_restarted_counter_is_skipped() -> None:
    meter = ServiceRateMeter()
    sampled_rate(meter, 100, seconds=4)
    before = meter.add(reading(500), servers=2, now=5.0)
    assert meter.add(reading(600, service_ms=3), servers=2, now=6.0) == before


@given(
    st.lists(
        st.tuples(st.integers(0, 500), st.integers(0, 3), st.integers(0, 3), st.floats(0, 20), st.integers(1, 2)),
        max_size=60,
    )
)
def test_a_service_rate_never_exceeds_the_answers_seen(
    steps: list[tuple[int, int, int, float, int]],
) -> None:
    meter, answered, now, highest = ServiceRateMeter(), 0, 0.0, 0.0
    for more, queued, servers, lasted_s, process in steps:
        # As the clock shows it: what is less than its grain is rounded.
        answered, before, now = answered + more, now, now + lasted_s
        if now > before and servers:
            highest = max(highest, more / (now - before) / servers)
        pace = meter.add(reading(answered, queued=queued, process=process), servers=servers, now=now)
        if pace is not None:
            assert 0 < pace.rate_rps <= highest * servers * (1 + 1e-9)
            assert pace.service_s == pytest.approx(0.05, rel=1e-6)
