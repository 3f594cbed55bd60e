"""Search for the number of requests that a pod may have in progress if neither the spec nor a batcher sets it. Pure.

If each instance of a model computes one request at a time, the maximum follows from the number of instances. Otherwise
the maximum is found by doubling and halving it while the throughput is measured.

The other models form batches themselves (vLLM, TensorRT-LLM, asynchronous Python), and only their throughput shows how
many requests they compute at once. While requests wait and all pods are full, this module measures the turnover: the
time in which a pod answers as many requests as it holds. If the maximum is doubled and the throughput doubles, the
turnover stays the same. If the additional requests only wait in the pod, the turnover doubles. The maximum never
exceeds the number of requests that a stopping pod can answer within the drain time.
"""

# the model                                       | maximum concurrency of a pod (the bound)
# computes one request per instance at a time     | one per instance, and as many more as take `AHEAD_S`, at least one
# computes more than its instances at once        | doubled while requests wait and throughput grows by `MIN_GAIN`; else
# (decoupled, or Triton's queue stays empty)      | halved while throughput doesn't shrink by as much

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Literal

from halcyon.triton.client import ModelConcurrency

AHEAD_S: Final = 0.1
"""Time for which the requests waiting in a pod may keep its instances busy, in seconds. It exceeds the round-trip time
between balancer and pod."""
MIN_GAIN: Final = 1.25
"""Minimum factor by which throughput must grow to justify doubling the maximum concurrency. The factor can't exceed
2."""
FULL: Final = 0.8
"""Share of its maximum concurrency at which a pod counts as full."""
MAX_BOUND: Final = 1024
RETRY_S: Final = 300.0
"""Time after which a higher maximum concurrency is tried again, in seconds. It doubles after each search, up to
`MAX_RETRY_S`."""
MAX_RETRY_S: Final = 3600.0
MIN_OVERLAP_S: Final = 0.2
"""Time that responses may take longer than the executions of all requests in a pod, in seconds."""
MIN_SAMPLES: Final = 2
"""Number of successive samples that must show simultaneous executions before a first execution has ended. A single
sample can be wrong because of requests in transit."""
MIN_COMPUTE_WINDOW_S: Final = 30.0
"""Minimum time over which a pod's compute time is compared with the time that has passed, in seconds."""
COMPUTE_MARGIN: Final = 1.1
"""Factor for the time that has passed. It covers small inaccuracies of Triton's counters."""
MIN_WINDOW_S: Final = 0.75
"""Minimum time over which responses are counted, in seconds. It covers three samples."""
DRAIN_SHARE: Final = 0.9
"""Maximum share of the drain time that a pod may need to answer the requests that it holds."""


@dataclass(frozen=True)
class Load:
    """Load of all pods of a revision at one moment, summed over all balancers."""

    pods: int
    inflight: int
    """Number of requests in progress at the pods."""
    waiting: int
    """Number of requests that wait in the balancers."""
    answered: int
    """Number of requests that have ended since the previous sample."""
    computing: int | None = None
    """Lowest number, in the last second, of requests in pods but not in Triton's queue; None if there is no new sample
    of the pods."""
    execution_s: float | None = None
    """Mean time of an execution, in seconds; None if there has been no execution yet."""
    overlaps: bool = False
    """Whether Triton's compute time shows that pods compute more requests at once than they have instances."""


@dataclass
class ComputeTime:
    """Compute time of a revision's pods since a moment, as Triton counts it when an execution ends.

    Executions of one instance follow one another, so their times add up to at most the time that has passed, plus the part of
    the first one from before that moment. Requests in transit between balancer and pod can't change this, unlike the
    number of requests in progress.
    """

    computed_s: float = 0.0
    passed_s: float = 0.0
    """Time that has passed, added up over the pods, in seconds."""
    late_s: float = 0.0
    """Longest time between the request and the response of a sample, in seconds. Its counters may include this time."""
    longest_s: dict[str, float] = field(default_factory=dict)
    """Largest compute time that was added by one sample, by pod name, in seconds. No execution in it was longer."""

    def add(self, pod: str, computed_s: float, passed_s: float, late_s: float = 0.0) -> None:
        """Add the compute time that a sample of a pod shows.

        `passed_s` is the time between the requests of the previous sample and of this one, and `late_s` the time from
        this sample's request to its response, both in seconds.
        """
        window_s = max(MIN_COMPUTE_WINDOW_S, 4 * max(self.longest_s.values(), default=0.0))
        if self.passed_s > window_s * max(len(self.longest_s), 1):
            self.computed_s, self.passed_s, self.late_s, self.longest_s = 0.0, 0.0, 0.0, {}
        self.computed_s += computed_s
        self.passed_s += passed_s
        self.late_s = max(self.late_s, late_s)
        self.longest_s[pod] = max(self.longest_s.get(pod, 0.0), computed_s)

    def overlaps(self, instances: int) -> bool:
        """Return True if pods with this number of instances can't have computed so much one request after the other."""
        longest_s = sum(self.longest_s.values()) + len(self.longest_s) * self.late_s
        return self.computed_s > instances * (COMPUTE_MARGIN * self.passed_s + longest_s)


def initial_bound(facts: ModelConcurrency, most_unproved: int) -> int:
    """Return the maximum concurrency of a pod before any measurement.

    The result is two requests per instance, or `most_unproved` for a decoupled model.
    """
    return most_unproved if facts.decoupled else 2 * facts.instances


class ConcurrencyFinder:
    """Search for the maximum concurrency of a revision: the number of requests that may be in progress at each pod."""

    def __init__(self, facts: ModelConcurrency, *, most_unproved: int, drain_s: float, measured: int = 0) -> None:
        """Create the search. It starts from an earlier result, or from an estimate based on the model's configuration.

        Args:
            facts: the model's configuration.
            most_unproved: highest maximum concurrency for models that compute one request per instance. For other
                models, the maximum concurrency at which doubling starts.
            drain_s: time in which a stopping pod must answer the requests that it holds, in seconds.
            measured: maximum concurrency that was measured for this revision before; 0 if none.
        """
        self._facts = facts
        self._most_unproved = most_unproved
        self._drain_s = drain_s
        self._overlaps = facts.decoupled or measured > most_unproved
        self._overlaps_for = 0
        self.bound = measured or initial_bound(facts, most_unproved)
        self._turnovers: dict[int, float] = {}
        """Turnover for each maximum concurrency, in seconds. It is the time in which a full pod answered as many
        requests as it held."""
        self._since: float | None = None
        self._answered = 0
        self._direction: Literal["up", "down", "settled"] = "up"
        self._retry_at = float("inf")
        self._retry_s = RETRY_S

    def add(self, load: Load, now: float) -> int:
        """Add a sample, and return the maximum concurrency of a pod. `now` is the monotonic time, in seconds."""
        turnover_s = self._turnover_s(load, now)
        if self._overlaps:
            if turnover_s is not None:
                self._turnovers[self.bound] = turnover_s
                self._decide(turnover_s, now)
        elif self._is_overlap(load) or self._is_longer(load, turnover_s):
            self._overlaps, self._since = True, None
            self.bound = max(self.bound, self._most_unproved)
        elif load.execution_s is not None:
            self.bound = self._serial_bound(load.execution_s)
        return self.bound

    def _is_overlap(self, load: Load) -> bool:
        """Return True if pods compute more requests at once than they have instances.

        Before a first execution has ended, `MIN_SAMPLES` successive samples must show it. Later, a pod gets its next request
        whenever an execution ends, and requests in transit would be mistaken for executions.
        """
        if load.execution_s is not None:
            return load.overlaps
        if load.computing is not None:
            is_seen = load.computing > load.pods * self._facts.instances
            self._overlaps_for = self._overlaps_for + 1 if is_seen else 0
        return self._overlaps_for >= MIN_SAMPLES

    def _is_longer(self, load: Load, turnover_s: float | None) -> bool:
        """Return True if responses take so long that executions must end before their responses are complete."""
        if turnover_s is None or load.execution_s is None:
            return False
        return turnover_s > 4 * self.bound * load.execution_s / self._facts.instances + MIN_OVERLAP_S

    def _serial_bound(self, execution_s: float) -> int:
        instances = self._facts.instances
        ahead = max(math.ceil(AHEAD_S / execution_s), 1) if execution_s > 0 else self._most_unproved
        drained = max(int(DRAIN_SHARE * self._drain_s / execution_s), 1) if execution_s > 0 else ahead + 1
        return max(min(instances * min(1 + ahead, drained), self._most_unproved), instances)

    def _turnover_s(self, load: Load, now: float) -> float | None:
        """Return the time in which full pods answered as many requests as they hold, in seconds.

        Return None if it has not been measured yet.
        """
        full = self.bound * load.pods
        # After the bound was lowered, pods still hold more requests than it allows. They don't measure the new bound.
        is_full = FULL * full <= load.inflight <= max(1.25 * full, full + load.pods)
        if not load.waiting or not load.pods or not is_full:
            self._since = None
            return None
        if self._since is None:
            self._since, self._answered = now, 0
            return None
        self._answered += load.answered
        if self._answered < FULL * full or now - self._since < MIN_WINDOW_S:
            return None
        since, self._since = self._since, None
        return (now - since) * full / self._answered

    def _decide(self, turnover_s: float, now: float) -> None:
        bound, turnovers = self.bound, self._turnovers
        if self._direction == "settled" and now >= self._retry_at:
            # Measure everything again: the requests may have changed.
            self._turnovers, self._direction = {bound: turnover_s}, "up"
            turnovers = self._turnovers
        fits = turnover_s <= DRAIN_SHARE * self._drain_s
        least = self._facts.instances * (2 if fits else 1)
        if self._direction == "up":
            if fits and _gain(turnovers, bound // 2) >= MIN_GAIN:
                self.bound = min(2 * bound, MAX_BOUND)
                return
            self._direction = "down"
            self.bound = max(bound // 2, least)
        elif self._direction == "down":
            if (
                fits
                and _gain(turnovers, bound) >= MIN_GAIN
                and turnovers.get(2 * bound, 0.0) <= DRAIN_SHARE * self._drain_s
            ):
                self._settle(2 * bound, now)
            elif fits and (bound // 2 in turnovers or bound <= least):
                self._settle(bound, now)
            else:
                self.bound = max(bound // 2, least)

    def _settle(self, bound: int, now: float) -> None:
        self.bound, self._direction = bound, "settled"
        self._retry_at, self._retry_s = now + self._retry_s, min(2 * self._retry_s, MAX_RETRY_S)


def _gain(turnovers: dict[int, float], bound: int) -> float:
    """Return the factor by which throughput grows if the maximum concurrency is doubled from `bound`.

    If one of the turnovers is unknown, the result is 2, the maximum.
    """
    low_s, high_s = turnovers.get(bound), turnovers.get(2 * bound)
    return 2.0 if low_s is None or high_s is None else 2 * low_s / max(high_s, 1e-3)
