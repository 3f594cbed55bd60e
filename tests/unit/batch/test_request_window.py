"""The window of requests: it follows what servers have free, and gives way."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest

from halcyon_batch.request_window import RequestWindow


def settled(window: RequestWindow, replicas: float, answers: int = 400) -> int:
    """Return the limit after these answers of servers that execute `replicas` requests at a time, each in a second."""
    for _ in range(answers):
        window.answered(max(window.limit / replicas, 1.0))
    return window.limit


@pytest.mark.parametrize("replicas", [1, 2, 8, 40])
def test_the_window_keeps_servers_busy_without_a_long_queue(replicas: int) -> None:
    assert 2 * replicas <= settled(RequestWindow(gentle=False), replicas) <= 3 * replicas + 1
    assert replicas <= settled(RequestWindow(gentle=True), replicas) <= 1.3 * replicas + 1


@pytest.mark.parametrize(("gentle", "least"), [(False, 2), (True, 1)])
def test_slow_answers_and_rejections_shrink_the_window(*, gentle: bool, least: int) -> None:
    for is_rejected in (False, True):
        window = RequestWindow(gentle=gentle)
        begun = settled(window, 8)
        for _ in range(4 * begun):
            if is_rejected:
                window.rejected()
            else:
                window.answered(60.0)
        assert window.limit == least


def test_the_window_grows_again_after_users_have_gone() -> None:
    window = RequestWindow(gentle=False)
    settled(window, 8)
    for _ in range(100):
        window.answered(20.0)
    assert settled(window, 8) >= 16


def test_the_window_grows_by_requests_of_any_number_of_rows() -> None:
    window = RequestWindow(gentle=False)
    for n in range(400):
        rows = 1 + n % 7
        window.answered(0.1 * rows * max(window.limit / 8, 1.0), rows)
    assert 16 <= window.limit <= 25


@pytest.mark.parametrize("servers", [1, 8, 32])
@pytest.mark.parametrize(
    "draw",
    [
        lambda _: 1.0,
        lambda rng: rng.uniform(0.1, 1.9),
        lambda rng: rng.expovariate(1.0),
        lambda rng: rng.lognormvariate(-0.5, 1.0),
    ],
)
def test_rows_that_take_different_times_use_all_servers(draw: Callable[[random.Random], float], servers: int) -> None:
    rng, window = random.Random(3), RequestWindow(gentle=False)
    now, computed_s = 0.0, 0.0
    free, running = [0.0] * servers, list[tuple[float, float]]()
    for _ in range(4000):
        while len(running) < window.limit:
            took_s = draw(rng)
            computed_s += took_s
            end = max(now, heapq.heappop(free)) + took_s
            heapq.heappush(free, end)
            heapq.heappush(running, (end, now))
        now, began = heapq.heappop(running)
        window.answered(now - began)
    assert computed_s / (max(free) * servers) >= 0.85
