"""State of a model's pods at the newest sample of their answers, and whether it contradicts Triton's batch times. Pure.

Out of scope: how long a contradiction must last, and the capacity that follows from the answers (`answer_evidence`).
"""

from __future__ import annotations

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.capacity import batch_time_check
from halcyon.scaling.planner.capacity.answer_samples import (
    BY_ENGINE,
    HOT,
    READY,
    Sample,
    answer_rate,
    most_ready,
    waits,
    within,
)
from halcyon.scaling.planner.capacity.full_pod import WINDOW_S, recent_s
from halcyon.scaling.planner.capacity.queueing import Replica


@immutable(frozen=True, slots=True)
class AnswerWindow:
    """State of a model's pods at the newest sample, computed from the samples of the last seconds."""

    samples: tuple[Sample, ...]
    replica: Replica | None
    """Capacity of a pod computed from its batch times; None if there are none."""
    limit_s: float
    """Time in a pod, in seconds, above which a request contradicts the batch times."""
    seconds: float
    """Time that the last answered request spent in its pod, in seconds."""
    length_s: float
    """Length of the window in which answers are counted, in seconds."""
    rate_rps: float
    """Requests that all pods together answered per second."""
    covered_s: float
    """Part of the window that the samples cover, in seconds."""
    fits: float
    """Number of waiting requests that fit into the pods' next batches. They don't wait for long, unless the batch times
    are wrong."""
    is_full_now: bool
    """Whether the pods have been full for the last seconds."""
    was_full: bool
    """Whether the pods were full during the complete window."""

    @classmethod
    def of(cls, samples: tuple[Sample, ...], seconds: float, replica: Replica | None, limit_s: float) -> AnswerWindow:
        """Return the state at the newest of the samples. `seconds` is the time that a request spends in its pod."""
        length_s = max(seconds, WINDOW_S)
        rate_rps, covered_s = answer_rate(samples, length_s)
        ready = samples[-1][READY]
        fits = 0.0
        if replica is not None and seconds <= limit_s:
            fits = float(ready * replica.max_batch * replica.instances)
        recent = within(samples, recent_s(seconds))
        engines_are_full = len(recent) > 1 and all(s[HOT] == BY_ENGINE and s[READY] == ready for s in recent)
        return cls(
            samples,
            replica,
            limit_s,
            seconds,
            length_s,
            rate_rps,
            covered_s,
            fits,
            waits(samples, recent_s(seconds), fits) or engines_are_full,
            covered_s >= length_s and waits(samples, length_s, fits),
        )

    @property
    def ready(self) -> int:
        """Return the number of ready pods."""
        return int(self.samples[-1][READY])

    @property
    def is_complete(self) -> bool:
        """Return whether the samples cover the complete window."""
        return self.covered_s >= self.length_s

    @property
    def most_ready(self) -> int:
        """Return the largest number of ready pods in the window."""
        return most_ready(self.samples, self.length_s)

    def contradicts(self, waiting: float, queued: float | None) -> bool:
        """Return whether the answers contradict the batch times: requests take too long, or full pods answer too few.

        `waiting` is the number of requests that wait in balancers or pods. `queued` is the number of those in balancers;
        None if unknown.
        """
        if self.seconds > self.limit_s:
            return True
        replica = self.replica
        return (
            replica is not None
            and self.was_full
            and self.rate_rps < batch_time_check.PROMISED * self.ready * replica.peak_rps
            and queued is not None
            # Another full batch waits in each pod, so batches are full. Otherwise the balancers' limit on requests per
            # pod may keep batches small.
            and waiting - queued >= self.ready * replica.max_batch * replica.instances
        )

    def agrees(self) -> bool:
        """Return whether requests take hardly longer than the batch times predict."""
        return self.replica is not None and self.seconds <= batch_time_check.agreed_s(self.limit_s)
