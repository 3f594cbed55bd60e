"""Figures of a step, from the arrivals, the latencies and the replicas of one run. Pure.

The floor is the share of requests above the capacity of the pods that were ready: no balancer can answer them in time.
"""

# | request                                  | counts as |
# | ---------------------------------------- | --------- |
# | answered within the objective            | in time   |
# | answered after the objective             | late      |
# | rejected, ended at its deadline, or failed | lost    |

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.profile import Profile, clairvoyant_pod_s, integral, outcome
from benchmarks.rows import quantile

Changes = Sequence[tuple[float, int]]
"""(seconds since the load began, number) at each change. The first is at or before the load's begin."""
_INTERVAL_S = 1.0


@dataclass(frozen=True)
class Samples:
    """Everything that one run recorded. Times are in seconds since the load began."""

    arrivals_s: tuple[float, ...]
    """Time of each arrival, in order."""
    latency_s: tuple[float | None, ...]
    """Latency of each request from its due time; None if it was lost."""
    failures: Mapping[str, int]
    """Number of lost requests by the reason."""
    replicas: Changes
    """Replicas that the planner ordered."""
    ready: Changes
    """Pods that were endpoints."""
    late_sending_s: float
    """Largest delay of a request behind its due time, which is the generator's fault."""
    batch_time_ratio: float | None = None
    """Time of all batches in Triton's statistics, divided by the time that the model slept for them."""
    reported: Mapping[str, int] | None = None
    """Requests and rejections that the balancers have reported, added up."""


@dataclass(frozen=True)
class StepFigures:
    """Figures of one run."""

    requests: int
    late_pct: float
    lost_pct: float
    floor_pct: float
    above_floor_points: float
    pod_seconds_ratio: float
    answered_p99_ms: float
    most_replicas: int
    late_sending_ms: float
    batch_time_ratio: float | None


def above_capacity(arrivals_s: Sequence[float], ready: Changes, *, pod_rps: float, until_s: float) -> float:
    """Return the number of arrivals above `pod_rps` per second and ready pod.

    Arrivals are compared with the capacity second by second, so capacity that one second leaves does not serve another.
    """
    ordered = sorted(arrivals_s)
    total = 0.0
    for number in range(math.ceil(until_s / _INTERVAL_S)):
        begin_s, end_s = number * _INTERVAL_S, min((number + 1) * _INTERVAL_S, until_s)
        arrived = bisect.bisect_left(ordered, end_s) - bisect.bisect_left(ordered, begin_s)
        total += max(arrived - pod_rps * integral(ready, begin_s=begin_s, end_s=end_s), 0.0)
    return total


def excess(
    samples: Samples, *, objective_s: float, pod_rps: float, until_s: float
) -> list[tuple[int, int, int, float]]:
    """Return (second, late, lost, arrivals above capacity) of each second that has one of them, by the time of arrival."""
    exceeding = []
    for second in range(math.ceil(until_s)):
        begin, end = (bisect.bisect_left(samples.arrivals_s, at_s) for at_s in (second, second + 1))
        latency_s = samples.latency_s[begin:end]
        lost = sum(latency is None for latency in latency_s)
        late = sum(latency is not None and latency > objective_s for latency in latency_s)
        ready = [(at_s - second, number) for at_s, number in samples.ready]
        above = above_capacity(
            [at_s - second for at_s in samples.arrivals_s[begin:end]], ready, pod_rps=pod_rps, until_s=1.0
        )
        if late or lost or above:
            exceeding.append((second, late, lost, round(above, 1)))
    return exceeding


def figures(
    samples: Samples, profile: Profile, *, objective_s: float, pod_rps: float, capacity_rps: float, start_s: float
) -> StepFigures:
    """Return the figures of a run.

    Args:
        samples: what the run recorded.
        profile: rates of the load.
        objective_s: the latency objective.
        pod_rps: requests per second of a pod with full batches, from which the floor follows.
        capacity_rps: requests per second of a pod within its objective, from which the clairvoyant schedule follows.
        start_s: time that a pod takes to become an endpoint.
    """
    request_outcome = outcome(samples.latency_s, slo_s=objective_s)
    count = max(request_outcome.requests, 1)
    floor_pct = (
        100 * above_capacity(samples.arrivals_s, samples.ready, pod_rps=pod_rps, until_s=profile.until_s) / count
    )
    pod_s = integral(samples.replicas, begin_s=0.0, end_s=profile.until_s)
    answered = [latency_s for latency_s in samples.latency_s if latency_s is not None]
    return StepFigures(
        requests=request_outcome.requests,
        late_pct=round(100 * request_outcome.late / count, 3),
        lost_pct=round(100 * request_outcome.failed / count, 3),
        floor_pct=round(floor_pct, 3),
        above_floor_points=round(100 * (request_outcome.late + request_outcome.failed) / count - floor_pct, 3),
        pod_seconds_ratio=round(pod_s / clairvoyant_pod_s(profile, capacity_rps=capacity_rps, start_s=start_s), 3),
        answered_p99_ms=round(1000 * (quantile(answered, 0.99) or math.inf), 1),
        most_replicas=most(samples.replicas),
        late_sending_ms=round(1000 * samples.late_sending_s, 1),
        batch_time_ratio=samples.batch_time_ratio,
    )


def most(changes: Changes) -> int:
    """Return the largest number, with the one at the load's begin."""
    return max((number for _, number in changes), default=0)


def batch_time_ratio(batches: Sequence[tuple[int, int, int]], t0_ms: float, a_ms: float) -> float | None:
    """Return the time of all batches divided by the time that the model slept for them; None without batches.

    `batches` are (rows, executions, microseconds). A ratio above 1 is the machine's delay, not the balancers'.
    """
    slept_us = sum(1000 * executions * (t0_ms + a_ms * rows) for rows, executions, _ in batches)
    return round(sum(us for _, _, us in batches) / slept_us, 3) if slept_us else None
