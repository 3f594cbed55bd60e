"""Maximum queue length while balancers reject requests, so that the planner doesn't assume an unlimited queue.

A balancer rejects requests that it can't serve by their deadlines. So its queue holds only about as many requests as
can be served in time. A simulation without rejections would let this queue grow to thousands of requests during one pod
start, although they will never be queued. The planner knows neither the deadlines nor the service rate that the
balancer measures. Instead, it uses the queue length observed while requests are rejected.

Out of scope: rejected requests as demand (`arrival_rate` counts them), and the replicas for a backlog (`backlog`).
"""

from __future__ import annotations

import math

from halcyon.scaling.frozen import immutable


@immutable(frozen=True, slots=True)
class RejectionBound:
    """Recent rejections of requests, and the longest queue observed since they began."""

    counted: float | None = None
    """Last value of the counter of rejected requests; None if no value has been known."""
    at: float | None = None
    """Time of the last rejection; None if no request was rejected recently."""
    waiting: float = 0.0
    """Highest number of queued requests observed since the first of the recent rejections."""

    def with_reading(self, at: float, rejected: float | None, waiting: float, lasting_s: float) -> RejectionBound:
        """Return the rejections and the longest queue, updated with one sample.

        `rejected` is the counter of rejected requests, `waiting` the present number of queued requests. The rejections
        are forgotten `lasting_s` seconds after the last one. An unknown or invalid counter is ignored. If the counter
        fell, it was reset; its new value is stored but not counted, because the times of these rejections are unknown.
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
        """Return whether requests were rejected within the last `lasting_s` seconds."""
        return self.at is not None and now - self.at <= lasting_s

    def max_waiting(self) -> float:
        """Return the longest queue that was observed while requests were rejected.

        The result is infinite if no requests were rejected recently.
        """
        return math.inf if self.at is None else self.waiting
