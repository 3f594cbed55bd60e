"""Bound of the queue if balancers reject requests: a queue that is kept short must not be treated as unlimited.

A balancer that rejects requests it can't serve in time lets about as many wait as are served by their deadlines. Simulated
without rejection, such a queue grows to thousands within one start, and none of those requests will ever be in it. The planner
knows neither the deadlines nor the server speed that the balancer measures. The queue length while requests are rejected shows
the bound.

Out of scope: rejected requests as demand (`arrival_rate` counts them), what the backlog asks for (`backlog`).
"""

from __future__ import annotations

import math

from halcyon.scaling.frozen import immutable


@immutable(frozen=True, slots=True)
class RejectionBound:
    """Memory of recent rejections."""

    counted: float | None = None
    """Counter of rejected requests as read last; None if it was never known."""
    at: float | None = None
    """Time of the last rejection; None if there is none, or it is too old to be meaningful."""
    waiting: float = 0.0
    """Most requests seen waiting since the first rejection."""

    def with_reading(self, at: float, rejected: float | None, waiting: float, lasting_s: float) -> RejectionBound:
        """Return the memory with one more sample: the counter `rejected`, and the requests waiting.

        The memory is cleared `lasting_s` after the last rejection. A counter that is unknown or invalid is ignored. So is one
        that fell: it was reset, and the time of its rejections is unknown.
        """
        if rejected is None or not 0 <= rejected < math.inf:
            rejected = self.counted
        elif self.counted is not None and rejected > self.counted:
            return RejectionBound(rejected, at, max(waiting, self.waiting if self.lasts(at, lasting_s) else 0.0))
        if self.at is None:
            return self if rejected == self.counted else RejectionBound(rejected)
        if not self.lasts(at, lasting_s):
            return RejectionBound(rejected)
        if rejected == self.counted and waiting <= self.waiting:
            return self
        return RejectionBound(rejected, self.at, max(self.waiting, waiting))

    def lasts(self, now: float, lasting_s: float) -> bool:
        """Return whether requests were rejected within the last `lasting_s`."""
        return self.at is not None and now - self.at <= lasting_s

    def max_waiting(self) -> float:
        """Return the maximum requests that can wait, as observed; infinite if none are rejected."""
        return math.inf if self.at is None else self.waiting
