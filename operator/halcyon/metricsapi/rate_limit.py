"""The rate limit of callers that the API server doesn't vouch for: each request costs the API server one or two reviews."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MAX_RATE_PER_S = 20.0
MAX_BURST = 100.0
"""Enough for a dashboard that draws every model of a namespace at once."""
MAX_SOURCES = 4096
"""Callers that are remembered. Beyond that, a new caller replaces the one with the oldest request."""


@dataclass
class Limiter:
    """Token buckets, one per caller: each request takes one token, and tokens are refilled over time."""

    monotonic: Callable[[], float]
    rate_per_s: float = MAX_RATE_PER_S
    burst: float = MAX_BURST
    max_sources: int = MAX_SOURCES
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Tokens and when they were counted, by caller; the most recent caller is last."""

    def take(self, caller: str) -> float:
        """Return 0 if the caller may send a request, else the seconds until it may."""
        now = self.monotonic()
        tokens, since = self._buckets.pop(caller, (self.burst, now))
        tokens = min(self.burst, tokens + (now - since) * self.rate_per_s)
        wait_s = 0.0 if tokens >= 1 else (1 - tokens) / self.rate_per_s
        if len(self._buckets) >= self.max_sources:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[caller] = (tokens if wait_s else tokens - 1, now)
        return wait_s
