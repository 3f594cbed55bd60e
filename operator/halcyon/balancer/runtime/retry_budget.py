"""Limit on retries: only a certain share of the requests in the last seconds may be retried. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halcyon.balancer.runtime.haproxy_stats import HaproxyStats

MAX_SHARE = 0.1
"""Maximum share of all requests that may be retried."""
MIN_RETRIES = 10
"""Number of retries always allowed within `WINDOW_S`, because a share of very few requests is not meaningful."""
WINDOW_S = 10.0


@dataclass(frozen=True)
class _Counts:
    at: float
    requests: int
    failed: int


class RetryBudget:
    """Retry budget of one HAProxy.

    The budget counts both the retries that were made and those that it prevented, so it allows no retries while servers
    continue to fail.
    """

    def __init__(self) -> None:
        """Create the budget without samples. Retries are then allowed."""
        self._samples: deque[_Counts] = deque()
        self._process: object = None

    def allows(self, reading: HaproxyStats, *, now: float) -> bool:
        """Add a sample of HAProxy's counters, and return True if requests may be retried now.

        Args:
            reading: HAProxy's counters. If they come from a new process, earlier samples are discarded.
            now: monotonic time, in seconds.
        """
        counts = _Counts(now, reading.requests, reading.retried + reading.errors)
        last = self._samples[-1] if self._samples else None
        if reading.identity != self._process or (
            last and (counts.requests < last.requests or counts.failed < last.failed)
        ):
            self._samples.clear()
            self._process = reading.identity
        self._samples.append(counts)
        while now - self._samples[0].at > WINDOW_S:
            self._samples.popleft()
        requests = counts.requests - self._samples[0].requests
        failed = counts.failed - self._samples[0].failed
        return failed <= max(MIN_RETRIES, MAX_SHARE * requests)
