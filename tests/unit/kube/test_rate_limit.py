"""How often who isn't vouched for may ask."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from halcyon.kube.auth.rate_limit import Limiter


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_let_in_and_then_a_rate() -> None:
    clock = Clock()
    limiter = Limiter(clock, rate_per_s=2, burst=3)
    assert [limiter.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    clock.now = 0.5
    assert [limiter.take("a") for _ in range(2)] == [0, 0.5]
    clock.now = 100
    assert [limiter.take("a") for _ in range(4)] == [0, 0, 0, 0.5]


def test_each_caller_has_a_bucket_of_its_own() -> None:
    limiter = Limiter(Clock(), rate_per_s=1, burst=1)
    assert [limiter.take("a"), limiter.take("b"), limiter.take("a")] == [0, 0, 1]


def test_remembered_callers_are_bounded() -> None:
    limiter = Limiter(Clock(), rate_per_s=1, burst=1, max_sources=2)
    for caller in "abcdef":
        assert limiter.take(caller) == 0
    assert len(limiter._buckets) == 2
    assert limiter.take("f") > 0


@given(st.lists(st.floats(0, 10), max_size=60))
def test_admitted_requests_never_exceed_burst_and_rate_in_any_time(pauses: list[float]) -> None:
    clock = Clock()
    limiter = Limiter(clock, rate_per_s=2, burst=5)
    let_in = 0
    for pause in pauses:
        clock.now += pause
        let_in += limiter.take("a") == 0
    assert let_in <= 5 + 2 * clock.now + 1e-6


def test_a_delayed_caller_is_admitted_after_its_wait() -> None:
    clock = Clock()
    limiter = Limiter(clock, rate_per_s=3, burst=1)
    limiter.take("a")
    clock.now += limiter.take("a") + 1e-9
    assert limiter.take("a") == 0
