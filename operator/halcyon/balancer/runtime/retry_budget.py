"""Bounds how many requests are retried for their answer's sake: a share of all requests in the last seconds. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halcyon.balancer.runtime.runtime_api import HaproxyStats

MAX_SHARE = 0.1
"""Of all requests, those that may be sent again."""
MIN_RETRIES = 10
"""In `WINDOW_S`, these may always be: a tenth of very few says nothing."""
WINDOW_S = 10.0


@dataclass(frozen=True)
class _Look:
    at: float
    requests: int
    failed: int


class RetryBudget:
    """Whether requests may be sent again now.

    Counted are those that were, and those that would have been: so it stays shut for as long as servers fail.
    """

    def __init__(self) -> None:
        """Nothing is known, and nothing forbidden."""
        self._looks: deque[_Look] = deque()
        self._process: int | None = None

    def allows(self, reading: HaproxyStats, *, now: float) -> bool:
        """The verdict after this look.

        Args:
            reading: what HAProxy has counted. Another process than before begins anew.
            now: seconds of a clock that does not jump.
        """
        look = _Look(now, reading.requests, reading.repeated + reading.errors)
        last = self._looks[-1] if self._looks else None
        # The counters have 32 bits.
        if reading.process != self._process or (last and (look.requests < last.requests or look.failed < last.failed)):
            self._looks.clear()
            self._process = reading.process
        self._looks.append(look)
        while now - self._looks[0].at > WINDOW_S:
            self._looks.popleft()
        requests = look.requests - self._looks[0].requests
        failed = look.failed - self._looks[0].failed
        return failed <= max(MIN_RETRIES, MAX_SHARE * requests)
