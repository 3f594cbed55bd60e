"""What the agents and Kubernetes say of a model -> the planner's `Reading`. Pure.

| value              | known where                                                                                     |
| ------------------ | ----------------------------------------------------------------------------------------------- |
| arrived, inflight  | every balancer that exists has spoken within `FRESH_S`                                           |
| waiting            | the same, and at least half of the ready pods tell what waits in them; the others count as these |
| gpu                | at least half of the ready pods tell theirs; the others count as these                           |
| batches, rows      | from whichever pods tell theirs, once any has                                                    |

A balancer that is silent while its pod exists may be where the load is: nothing is known then, rather than the part of it that
is heard. The first record after a silence is not enough: the growth in it is counted when the next one has confirmed it.

The hub counts growth one record late, so each balancer's count is that of its record before, and `arrived` is what all had
counted at one time: that of the last count of the slowest balancer that is busy. Otherwise a silence of 30 s would read as 30
seconds' requests in one.

A pod whose backend is dead (state maintenance) is broken, and is left out. Not here: whether the values are believed
(`scaling.planner.trust`), what counts as heard (`hub`), phases of pods by Kubernetes (`control`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from halcyon.scaling.observations import (
    FRESH_S,
    BalancerPoint,
    Observation,
    PodObservation,
    fresh,
    mean,
    rate,
)
from halcyon.scaling.planner.reading import PodReading, Reading
from halcyon.signals.epoch import Epoch
from halcyon.signals.merged import MergedBatches, MergedCounter

OBSERVED_S = FRESH_S
"""How much of the past an observation has to hold (`Hub.observe`): less is wrong, more only costs time."""
PACE_S = 1.5
"""An agent that counts something says so within this time."""
GPU_WINDOW_S = 5.0
"""GPU utilisation is a share of a moment; a mean over this long is one of several."""
QUEUE_WINDOW_S = 5.0
"""The same for what waits in a Triton that has no gauge for it."""
KEPT_REQUESTS = 1000.0
"""Requests that the mean rows of one are taken over."""
_CALM = 0.05
"""The mean rows of a request that are told change when they are off by more: they scale the capacity, and noise in it would
be noise in the count."""
_ODD = 3.0
"""A ratio of rows to requests so many times higher or lower than the mean is a counter's fault,"""
_BELIEVED = 5
"""unless this many readings in a row say so."""
_NAMED = 3


@dataclass(frozen=True, slots=True)
class SignalMemory:
    """What is remembered of a model from one reading to the next. Of one process: it begins anew with each leader.

    Then what the planner remembers of counters is of another series: `scaling.planner.stored.resumed`.
    """

    arrived: MergedCounter = field(default_factory=MergedCounter)
    counted_at: float = -math.inf
    """The time that `arrived` is of, monotonic."""
    answered: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """(requests, rows) by pod, as read last."""
    shape: tuple[float, float] = (0.0, 0.0)
    """(requests, rows), older ones faded."""
    odd: int = 0
    """Readings in a row whose rows per request were odd."""
    rows_per_request: float = 1.0
    """As told last."""
    batches: MergedBatches = field(default_factory=MergedBatches)


@dataclass(frozen=True, slots=True)
class Gathered:
    """A reading, and what belongs to it."""

    reading: Reading
    memory: SignalMemory
    """For the next reading."""
    unknown: tuple[str, ...] = ()
    """Why values are not known, a sentence each; empty where all are."""


def reading(
    observation: Observation,
    *,
    replicas: int,
    pods: Sequence[PodReading],
    epoch: Epoch,
    memory: SignalMemory,
    balancers: AbstractSet[str] | None = None,
) -> Gathered:
    """The planner's reading of one observation.

    Args:
        observation: times are of the monotonic clock.
        replicas: the count in force (spec.replicas).
        pods: the server pods as Kubernetes sees them; times are seconds since the epoch.
        epoch: makes the one of the other.
        memory: of the reading before; `SignalMemory()` at first.
        balancers: names of the balancer pods that Kubernetes holds ready. None where that isn't known: then every agent
            that has fallen silent counts as one whose pod exists.
    """
    now = observation.at
    seen = {pod.name: pod for pod in observation.pods}
    judged = tuple(_judged(pod, seen.get(str(pod.name))) for pod in pods)
    ready = {str(pod.name): seen.get(str(pod.name)) for pod in judged if pod.phase == "ready"}
    heard = {b.agent: b.points for b in observation.balancers if _is_heard(b.points, now)}
    unknown: list[str] = []
    silence = _silence(observation, heard, balancers)
    if silence is not None:
        unknown.append(silence)
    else:
        at = max(_counted_at(list(heard.values())), memory.counted_at)
        counts = {agent: _count(points, at) for agent, points in heard.items()}
        memory = replace(memory, arrived=memory.arrived.with_values(counts), counted_at=at)
    pending = _filled([_pending(pod, now) for pod in ready.values()])
    if pending is None:
        unknown.append(f"most ready pods do not tell what waits in them: {_names(ready)}")
    memory = _with_pods(memory, observation, exist={str(pod.name) for pod in pods} | seen.keys())
    queued = sum(points[-1].queued for points in heard.values())
    # Where nothing is known, how long it hasn't been.
    newest = max((b.points[-1].at for b in observation.balancers if b.points), default=None)
    of = newest if silence else memory.counted_at
    made = Reading(
        at=None if of is None else epoch.at(of),
        replicas=replicas,
        arrived=None if silence else memory.arrived.total,
        waiting=None if silence or pending is None else queued + pending,
        inflight=None if silence else queued + sum(points[-1].inflight for points in heard.values()),
        gpu=_filled([_gpu(pod, now) for pod in ready.values()]) if ready else None,
        batches={rows: (count, us / 1e6) for rows, (count, us) in memory.batches.table.items()} or None,
        rows_per_request=memory.rows_per_request,
        pods=judged,
    )
    return Gathered(made, memory, tuple(unknown))


def _is_heard(points: Sequence[BalancerPoint], now: float) -> bool:
    """Whether its count is known: it has spoken lately, and no silence lies before that."""
    if not points or now - points[-1].at > FRESH_S:
        return False
    return len(points) == 1 or points[-1].at - points[-2].at <= FRESH_S


def _counted_at(all_points: Sequence[Sequence[BalancerPoint]]) -> float:
    """The time up to which every balancer's count is known.

    One that counts nothing sends nothing, so its silence says as much as a record: it holds nobody back.
    """
    busy = [points[-2].at for points in all_points if len(points) > 1 and points[-1].requests > points[-2].requests]
    return min(busy) if busy else max(_idle_until(points) for points in all_points)


def _idle_until(points: Sequence[BalancerPoint]) -> float:
    """What it counted since then may be in its last record, and isn't confirmed."""
    return points[-1].at if len(points) == 1 else max(points[-2].at, points[-1].at - PACE_S)


def _count(points: Sequence[BalancerPoint], at: float) -> float:
    """What it had counted at that time: between two records in proportion, after the last one as then."""
    for index in range(len(points) - 1, 0, -1):
        # The count in a record is that of the record before: growth is confirmed by the next.
        counted_at, count = points[index - 1].at, points[index].requests
        if counted_at <= at:
            if index + 1 == len(points):
                return count
            share = (at - counted_at) / (points[index].at - counted_at)
            return count + (points[index + 1].requests - count) * min(share, 1.0)
    return points[min(1, len(points) - 1)].requests


def _judged(pod: PodReading, seen: PodObservation | None) -> PodReading:
    if pod.phase == "ready" and seen is not None and seen.state == "maintenance":
        return replace(pod, phase="broken")
    return pod


def _silence(
    observation: Observation, heard: Mapping[str, Sequence[BalancerPoint]], balancers: AbstractSet[str] | None
) -> str | None:
    """Which balancers are not heard that should be; None where all are."""
    silent = dict(observation.silent)
    expected = {b.agent for b in observation.balancers} | silent.keys() if balancers is None else balancers
    missing = sorted(expected - heard.keys())
    if not missing:
        return None if heard else "no balancer's agent has spoken yet"
    agents = {b.agent: b for b in observation.balancers}
    said = []
    for name in missing[:_NAMED]:
        if name in silent:
            said.append(f"{name} was last heard {silent[name]:.0f} s ago")
        elif name in agents:
            is_back = agents[name].points and observation.at - agents[name].points[-1].at <= FRESH_S
            said.append(f"{name} is back only now" if is_back else f"HAProxy of {name} does not answer")
        else:
            said.append(f"{name} has not spoken yet")
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    return f"the load of some balancers is not known ({', '.join(said)}{more}); the limit is {FRESH_S:.0f} s"


def _pending(pod: PodObservation | None, now: float) -> float | None:
    """Requests that wait in a pod; from the time that they wait where Triton has no gauge of it (Little's law)."""
    if pod is None:
        return None
    point = fresh(pod.points, now, lambda p: p.pending)
    if point is not None:
        return point.pending
    if fresh(pod.points, now, lambda p: p.queue_us) is None:
        return None
    waited_us = rate(pod.points, now, QUEUE_WINDOW_S, lambda p: p.queue_us)
    return None if waited_us is None else waited_us / 1e6


def _gpu(pod: PodObservation | None, now: float) -> float | None:
    if pod is None or fresh(pod.points, now, lambda p: p.gpu) is None:
        return None
    first = len(pod.points) - 1
    while first > 0 and pod.points[first].at > now - GPU_WINDOW_S:
        first -= 1
    return mean(pod.points[first:], now, GPU_WINDOW_S, lambda p: p.gpu)


def _filled(values: Sequence[float | None]) -> float | None:
    """The sum, those that are not known as the mean of the others; None where more than half are not known."""
    known = [value for value in values if value is not None]
    if not values:
        return 0.0
    if 2 * len(known) < len(values):
        return None
    return sum(known) * len(values) / len(known)


def _with_pods(memory: SignalMemory, observation: Observation, *, exist: AbstractSet[str]) -> SignalMemory:
    """With what pods have counted; every pod that is read counts, also one that is draining."""
    tables = {pod.name: pod.batches for pod in observation.pods if pod.batches is not None}
    memory = replace(memory, batches=memory.batches.with_tables(tables, exist=exist))
    answered = {pod.name: told for pod in observation.pods if (told := _answered(pod, observation.at)) is not None}
    grown = [
        (requests - memory.answered[name][0], rows - memory.answered[name][1])
        for name, (requests, rows) in answered.items()
        if name in memory.answered
    ]
    memory = replace(memory, answered=answered)
    # Requests without rows are none that were computed (a cache answered), and rows without requests are a counter's fault.
    ratios = sorted((rows / requests, requests) for requests, rows in grown if requests > 0 and rows > 0)
    if not ratios:
        return memory
    more = sum(weight for _, weight in ratios)
    ratio = _middle(ratios, more)
    requests, rows = memory.shape
    if requests > 0 and not 1 / _ODD <= ratio * requests / rows <= _ODD:
        if memory.odd + 1 < _BELIEVED:
            return replace(memory, odd=memory.odd + 1)
        requests = rows = 0.0
    keep = math.exp(-more / KEPT_REQUESTS)
    shape = (keep * requests + more, keep * rows + more * ratio)
    return replace(memory, shape=shape, odd=0, rows_per_request=_calm(memory.rows_per_request, *shape))


def _answered(pod: PodObservation, now: float) -> tuple[float, float] | None:
    """(requests, rows) of one moment."""
    point = fresh(pod.points, now, lambda p: p.succeeded if p.rows is not None else None)
    return None if point is None or point.succeeded is None or point.rows is None else (point.succeeded, point.rows)


def _middle(weighted: Sequence[tuple[float, float]], total: float) -> float:
    """The weighted median of (value, weight), ascending: one pod that tells nonsense does not move it."""
    passed = 0.0
    for value, weight in weighted:
        passed += weight
        if passed >= total / 2:
            return value
    return weighted[-1][0]


def _calm(told: float, requests: float, rows: float) -> float:
    if requests <= 0 or rows <= 0 or abs(rows / requests / told - 1) <= _CALM:
        return told
    # To three digits: a mean of 2 is to be 2, not the next float above, where whole requests of a batch are counted.
    return float(f"{rows / requests:.3g}")


def _names(pods: Mapping[str, object]) -> str:
    names = sorted(pods)
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
