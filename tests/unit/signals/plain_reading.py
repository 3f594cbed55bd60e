"""A simple computation of the reading from an observation, which evaluates every window completely.

The fast implementation must give the same result. This one is slow, but short enough to be verified by reading. The
rules are documented in `halcyon.signals.planner_reading`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from halcyon.scaling.observations import (
    MAX_AGE_S,
    BalancerPoint,
    Observation,
    PodObservation,
    fresh,
    mean,
)
from halcyon.scaling.planner.reading import PodReading, Reading
from halcyon.signals.clock import WallClock
from halcyon.signals.merged_counters import MergedBatches
from halcyon.signals.planner_reading import (
    GPU_WINDOW_S,
    HELD_WINDOW_S,
    MAX_REPORT_DELAY_S,
    ReadingResult,
    SignalMemory,
)
from halcyon.signals.rows_per_request import with_ratios

_NAMED = 3


def plain_reading(
    observation: Observation,
    *,
    replicas: int,
    pods: Sequence[PodReading],
    epoch: WallClock,
    memory: SignalMemory,
    balancers: AbstractSet[str] | None = None,
    revision: str = "",
    revision_pods: AbstractSet[str] | None = None,
) -> ReadingResult:
    """Return the planner's reading of one observation.

    Args:
        observation: the observation; times are of the monotonic clock.
        replicas: the replicas in force (spec.replicas).
        pods: the model pods in Kubernetes; times are seconds since the epoch.
        epoch: converts monotonic times to seconds since the epoch.
        memory: memory after the previous reading; `SignalMemory()` at first.
        balancers: names of the balancer pods that are ready in Kubernetes. None if unknown: then the pod of every
        silent
            agent counts as existing.
        revision: the revision that is or was rolled out.
        revision_pods: names of the revision's pods, whose batches count; None: all pods count.
    """
    now = observation.at
    seen = {pod.name: pod for pod in observation.pods}
    judged = tuple(_judged(pod, seen.get(str(pod.name))) for pod in pods)
    ready = {str(pod.name): seen.get(str(pod.name)) for pod in judged if pod.phase == "ready"}
    reporting = {b.agent: b.points for b in observation.balancers if _is_reporting(b.points, now)}
    unknown: list[str] = []
    silence = _silence(observation, reporting, balancers)
    if silence is not None:
        unknown.append(silence)
    else:
        at = max(_counted_at(list(reporting.values())), memory.counted_at)
        counts = {agent: _count(points, at) for agent, points in reporting.items()}
        refused = memory.rejected.with_values({agent: points[-1].rejected for agent, points in reporting.items()})
        memory = replace(memory, arrived=memory.arrived.with_values(counts), counted_at=at, rejected=refused)
    pending = _filled([_pending(pod, now) for pod in ready.values()])
    if pending is None:
        unknown.append(f"most ready pods don't report their queue: {_names(ready)}")
    if revision != memory.revision:
        memory = replace(memory, batches=MergedBatches(), revision=revision)
    exist = {str(pod.name) for pod in pods} | seen.keys()
    memory = _with_pods(memory, observation, exist=exist, counted=exist if revision_pods is None else revision_pods)
    queued = sum(points[-1].queued for points in reporting.values())
    # If signals are unknown, compute since when.
    newest = max((b.points[-1].at for b in observation.balancers if b.points), default=None)
    of = newest if silence else memory.counted_at
    reading = Reading(
        at=None if of is None else epoch.at(of),
        replicas=replicas,
        arrived=None if silence else memory.arrived.total,
        waiting=None if silence or pending is None else queued + pending,
        inflight=None if silence else queued + sum(points[-1].inflight for points in reporting.values()),
        gpu=_filled([_gpu(pod, now) for pod in ready.values()]) if ready else None,
        batches={rows: (count, us / 1e6) for rows, (count, us) in memory.batches.table.items()} or None,
        revision=revision,
        rows_per_request=memory.rows_per_request,
        pods=judged,
        rejected=None if silence else memory.rejected.total,
        queued=None if silence else queued,
        concurrency=None if silence else sum(_held(points, now) for points in reporting.values()),
    )
    return ReadingResult(reading, memory, tuple(unknown))


def _held(points: Sequence[BalancerPoint], now: float) -> float:
    """Return the mean number of requests that a balancer held, from the last sample before the window on."""
    later = [point for point in points if point.at > now - HELD_WINDOW_S]
    counted = [*[point for point in points if point.at <= now - HELD_WINDOW_S][-1:], *later]
    return sum(point.queued + point.inflight for point in counted) / len(counted)


def _is_reporting(points: Sequence[BalancerPoint], now: float) -> bool:
    """Return True if the balancer's counter is known: it has reported recently, with no gap before."""
    if not points or now - points[-1].at > MAX_AGE_S:
        return False
    return len(points) == 1 or points[-1].at - points[-1].counted_at <= MAX_AGE_S


def _counted_at(all_points: Sequence[Sequence[BalancerPoint]]) -> float:
    """Return the time up to which every balancer's counter is known.

    A balancer that counts nothing sends no report, so its silence delays nothing.
    """
    busy = [
        points[-1].counted_at for points in all_points if len(points) > 1 and points[-1].requests > points[-2].requests
    ]
    return min(busy) if busy else max(_idle_until(points) for points in all_points)


def _idle_until(points: Sequence[BalancerPoint]) -> float:
    """Return the time until which the agent is idle.

    Requests since then may be in its last report, but are not confirmed.
    """
    return points[-1].at if len(points) == 1 else max(points[-1].counted_at, points[-1].at - MAX_REPORT_DELAY_S)


def _count(points: Sequence[BalancerPoint], at: float) -> float:
    """Return the counter at a time: interpolated between two reports, constant after the last one."""
    for index in range(len(points) - 1, 0, -1):
        counted_at, count = points[index].counted_at, points[index].requests
        if counted_at <= at:
            if index + 1 == len(points):
                return count
            share = (at - counted_at) / (points[index + 1].counted_at - counted_at)
            return count + (points[index + 1].requests - count) * min(share, 1.0)
    return points[min(1, len(points) - 1)].requests


def _judged(pod: PodReading, seen: PodObservation | None) -> PodReading:
    if pod.phase == "ready" and seen is not None and seen.state == "maintenance":
        return replace(pod, phase="broken")
    return pod


def _silence(
    observation: Observation, reporting: Mapping[str, Sequence[BalancerPoint]], balancers: AbstractSet[str] | None
) -> str | None:
    """Return which expected balancers are silent; None if all report."""
    silent = dict(observation.silent)
    expected = {b.agent for b in observation.balancers} | silent.keys() if balancers is None else balancers
    missing = sorted(expected - reporting.keys())
    if not missing:
        return None if reporting else "no balancer agent has reported yet"
    agents = {b.agent: b for b in observation.balancers}
    silences = []
    for name in missing[:_NAMED]:
        if name in silent:
            silences.append(f"{name} reported last {silent[name]:.0f} s ago")
        elif name in agents:
            is_back = agents[name].points and observation.at - agents[name].points[-1].at <= MAX_AGE_S
            silences.append(
                f"{name} has just started to report again" if is_back else f"HAProxy of {name} does not respond"
            )
        else:
            silences.append(f"{name} has not reported yet")
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    return f"the load of some balancers is unknown ({', '.join(silences)}{more}); the limit is {MAX_AGE_S:.0f} s"


def _pending(pod: PodObservation | None, now: float) -> float | None:
    """Return the number of requests that wait in a pod."""
    point = None if pod is None else fresh(pod.points, now, lambda p: p.pending)
    return None if point is None else point.pending


def _gpu(pod: PodObservation | None, now: float) -> float | None:
    if pod is None or fresh(pod.points, now, lambda p: p.gpu) is None:
        return None
    first = len(pod.points) - 1
    while first > 0 and pod.points[first].at > now - GPU_WINDOW_S:
        first -= 1
    return mean(pod.points[first:], now, GPU_WINDOW_S, lambda p: p.gpu)


def _filled(values: Sequence[float | None]) -> float | None:
    """Return the sum, with unknown values replaced by the mean of the others; None if more than half are unknown."""
    known = [value for value in values if value is not None]
    if not values:
        return 0.0
    if 2 * len(known) < len(values):
        return None
    return sum(known) * len(values) / len(known)


def _with_pods(
    memory: SignalMemory, observation: Observation, *, exist: AbstractSet[str], counted: AbstractSet[str]
) -> SignalMemory:
    """Return the memory with the counters of pods. Every pod of the revision counts, including draining ones."""
    tables = {pod.name: pod.batches for pod in observation.pods if pod.batches is not None and pod.name in counted}
    memory = replace(memory, batches=memory.batches.with_tables(tables, exist=exist))
    answered = {
        pod.name: counters for pod in observation.pods if (counters := _answered(pod, observation.at)) is not None
    }
    grown = [
        (requests - memory.answered[name][0], rows - memory.answered[name][1])
        for name, (requests, rows) in answered.items()
        if name in memory.answered
    ]
    memory = replace(memory, answered=answered)
    # Requests without rows were not computed (a cache answered), and rows without requests are a counter error.
    ratios = sorted((rows / requests, requests) for requests, rows in grown if requests > 0 and rows > 0)
    if not ratios:
        return memory
    shape, odd, mean_rows = with_ratios(memory.shape, memory.implausible, memory.rows_per_request, ratios)
    return replace(memory, shape=shape, implausible=odd, rows_per_request=mean_rows)


def _answered(pod: PodObservation, now: float) -> tuple[float, float] | None:
    """Return (requests, rows) at one time."""
    point = fresh(pod.points, now, lambda p: p.succeeded if p.rows is not None else None)
    return None if point is None or point.succeeded is None or point.rows is None else (point.succeeded, point.rows)


def _names(pods: Mapping[str, object]) -> str:
    names = sorted(pods)
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
