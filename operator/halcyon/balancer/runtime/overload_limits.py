"""Limits on the queue of one balancer that follow from the latency objective. Pure.

    per pod                              | requests
    computed at once                     | one batch in each instance
    answered within the objective        | objective / time of a batch, in whole batches
    answered within twice the objective  | the same of twice the objective
    sent to the pod                      | one batch less than can be answered in time, at least two batches

A balancer has its share of these numbers. What is sent to pods is not queued, so it is subtracted from the limits on the queue.

The time of a batch is taken from Triton's statistics, and replaced by the rate at which the pods answer while requests are queued. The
rate is right where the statistics are not: for models that return before the answer, and for pods that share a GPU or a database.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from halcyon.balancer.config import overload_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.api.documents.observation_report import Batches
    from halcyon.balancer.runtime.runtime_api import HaproxyStats
    from halcyon.balancer.runtime.service_rate import ServiceRate

MARGIN: Final = 0.95
"""Share of the objective that batches may take; the rest is for the network, and for batches that take longer than the mean."""
MAX_SHARE_AGE_S: Final = 3.0
_MIN_ANSWERS: Final = 10
NO_LIMITS: Final = dict.fromkeys(overload_rules.LIMITS, 0)


@dataclass(frozen=True)
class PodStatistics:
    """Triton's statistics of one pod."""

    succeeded: int | None = None
    """Counter of the requests with a successful response; None if unknown."""
    rows: int | None = None
    """Counter of the rows of these requests; None if unknown."""
    batches: Batches = ()


@dataclass(frozen=True)
class BatchTime:
    """Time of a batch: `fixed_s` + `row_s` x rows."""

    rows: int
    """Rows of the largest batch."""
    fixed_s: float
    row_s: float

    @property
    def largest_s(self) -> float:
        """Time of the largest batch, in seconds."""
        return self.fixed_s + self.row_s * self.rows


def batch_time(pods: Iterable[PodStatistics], max_batch: int) -> BatchTime | None:
    """Return the time of a batch from the pods' statistics; None without any.

    Args:
        pods: statistics of the pods.
        max_batch: rows of the largest batch; 0 for the largest batch seen.
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
    """Numbers of requests that one pod can hold."""

    in_time: int
    """Requests that are answered within the objective under a lasting overload, in whole batches."""
    in_objective: float
    """Requests that a pod answers in the time of the objective."""
    sent: int
    """Requests that the balancers send to the pod; the others are queued."""


def pod_capacity(objective_s: float, at_once: float, rate_rps: float, time: BatchTime | None) -> PodCapacity:
    """Return the numbers of requests that one pod can hold.

    Args:
        objective_s: the latency objective, in seconds.
        at_once: requests that a pod computes at once.
        rate_rps: requests that a pod answers per second with full batches.
        time: time of a batch, if known. With it, an objective of less than two batches allows smaller batches.
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
    sent = max(int(in_time - at_once), min(int(2 * at_once), in_time), 1)
    return PodCapacity(in_time, max(objective_s * rate_rps, in_time), sent)


class OverloadLimits:
    """Limits on the queue of one balancer."""

    def __init__(self) -> None:
        """Start without measurements."""
        self._answers: deque[tuple[float, int, dict[str, int], int]] = deque()
        self.capacity: PodCapacity | None = None
        """Numbers of requests that one pod can hold, from the last call of `update`; None if unknown."""

    def update(
        self,
        plan: BalancerPlan,
        reading: HaproxyStats,
        pods: Mapping[str, PodStatistics],
        rate: ServiceRate | None,
        *,
        servers: int,
        now: float,
        share: float | None = None,
        sent: int | None = None,
    ) -> dict[str, int]:
        """Return the values of the variables `overload_rules.LIMITS`. Call it once per second.

        Args:
            plan: the balancer's plan.
            reading: HAProxy's current statistics.
            pods: statistics of the pods, by name.
            rate: rate at which this balancer's requests are answered while some are queued; None if unknown.
            servers: number of servers that take requests now.
            now: monotonic time, in seconds.
            share: this balancer's share of the requests, from 0 to 1; None if unknown.
            sent: maximum number of requests that this balancer sends to all servers. Default: from the plan.
        """
        self.capacity = None
        if not plan.objective_ms or not servers:
            return NO_LIMITS
        answered = self._answered_share(reading, pods, now)
        if share is None:
            share = answered if answered is not None else 1 / plan.balancers
        time = batch_time(pods.values(), plan.max_batch)
        at_once = max(plan.max_batch, 1 if time is None else time.rows) * plan.instances
        per_request = _rows_per_request(pods.values())
        requests = max(at_once / per_request, 1.0)
        if rate is not None:
            rate_rps = rate.rate_rps / servers / max(share if answered is None else answered, 0.01)
        elif time is not None and time.largest_s > 0:
            rate_rps = requests / time.largest_s
        else:
            return NO_LIMITS
        pod = self.capacity = pod_capacity(plan.objective_ms / 1000, requests, rate_rps, time)
        if sent is None:
            sent = servers * plan.max_connections
        in_time = max(round(share * servers * pod.in_time) - sent, 1)
        late = max(round(share * servers * pod.in_objective) - sent, in_time)
        # A burst may reach a balancer whose share was small so far.
        hopeless = max(round(max(share, 1 / plan.balancers) * 2 * servers * pod.in_objective) - sent, late + 1)
        values = (in_time, late, hopeless, max(round(share * servers * pod.in_time), 1))
        return dict(zip(overload_rules.LIMITS, values, strict=True))

    def _answered_share(self, reading: HaproxyStats, pods: Mapping[str, PodStatistics], now: float) -> float | None:
        """Return this balancer's share of the answers in the last seconds; None if there were few."""
        counts = {name: pod.succeeded for name, pod in pods.items() if pod.succeeded is not None}
        self._answers.append((now, reading.process, counts, reading.answered))
        while now - self._answers[0][0] > MAX_SHARE_AGE_S or self._answers[0][1] != reading.process:
            self._answers.popleft()
        _, _, before, answered = self._answers[0]
        of_all = sum(max(count - before[name], 0) for name, count in counts.items() if name in before)
        if of_all < _MIN_ANSWERS:
            return None
        return min(max((reading.answered - answered) / of_all, 0.0), 1.0)


def _rows_per_request(pods: Iterable[PodStatistics]) -> float:
    known = [(pod.rows, pod.succeeded) for pod in pods if pod.rows is not None and pod.succeeded is not None]
    rows, requests = sum(pair[0] for pair in known), sum(pair[1] for pair in known)
    return max(rows / requests, 1.0) if requests else 1.0
