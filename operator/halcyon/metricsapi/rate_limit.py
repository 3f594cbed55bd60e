"""How often who isn't vouched for may ask: each such question costs the API server a review, or two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

RATE_PER_S = 20.0
BURST = 100.0
"""A dashboard that draws every model of a namespace at once."""
MAX_SOURCES = 4096
"""Callers that are remembered. Who comes anew when there are more takes the place of who has waited longest."""


@dataclass
class Limiter:
    """A bucket of tokens for each caller; one is taken for each question, and they come back with time."""

    monotonic: Callable[[], float]
    rate_per_s: float = RATE_PER_S
    burst: float = BURST
    most: int = MAX_SOURCES
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Tokens, and when they were counted; who asked last stands last."""

    def take(self, caller: str) -> float:
        """0 where the caller may ask; else the seconds until it may."""
        now = self.monotonic()
        tokens, since = self._buckets.pop(caller, (self.burst, now))
        tokens = min(self.burst, tokens + (now - since) * self.rate_per_s)
        wait_s = 0.0 if tokens >= 1 else (1 - tokens) / self.rate_per_s
        if len(self._buckets) >= self.most:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[caller] = (tokens if wait_s else tokens - 1, now)
        return wait_s
