"""How much can wait where balancers refuse: a queue that is kept short is no queue without an end.

A balancer that refuses who can't be served in time any more lets about as many wait as are served by their deadlines. Followed as if nobody
were refused, such a queue grows to thousands within one start, none of whom will ever be in it. Where deadlines are, and how quick servers
are by the balancer's own measure, the planner isn't told; what waits while requests are refused says it.

Not here: that who is refused has asked (`arrivals` counts them), what the backlog asks for (`backlog`).
"""

from __future__ import annotations

import math

from halcyon.scaling.frozen import immutable


@immutable(frozen=True, slots=True)
class RejectionBound:
    """What was seen of refused requests lately."""

    counted: float | None = None
    """The counter of refused requests as it was read last; None where it was never known."""
    at: float | None = None
    """When requests were last seen refused; None where none are, or were too long ago to tell anything."""
    waiting: float = 0.0
    """Most requests that were seen waiting since the first of them."""

    def with_reading(self, at: float, refused: float | None, waiting: float, lasting_s: float) -> RejectionBound:
        """With one more look, at which `refused` had been counted and so many waited.

        `lasting_s` after the last refusal what was seen is forgotten. A counter that isn't known, or is no count, tells nothing; one
        that fell was started anew, and tells nothing either: it can't be known when its requests were refused.
        """
        if refused is None or not 0 <= refused < math.inf:
            refused = self.counted
        elif self.counted is not None and refused > self.counted:
            return RejectionBound(refused, at, max(waiting, self.waiting if self.lasts(at, lasting_s) else 0.0))
        if self.at is None:
            return self if refused == self.counted else RejectionBound(refused)
        if not self.lasts(at, lasting_s):
            return RejectionBound(refused)
        if refused == self.counted and waiting <= self.waiting:
            return self
        return RejectionBound(refused, self.at, max(self.waiting, waiting))

    def lasts(self, now: float, lasting_s: float) -> bool:
        """Whether requests were refused within the last `lasting_s`."""
        return self.at is not None and now - self.at <= lasting_s

    def most(self) -> float:
        """Requests that can wait at the most, as far as it is seen; without a limit where none are refused."""
        return math.inf if self.at is None else self.waiting
