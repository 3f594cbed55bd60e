"""Rate limit for callers that the API server has not authenticated, because each of their requests causes one or two reviews.

The metrics API limits every request of such a caller. The collector and the dashboard limit only callers whose tokens
were invalid, because many agents or people can share one address.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MAX_RATE_PER_S = 20.0
MAX_BURST = 100.0
"""Maximum number of requests that a caller may send at once. It is enough for a dashboard that shows all models of a
namespace."""
MAX_SOURCES = 4096
"""Maximum number of callers whose rate is recorded. If there are more, a new caller replaces the caller with the oldest
request."""


@dataclass
class Limiter:
    """Rate limiter with one token bucket per caller. Each request takes a token; tokens are added at a constant rate."""

    monotonic: Callable[[], float]
    rate_per_s: float = MAX_RATE_PER_S
    burst: float = MAX_BURST
    max_sources: int = MAX_SOURCES
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Number of tokens in each caller's bucket, and the time when it was computed. The most recent caller is last."""

    def take(self, caller: str) -> float:
        """Take a token from the caller's bucket, and return 0. If it has none, return the seconds until the next."""
        now = self.monotonic()
        tokens, wait_s = self._allowance(caller, now)
        self._buckets.pop(caller, None)
        if len(self._buckets) >= self.max_sources:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[caller] = (tokens if wait_s else tokens - 1, now)
        return wait_s

    def give_back(self, caller: str) -> None:
        """Return a token to the caller's bucket, because a request was not subject to the limit after all."""
        now = self.monotonic()
        tokens, _ = self._allowance(caller, now)
        if caller in self._buckets:
            self._buckets[caller] = (tokens + 1, now)

    def wait_s(self, caller: str) -> float:
        """Return the seconds until the caller's bucket has a token; 0 if it has one. No token is taken."""
        return self._allowance(caller, self.monotonic())[1]

    def _allowance(self, caller: str, now: float) -> tuple[float, float]:
        tokens, since = self._buckets.get(caller, (self.burst, now))
        tokens = min(self.burst, tokens + (now - since) * self.rate_per_s)
        return tokens, 0.0 if tokens >= 1 else (1 - tokens) / self.rate_per_s


class TokenBucket:
    """Token bucket that can be overdrawn. Times are monotonic, in seconds."""

    def __init__(self, rate_per_s: float, burst: float, now: float) -> None:
        """Create a full bucket, to which `rate_per_s` tokens a second are added, up to `burst`."""
        self.rate_per_s, self._burst = rate_per_s, burst
        self._left, self._at = burst, now

    def take(self, now: float, cost: float = 1.0) -> bool:
        """Take `cost` tokens, even if the bucket has fewer; return whether it had enough."""
        self._left = min(self._left + (now - self._at) * self.rate_per_s, self._burst) - cost
        self._at = now
        return self._left >= 0

    @property
    def wait_s(self) -> float:
        """Time from the last call of `take` until the bucket is no longer overdrawn, in seconds."""
        return max(-self._left / self.rate_per_s, 0.0)
