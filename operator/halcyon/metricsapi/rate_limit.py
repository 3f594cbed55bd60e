"""Rate limit for callers that the API server has not authenticated, because each of their requests causes one or two reviews."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MAX_RATE_PER_S = 20.0
MAX_BURST = 100.0
"""Number of requests that a caller may send at once. It is enough for a dashboard that shows all models of a namespace."""
MAX_SOURCES = 4096
"""Maximum number of callers whose rate is recorded. Above it, a new caller replaces the one with the oldest request."""


@dataclass
class Limiter:
    """Token buckets, one per caller. Each request takes a token, and tokens are added at a constant rate."""

    monotonic: Callable[[], float]
    rate_per_s: float = MAX_RATE_PER_S
    burst: float = MAX_BURST
    max_sources: int = MAX_SOURCES
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Number of tokens and the time of that number, by caller; the most recent caller is last."""

    def take(self, caller: str) -> float:
        """Take a token, and return 0 if there was one; else return the seconds until the next one."""
        now = self.monotonic()
        tokens, since = self._buckets.pop(caller, (self.burst, now))
        tokens = min(self.burst, tokens + (now - since) * self.rate_per_s)
        wait_s = 0.0 if tokens >= 1 else (1 - tokens) / self.rate_per_s
        if len(self._buckets) >= self.max_sources:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[caller] = (tokens if wait_s else tokens - 1, now)
        return wait_s
