"""The limit on retried requests: a share of all requests of the last seconds. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halcyon.balancer.runtime.runtime_api import HaproxyStats

MAX_SHARE = 0.1
"""Maximum share of all requests that may be retried."""
MIN_RETRIES = 10
"""Retries that are always allowed in `WINDOW_S`: a tenth of very few requests means nothing."""
WINDOW_S = 10.0


@dataclass(frozen=True)
class _Counts:
    at: float
    requests: int
    failed: int


class RetryBudget:
    """Budget of one HAProxy's retries.

    It counts both the retries made and those that it prevented, so it stays closed for as long as servers fail.
    """

    def __init__(self) -> None:
        """Start with no sample, and retries allowed."""
        self._samples: deque[_Counts] = deque()
        self._process: int | None = None

    def allows(self, reading: HaproxyStats, *, now: float) -> bool:
        """Add a sample, and return True if requests may be retried now.

        Args:
            reading: HAProxy's counters. A new process starts from scratch.
            now: monotonic, in seconds.
        """
        counts = _Counts(now, reading.requests, reading.retried + reading.errors)
        last = self._samples[-1] if self._samples else None
        # The counters have 32 bits.
        if reading.process != self._process or (
            last and (counts.requests < last.requests or counts.failed < last.failed)
        ):
            self._samples.clear()
            self._process = reading.process
        self._samples.append(counts)
        while now - self._samples[0].at > WINDOW_S:
            self._samples.popleft()
        requests = counts.requests - self._samples[0].requests
        failed = counts.failed - self._samples[0].failed
        return failed <= max(MIN_RETRIES, MAX_SHARE * requests)
