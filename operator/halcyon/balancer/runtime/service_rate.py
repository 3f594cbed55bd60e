"""The servers' throughput while they have all the work they can take. Pure: HAProxy's counters in, a rate or "unknown" out.

    requests are queued in both of two successive samples | the responses in between measure
    yes                                                   | the capacity of the servers
    no                                                    | demand: nothing about the servers

Responses given while other requests are queued measure the servers' pace, whatever the model, its batches and its hardware. The pace
is kept per server, so that it stays valid as servers come and go, and forgotten `MAX_AGE_S` after the last such time. An old pace
would reject requests that could be answered now, and a new one is measured as soon as requests are queued again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halcyon.balancer.runtime.runtime_api import HaproxyStats

WINDOW_S = 3.0
"""Time with queued requests that a pace is measured over; longer if there were too few responses."""
MAX_WINDOW_S = 30.0
MIN_REQUESTS = 20
"""Number of responses needed to measure a pace; after `MAX_WINDOW_S`, `MIN_ANSWERS` are enough."""
MIN_ANSWERS = 5
"""Fewer responses than this in `MAX_WINDOW_S` give no rate."""
MAX_AGE_S = 10.0


@dataclass(frozen=True)
class ServiceRate:
    """Throughput of the servers while requests are queued."""

    rate_rps: float
    """Responses per second of all servers in use together."""
    service_s: float
    """Mean time of one response in a server, its own queue included, in seconds."""


@dataclass(frozen=True)
class _QueuedInterval:
    """Interval between two successive samples that both found requests queued."""

    until: float
    lasted_s: float
    answered: int
    service_ms: int
    servers: int


class ServiceRateMeter:
    """Meter of one HAProxy's service rate; it keeps the samples it needs."""

    def __init__(self) -> None:
        """Start with no sample."""
        self._last: tuple[float, HaproxyStats] | None = None
        self._intervals: deque[_QueuedInterval] = deque()

    def add(self, reading: HaproxyStats, *, servers: int, now: float) -> ServiceRate | None:
        """Add a sample, and return the pace, or None if unknown.

        Args:
            reading: HAProxy's current statistics. The first of another process only starts the measurement.
            servers: number of servers in use now.
            now: monotonic, in seconds.
        """
        last, self._last = self._last, (now, reading)
        if last is not None and last[1].process != reading.process:
            self._intervals.clear()
        elif last is not None:
            self._add_interval(last[1], reading, lasted_s=now - last[0], servers=servers, now=now)
        while self._intervals and now - self._intervals[0].until > MAX_WINDOW_S + MAX_AGE_S:
            self._intervals.popleft()
        return self._rate(servers, now)

    def _add_interval(
        self, before: HaproxyStats, after: HaproxyStats, *, lasted_s: float, servers: int, now: float
    ) -> None:
        answered, service_ms = after.answered - before.answered, after.service_ms - before.service_ms
        # The counters have 32 bits; a negative difference means that one wrapped around.
        if before.queued and after.queued and servers and lasted_s > 0 and answered >= 0 and service_ms >= 0:
            self._intervals.append(_QueuedInterval(now, lasted_s, answered, service_ms, servers))

    def _rate(self, servers: int, now: float) -> ServiceRate | None:
        if not self._intervals or now - self._intervals[-1].until > MAX_AGE_S:
            return None
        server_s, lasted_s, answered, service_ms = 0.0, 0.0, 0, 0
        for interval in reversed(self._intervals):
            if lasted_s >= MAX_WINDOW_S or (lasted_s >= WINDOW_S and answered >= MIN_REQUESTS):
                break
            server_s += interval.lasted_s * interval.servers
            lasted_s += interval.lasted_s
            answered += interval.answered
            service_ms += interval.service_ms
        enough = answered >= MIN_REQUESTS or (lasted_s >= MAX_WINDOW_S and answered >= MIN_ANSWERS)
        if not enough or not servers:
            return None
        return ServiceRate(answered / server_s * servers, service_ms / answered / 1000)
