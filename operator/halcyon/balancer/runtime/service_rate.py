"""Measurement of the servers' throughput at full load, from HAProxy's counters. Pure.

If requests are queued in two successive samples, the number of responses in between measures the capacity, whatever the
model, its batches and its hardware are. Otherwise it measures only the demand. The rate is stored per server, so that
it stays valid when the number of servers changes. It expires `MAX_AGE_S` after the last sample with queued requests,
because an outdated rate would reject requests that could be served now. A new rate is measured as soon as requests are
queued again.

After a server is added, nothing is measured until its first responses are due. Until then, the responses would be
divided by too many servers, and the rate per server would be too low.
"""

# requests are queued in two successive samples | number of servers             | the responses in between measure
# yes                                           | the same                      | the capacity of the servers
# yes                                           | changed in between            | nothing: it is unknown when it changed
# yes                                           | grew less than a response ago | nothing: new servers have not responded yet
# no                                            | any                           | only the demand, not the capacity

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halcyon.balancer.runtime.haproxy_stats import HaproxyStats

WINDOW_S = 3.0
"""Time with queued requests over which a rate is measured, in seconds. It is extended if there are too few responses."""
MAX_WINDOW_S = 30.0
MIN_REQUESTS = 20
"""Minimum number of responses from which a rate is computed. After `MAX_WINDOW_S`, `MIN_ANSWERS` responses are
sufficient."""
MIN_ANSWERS = 5
"""Minimum number of responses within `MAX_WINDOW_S`. With fewer responses, the rate is unknown."""
MAX_AGE_S = 10.0


@dataclass(frozen=True)
class ServiceRate:
    """Throughput of the servers, measured while requests are queued."""

    rate_rps: float
    """Responses per second, over all servers in use together."""
    service_s: float
    """Mean time that a server takes for one response, including its own queue, in seconds."""


@dataclass(frozen=True)
class _QueuedInterval:
    """Interval between two successive samples that both had queued requests."""

    until: float
    lasted_s: float
    answered: int
    service_ms: int
    servers: int


class ServiceRateMeter:
    """Meter of the throughput of the servers behind one HAProxy, with the samples that it needs."""

    def __init__(self) -> None:
        """Create a meter without samples."""
        self._last: tuple[float, HaproxyStats] | None = None
        self._servers = 0
        self._settled_at = 0.0
        """Time from which the servers in use respond at their full rate, in monotonic seconds."""
        self._service_s = 0.0
        self._intervals: deque[_QueuedInterval] = deque()

    def add(self, reading: HaproxyStats, *, servers: int, now: float) -> ServiceRate | None:
        """Add a sample, and return the service rate; None if unknown.

        Args:
            reading: HAProxy's current statistics. The first sample from a new HAProxy process only starts the measurement.
            servers: number of servers that take requests now.
            now: monotonic time, in seconds.
        """
        last, self._last = self._last, (now, reading)
        before, self._servers = self._servers, servers
        if servers > before:
            self._settled_at = now + min(self._service_s, WINDOW_S)
        if last is not None and last[1].identity != reading.identity:
            self._intervals.clear()
        elif last is not None and servers == before and last[0] >= self._settled_at:
            self._add_interval(last[1], reading, lasted_s=now - last[0], servers=servers, now=now)
        while self._intervals and now - self._intervals[0].until > MAX_WINDOW_S + MAX_AGE_S:
            self._intervals.popleft()
        return self._rate(servers, now)

    def _add_interval(
        self, before: HaproxyStats, after: HaproxyStats, *, lasted_s: float, servers: int, now: float
    ) -> None:
        answered, service_ms = after.answered - before.answered, after.service_ms - before.service_ms
        # A negative difference means that a counter has restarted.
        # While only late requests wait, servers may have free capacity.
        is_full = all(any(map(sum, stats.loads.waiting.values())) for stats in (before, after))
        if is_full and servers and lasted_s > 0 and answered >= 0 and service_ms >= 0:
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
        self._service_s = service_ms / answered / 1000
        return ServiceRate(answered / server_s * servers, self._service_s)
