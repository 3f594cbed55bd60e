"""Limits on the queue of one balancer, derived from the latency objective. Pure.

The number of requests sent to a pod is limited only while an overload lasts or late requests wait. At other times a
limit would leave pods idle, because the balancers' shares follow the demand with a delay of a second.

Each balancer gets its share of these limits or, if it is larger, the part that the other balancers don't use, because a
burst may reach only one balancer. While an overload lasts, each balancer gets only its share.

The time of a batch is taken from Triton's statistics. The statistics are wrong for models that return before the
answer, and for pods that share a GPU or a database. If the rate at which pods answer while requests are queued
contradicts the statistics, the rate is used instead.
"""

# per pod                              | requests
# computed at once                     | one batch in each instance
# answered within the objective        | objective / time of a batch, in whole batches
# answered within twice the objective  | the same for twice the objective
# in the pod while late requests go    | those computed at once, and as many that wait: the pod is not idle, and new requests wait for few
# sent to the pod                      | what can be answered in time, at most three batches: with two, Triton computes smaller ones

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from halcyon.balancer.config import overload_rules
from halcyon.balancer.runtime.shares import Elsewhere
from halcyon.triton.client import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.api.documents.observation_report import Batches
    from halcyon.balancer.runtime.haproxy_stats import HaproxyStats
    from halcyon.balancer.runtime.service_rate import ServiceRate
    from halcyon.triton.pod_sampler import ScrapedPod

MARGIN: Final = 0.95
"""Share of the latency objective that batches may take. The rest is for the network, and for batches that take longer
than the mean."""
AGREES: Final = 0.7
"""Minimum ratio of the measured rate to the rate computed from Triton's statistics at which the two count as equal; the
maximum ratio is its inverse. The minimum is below 1 because the limits themselves can keep batches small, the maximum
above 1 because this balancer's share of the responses is uncertain over a few seconds."""
MAX_AGE_S: Final = 3.0
"""Time over which the rows per request and this balancer's share of the responses are measured, in seconds."""
REJECTED_OVER_S: Final = 4.0
"""Time over which the share of rejected requests is averaged, in seconds."""
LASTS_FROM: Final = 0.12
"""Minimum share of rejected requests at which an overload counts as lasting, so that fewer requests are sent to pods.
Bursts stay below it: 5 % were rejected in a measurement at 70 % of the capacity, with a coefficient of variation of
3."""
ENDS_BELOW: Final = 0.03
LATE_WORK: Final = 4.0
"""Maximum number of late requests that may wait in all balancers. The unit is the number of requests that the pods
answer within the latency objective."""
LATE_SPREAD: Final = 5 / 32
"""Number of moments (see `overload_rules`) above which a queue counts as an overload instead of a burst. The unit is
the number of requests that the pods answer within the latency objective."""
_MIN_ANSWERS: Final = 10
NO_LIMITS: Final = dict.fromkeys((*overload_rules.LIMITS, *overload_rules.LATE_LIMITS), 0)


@dataclass(frozen=True)
class PodStatistics:
    """Counters from Triton for one pod, from which a balancer computes the limits on its queue."""

    succeeded: int | None = None
    """Counter of successful requests; None if unknown."""
    rows: int | None = None
    """Total rows in successful requests (counter); None if unknown."""
    batches: Batches = ()


def pod_statistics(sample: ScrapedPod) -> PodStatistics:
    """Return the counters in a sample that are needed for the limits on a balancer's queue."""
    metrics = sample.metrics or Metrics()
    return PodStatistics(metrics.succeeded, metrics.rows, sample.batches.sizes if sample.batches else ())


@dataclass(frozen=True)
class BatchTime:
    """Execution time of a batch on one model instance: `fixed_s` + `row_s` x number of rows."""

    rows: int
    """Number of rows in the largest batch."""
    fixed_s: float
    row_s: float

    @property
    def largest_s(self) -> float:
        """Time of the largest batch, in seconds."""
        return self.fixed_s + self.row_s * self.rows


def batch_time(pods: Iterable[PodStatistics], max_batch: int) -> BatchTime | None:
    """Return the time of a batch from the pods' statistics; None if there are no statistics.

    Args:
        pods: statistics of the pods.
        max_batch: number of rows in the largest batch; 0 to take it from the statistics.
    """
    counts: dict[int, tuple[int, int]] = {}
    for pod in pods:
        for rows, executions, total_us in pod.batches:
            count, spent_us = counts.get(rows, (0, 0))
            counts[rows] = (count + executions, spent_us + total_us)
    if not counts:
        return None
    least, most = min(counts), max(counts)
    least_s, most_s = (counts[rows][1] / counts[rows][0] / 1e6 for rows in (least, most))
    row_s = max(most_s - least_s, 0.0) / (most - least) if most > least else 0.0
    return BatchTime(max(max_batch, most), max(most_s - row_s * most, 0.0), row_s)


@dataclass(frozen=True)
class PodCapacity:
    """Maximum number of requests with which one pod meets the latency objective."""

    in_time: int
    """Number of requests that the pod answers within the latency objective during a lasting overload, counting only
    whole batches."""
    in_objective: float
    """Number of requests that the pod answers in a period as long as the latency objective."""
    sent: int
    """Maximum number of requests that the balancers send to the pod; further requests are queued."""
    busy: float = 1.0
    """Number of requests that keep the pod from being idle: those that it computes at once, and as many waiting
    ones."""
    rate_rps: float = 1.0
    """Requests that the pod answers per second with full batches."""

    def bound(self, servers: int, balancers: int) -> int:
        """Return the maximum number of requests that all balancers together send to each of `servers` pods.

        The result leaves time for one waiting request in each balancer.
        """
        return max(min(self.sent, (self.in_time * servers - balancers) // servers), 1)


def pod_capacity(objective_s: float, at_once: float, rate_rps: float, time: BatchTime | None) -> PodCapacity:
    """Return the numbers of requests with which one pod meets the latency objective.

    Args:
        objective_s: the latency objective, in seconds.
        at_once: requests that a pod computes at once.
        rate_rps: requests that a pod answers per second with full batches.
        time: time of a batch; None if unknown. If it is known, smaller batches are assumed for an objective of less
            than two batches.
    """
    batches = math.floor(MARGIN * objective_s * rate_rps / at_once)
    in_time = int(batches * at_once)
    if batches < 2:
        # Two equal batches, one computed and one waiting, that together take no longer than the objective.
        smaller = 1.0
        if time is not None and time.largest_s > 0:
            scale = at_once / time.rows
            left_s = MARGIN * objective_s - 2 * time.fixed_s
            smaller = 2 * at_once if time.row_s <= 0 and left_s >= 0 else 0.0
            if time.row_s > 0:
                smaller = scale * left_s / time.row_s
        in_time = max(in_time if time is None else 0, math.floor(min(smaller, 2 * at_once)), 1)
    in_objective, sent = max(objective_s * rate_rps, in_time), max(min(int(3 * at_once), in_time), 1)
    return PodCapacity(in_time, in_objective, sent, 2 * at_once, rate_rps)


class OverloadLimits:
    """Limits on the queue of one balancer, derived from the latency objective."""

    def __init__(self) -> None:
        """Create the limits without measurements."""
        self._answers: deque[tuple[float, HaproxyStats, dict[str, PodStatistics]]] = deque()
        self._rows_per_request = 1.0
        self._rejected: tuple[float, HaproxyStats] | None = None
        self._rejected_share = 0.0
        self.lasts = False
        """Whether an overload lasts: so many requests are rejected that the load must have exceeded the capacity for
        longer than a burst."""
        self.capacity: PodCapacity | None = None
        """Capacity of one pod, from the last call of `update`; None if unknown."""
        self.rejected_load = 0.0
        """Number of requests that would be in progress if they had not been rejected: the rate of rejections times the
        latency objective."""

    def update(
        self,
        plan: BalancerPlan,
        reading: HaproxyStats,
        pods: Mapping[str, PodStatistics],
        rate: ServiceRate | None,
        *,
        servers: int,
        now: float,
        share: float,
        instances: int | None = None,
    ) -> None:
        """Update the measurements. Call it once per second.

        Args:
            plan: the balancer's plan.
            reading: HAProxy's current statistics.
            pods: statistics of the pods, by name.
            rate: rate at which this balancer's requests are answered while some are queued; None if unknown.
            servers: number of servers that take requests now.
            now: monotonic time, in seconds.
            share: this balancer's share of the demand, from 0 to 1.
            instances: number of instances of the model in a pod. Default: the number in the plan.
        """
        self.capacity = None
        if not plan.objective_ms or not servers:
            self.rejected_load, self._rejected_share, self.lasts = 0.0, 0.0, False
            return
        objective_s = plan.objective_ms / 1000
        self._count_rejected(reading, objective_s, now)
        answered = self._add_answers(reading, pods, now)
        time = batch_time(pods.values(), plan.max_batch)
        at_once = max(plan.max_batch, 1 if time is None else time.rows) * (instances or plan.instances)
        requests = max(at_once / self._rows_per_request, 1.0)
        by_batches = requests / time.largest_s if time is not None and time.largest_s > 0 else None
        measured = (
            None if rate is None else rate.rate_rps / servers / max(share if answered is None else answered, 0.01)
        )
        if by_batches is None or (measured is not None and not AGREES <= measured / by_batches <= 1 / AGREES):
            by_batches = measured
        if by_batches is None:
            return
        self.capacity = pod_capacity(objective_s, requests, by_batches, time)

    def values(
        self,
        servers: int,
        share: float,
        least_share: float,
        *,
        sent: int,
        fills: bool = False,
        elsewhere: Elsewhere | None = None,
    ) -> dict[str, int]:
        """Return the values of the HAProxy variables in `LIMITS` and `LATE_LIMITS` of `overload_rules`.

        Args:
            servers: number of servers that take requests now.
            share: this balancer's share of the demand, from 0 to 1.
            least_share: minimum share of a burst that may wait in this balancer, even if it has had less demand so far.
            sent: maximum number of requests that this balancer sends to all servers, for `fills`.
            fills: whether late requests may use all of `sent`, because servers compute that many requests at once.
            elsewhere: requests in the other balancers; None if unknown, or while an overload lasts. If it is known,
                this balancer may use the capacity that the others leave.
        """
        pod = self.capacity
        if pod is None:
            return NO_LIMITS

        def quota(most: float, part: float, others: int) -> int:
            requests = part * servers * most
            return round(requests if elsewhere is None else max(requests, servers * most - others))

        remote = Elsewhere() if elsewhere is None else elsewhere
        most_share = max(share, least_share)
        in_time = max(quota(pod.in_time, share, remote.present), 1)
        late = max(quota(MARGIN * pod.in_objective, share, remote.present), in_time)
        hopeless = max(quota(2 * pod.in_objective, most_share, remote.present), late + 1)
        # While requests that can be in time wait in another balancer, late ones don't take their places.
        room = sent if fills else quota(pod.busy, 0.0 if remote.waiting else share, remote.present)
        values = (
            *(in_time, late, hopeless, max(round(share * servers * pod.in_time), 1)),
            max(quota(LATE_WORK * pod.in_objective, most_share, remote.late), 1),
            max(room, 0 if remote.waiting else 1),
            max(round(1000 * most_share * servers * pod.rate_rps), 1),
            # At the first two moments, late requests are always taken.
            max(round(100 * LATE_SPREAD * servers * pod.in_objective), 200),
        )
        return dict(zip(NO_LIMITS, values, strict=True))

    def _count_rejected(self, reading: HaproxyStats, objective_s: float, now: float) -> None:
        before, self._rejected = self._rejected, (now, reading)
        self.rejected_load = 0.0
        if before is not None and before[1].identity == reading.identity and now > before[0]:
            rejected, lasted_s = max(reading.rejected - before[1].rejected, 0), now - before[0]
            self.rejected_load = rejected / lasted_s * objective_s
            share = min(rejected / max(reading.requests - before[1].requests, 1), 1.0)
            self._rejected_share += (share - self._rejected_share) * (1 - math.exp(-lasted_s / REJECTED_OVER_S))
        limit = ENDS_BELOW if self.lasts else LASTS_FROM
        self.lasts = self._rejected_share >= limit

    def _add_answers(self, reading: HaproxyStats, pods: Mapping[str, PodStatistics], now: float) -> float | None:
        """Update the rows per request, and return this balancer's share of the pods' responses.

        The result is None if there were too few responses.
        """
        previous = self._answers[-1][2] if self._answers else {}
        if any(
            pod.succeeded is not None and previous.get(name, PodStatistics()).succeeded is None
            for name, pod in pods.items()
        ):
            # `answered` counts the responses of a new pod from its first one, but the pod's counter is known only from now on.
            self._answers.clear()
        self._answers.append((now, reading, dict(pods)))
        while now - self._answers[0][0] > MAX_AGE_S or self._answers[0][1].identity != reading.identity:
            self._answers.popleft()
        _, first, before = self._answers[0]
        requests = rows = 0
        for name, pod in pods.items():
            old = before.get(name, PodStatistics())
            if pod.succeeded is not None and old.succeeded is not None and pod.succeeded >= old.succeeded:
                requests += pod.succeeded - old.succeeded
                rows += max((pod.rows or 0) - (old.rows or 0), 0)
        if requests < _MIN_ANSWERS:
            return None
        self._rows_per_request = max(rows / requests, 1.0)
        return min(max((reading.answered - first.answered) / requests, 0.0), 1.0)
