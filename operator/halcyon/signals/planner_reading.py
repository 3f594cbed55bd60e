"""The planner's `Reading`, built from a model's snapshot and its pods in Kubernetes. Pure.

If some ready pods don't report a value, the mean of the others is used for them. If a balancer's agent is silent
although its pod exists, this balancer may receive any number of requests, so the demand is unknown, and no partial sums
are used. After the silence, it stays unknown until a second report confirms the growth in the first one.

The store counts growth one report late, so each balancer's count is that of its previous report. `arrived` is the sum
of all counts at one common time, up to which every busy balancer has been counted. Otherwise the requests of a 30 s
silence would seem to arrive within one second.

A pod with a dead backend (state maintenance) counts as broken and is left out. Out of scope: plausibility of the values
(`scaling.planner.plausibility`), age of reports (`observation_store`), phases of pods in Kubernetes (`control`).
"""

# | value                        | known if                                                                              |
# | ---------------------------- | ------------------------------------------------------------------------------------- |
# | arrived, rejected, inflight  | every existing balancer has reported within `MAX_AGE_S`                               |
# | waiting                      | the same, and at least half of the ready pods report their queue                      |
# | gpu                          | at least half of the ready pods report it                                             |
# | engine_used                  | every ready pod reports it                                                            |
# | batches, rows                | at least one pod has ever reported them                                               |

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from typing import NamedTuple

from halcyon.api.documents.observation_report import Batches
from halcyon.scaling.frozen import immutable
from halcyon.scaling.observations import MAX_AGE_S
from halcyon.scaling.planner.reading import PodReading, Reading
from halcyon.signals.clock import WallClock
from halcyon.signals.merged_counters import MergedBatches, MergedCounter
from halcyon.signals.rows_per_request import with_ratios
from halcyon.signals.store_state import ModelSnapshot, PodSnapshot
from halcyon.signals.time_series import Ring

OBSERVATION_WINDOW_S = MAX_AGE_S
"""Length of the time span, in seconds, from which a reading uses samples. The last sample before it is used as well."""
MAX_REPORT_DELAY_S = 1.5
"""Maximum time, in seconds, from a change of a balancer's counters until its agent reports the change."""
GPU_WINDOW_S = 5.0
"""Window over which GPU utilisation is averaged, in seconds. A single sample shows only one moment."""
HELD_WINDOW_S = 5.0
"""Window, in seconds, over which the number of requests in progress or waiting is averaged."""
_MAX_NAMED = 3
_AT, _QUEUED, _INFLIGHT, _REQUESTS, _COUNTED_AT = 0, 1, 2, 3, 6
"""Columns of a balancer's rows (`BalancerPoint`).

The constants after them are the columns of a pod's rows (`PodPoint`).
"""
_PENDING, _GPU, _SUCCEEDED, _ROWS = 1, 2, 3, 5


@immutable(frozen=True, slots=True)
class SignalMemory:
    """Counters and averages of one model that are kept from one reading of the planner to the next.

    They are kept in memory only, so a new leader starts with counters at 0. `scaling.planner.serialization.resumed`
    adapts the planner's saved memory to these counters.
    """

    arrived: MergedCounter = field(default_factory=MergedCounter)
    counted_at: float = -math.inf
    """Monotonic time up to which the requests in `arrived` are counted."""
    answered: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Last counters of each pod, by name of the pod: (requests answered, rows computed)."""
    shape: tuple[float, float] = (0.0, 0.0)
    """Sums of requests and of rows, as (requests, rows), from which the mean rows per request is computed. Older values
    have exponentially decreasing weights."""
    implausible: int = 0
    """Number of consecutive readings in which the rows per request were implausible."""
    rows_per_request: float = 1.0
    """Mean rows per request in the last reading."""
    batches: MergedBatches = field(default_factory=MergedBatches)
    revision: str = ""
    """Revision of the pods whose batches are counted in `batches`."""
    merged_batches: Mapping[str, array[int]] = field(default_factory=dict)
    """Last batch counters of each pod that are included in `batches`, by pod name. A pod that still has the same array
    has no new batches."""
    seconds: Mapping[int, tuple[int, float]] | None = None
    """Counts of `batches` in the form that the planner reads: (executions, seconds) by number of rows in the batch;
    None if there are no batches."""
    rejected: MergedCounter = field(default_factory=MergedCounter)
    """Number of requests rejected up to each balancer's last report. It may be more recent than `arrived`, because it
    is only used to detect whether requests are being rejected."""


@immutable(frozen=True, slots=True)
class ReadingResult:
    """Planner's reading, with the memory for the next reading and the reasons why values are unknown."""

    reading: Reading
    memory: SignalMemory
    """Memory to pass to the next call of `reading`."""
    unknown: tuple[str, ...] = ()
    """Reasons why values of the reading are unknown, one sentence each; empty if all values are known."""
    held: float = 0.0
    """Number of requests queued or in progress at the balancers that report, even if other balancers are silent."""


def reading(
    snapshot: ModelSnapshot,
    *,
    replicas: int,
    pods: tuple[PodReading, ...],
    epoch: WallClock,
    memory: SignalMemory,
    balancers: AbstractSet[str] | None = None,
    revision: str = "",
    revision_pods: AbstractSet[str] | None = None,
) -> ReadingResult:
    """Build the planner's reading from the present state of a model.

    Args:
        snapshot: state of the model from the store, with times on the monotonic clock.
        replicas: present number of replicas (spec.replicas).
        pods: the server pods in Kubernetes, with times in seconds since the epoch.
        epoch: conversion from monotonic times to seconds since the epoch.
        memory: memory of the previous reading; `SignalMemory()` for the first.
        balancers: names of the balancer pods that are ready in Kubernetes. If None (unknown), every silent agent is assumed to
            have a pod.
        revision: serving revision, which most ready pods run.
        revision_pods: names of the pods of that revision, whose batches are counted. If None, all pods count.
    """
    now = snapshot.at
    pods_read = _with_broken_pods(pods, snapshot.pods)
    ready = _ready_pods(pods_read, snapshot)
    sums = _sum_balancers(snapshot.balancers, now)
    silence = _silence_reason(snapshot, sums.rings, balancers)
    arrived, counted_at, rejected = memory.arrived, memory.counted_at, memory.rejected
    unknown = [] if silence is None else [silence]
    if silence is None:
        counted_at = max(counted_at, sums.counted_at)
        arrived = arrived.with_values({agent: _count(ring, counted_at, now) for agent, ring in sums.rings.items()})
        rejected = rejected.with_values(sums.rejected)
    if ready.pending is None:
        unknown.append(f"most ready pods don't report their queue: {_names(ready.names)}")
    memory = _with_batches(memory, snapshot, pods, revision, revision_pods)
    memory = _with_rows(memory, snapshot, arrived, counted_at, rejected)
    # If values are unknown, the time of the reading is that of the newest report.
    newest = max((ring.newest for _, ring in snapshot.balancers if len(ring)), default=None) if silence else counted_at
    result = Reading(
        at=None if newest is None else epoch.at(newest),
        replicas=replicas,
        arrived=None if silence else arrived.total,
        waiting=None if silence or ready.pending is None else sums.queued + ready.pending,
        inflight=None if silence else sums.queued + sums.inflight,
        gpu=ready.gpu,
        batches=memory.seconds,
        revision=revision,
        rows_per_request=memory.rows_per_request,
        pods=pods_read,
        rejected=None if silence else rejected.total,
        concurrency=None if silence else sum(_mean_held(ring, now) for ring in sums.rings.values()),
        queued=None if silence else sums.queued,
        engine_used=ready.engine_used,
    )
    return ReadingResult(result, memory, tuple(unknown), sums.queued + sums.inflight)


def _mean_held(ring: Ring, now: float) -> float:
    """Return the mean number of requests queued or in progress at a balancer in the last `HELD_WINDOW_S` seconds."""
    held = [row[_QUEUED] + row[_INFLIGHT] for row in ring.rows(now - HELD_WINDOW_S)]
    return sum(held) / len(held) if held else 0.0


class _BalancerSums(NamedTuple):
    """Sums of queues and counters over all balancers that have reported recently."""

    rings: Mapping[str, Ring]
    queued: float
    inflight: float
    rejected: Mapping[str, float]
    counted_at: float
    """Time up to which the requests of all balancers are counted. It is minus infinity if no balancer has reported
    recently."""


def _sum_balancers(balancers: Sequence[tuple[str, Ring]], now: float) -> _BalancerSums:
    """Add up the values of all balancers that have reported recently and without a gap before the last report.

    An idle balancer reports rarely. If its last report added no requests, it is assumed to have received none since, so
    the counts of the other balancers can be used before its next report.
    """
    rings: dict[str, Ring] = {}
    rejected: dict[str, float] = {}
    busy: list[float] = []
    idle: list[float] = []
    queued = inflight = 0.0
    for agent, ring in balancers:
        if now - ring.newest > MAX_AGE_S:
            continue
        at, waiting, computed, requests, rejections, _, counted_at, _ = ring.newest_row
        is_alone = ring.count(now - OBSERVATION_WINDOW_S) == 1
        if not is_alone and at - counted_at > MAX_AGE_S:
            continue
        rings[agent], rejected[agent] = ring, rejections
        queued += waiting
        inflight += computed
        if not is_alone and requests > ring.value(2, _REQUESTS):
            busy.append(counted_at)
        else:
            # Its last report may contain requests that arrived after this time and are not confirmed yet.
            idle.append(at if is_alone else max(counted_at, at - MAX_REPORT_DELAY_S))
    return _BalancerSums(rings, queued, inflight, rejected, min(busy) if busy else max(idle, default=-math.inf))


def _count(ring: Ring, at: float, now: float) -> float:
    """Return the number of requests that a balancer had received up to the time `at`.

    The number is interpolated between two reports, and constant after the last one.
    """
    since = now - OBSERVATION_WINDOW_S
    back, rows = 1, len(ring)
    while back < rows and ring.value(back, _AT) > since:
        counted_at, count = ring.value(back, _COUNTED_AT), ring.value(back, _REQUESTS)
        if counted_at <= at:
            if back == 1:
                return count
            later_at, later = ring.value(back - 1, _COUNTED_AT), ring.value(back - 1, _REQUESTS)
            share = (at - counted_at) / (later_at - counted_at)
            return count + (later - count) * min(share, 1.0)
        back += 1
    return ring.value(max(back - 1, 1), _REQUESTS)


class _ReadyPods(NamedTuple):
    """Ready pods: the requests queued in them, their summed GPU utilisation, and the least share of an engine in use.

    A value is None if it is unknown.
    """

    names: list[str]
    pending: float | None
    gpu: float | None
    engine_used: float | None


def _ready_pods(pods: tuple[PodReading, ...], snapshot: ModelSnapshot) -> _ReadyPods:
    names = [str(pod.name) for pod in pods if pod.phase == "ready"]
    views = [snapshot.pods.get(name) for name in names]
    waits = [_pending(view, snapshot.at) for view in views]
    gpus = [_gpu(view, snapshot.at) for view in views]
    # The share is as old as the queue, so it is unknown if the queue is.
    used = [
        view.engine_used
        for view, wait in zip(views, waits, strict=True)
        if view is not None and wait is not None and view.engine_used is not None
    ]
    return _ReadyPods(
        names,
        _sum_estimated(waits),
        _sum_estimated(gpus) if gpus else None,
        min(used) if used and len(used) == len(names) else None,
    )


def _with_broken_pods(pods: tuple[PodReading, ...], seen: Mapping[str, PodSnapshot]) -> tuple[PodReading, ...]:
    dead = {name for name, pod in seen.items() if pod.state == "maintenance"}
    if not dead:
        return pods
    return tuple(
        replace(pod, phase="broken") if pod.phase == "ready" and str(pod.name) in dead else pod for pod in pods
    )


def _silence_reason(
    snapshot: ModelSnapshot, rings: Mapping[str, Ring], balancers: AbstractSet[str] | None
) -> str | None:
    """Return the reason why the load is unknown, including the names of the balancers that don't report.

    Return None if all expected balancers report.
    """
    silent = dict(snapshot.silent)
    expected = {agent for agent, _ in snapshot.balancers} | silent.keys() if balancers is None else balancers
    if expected <= rings.keys():
        return None if rings else "no balancer agent has reported yet"
    missing = sorted(expected - rings.keys())
    agents = dict(snapshot.balancers)
    reasons = []
    for name in missing[:_MAX_NAMED]:
        if name in silent:
            reasons.append(f"{name} reported last {silent[name]:.0f} s ago")
        elif name in agents:
            is_back = snapshot.at - agents[name].newest <= MAX_AGE_S
            reasons.append(
                f"{name} has just started to report again" if is_back else f"HAProxy of {name} does not respond"
            )
        else:
            reasons.append(f"{name} has not reported yet")
    more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
    return f"the load of some balancers is unknown ({', '.join(reasons)}{more}); the limit is {MAX_AGE_S:.0f} s"


def _pending(pod: PodSnapshot | None, now: float) -> float | None:
    """Return the number of requests that are queued in a pod; None if unknown."""
    if pod is None or pod.ring is None:
        return None
    return pod.ring.known(_PENDING, now, MAX_AGE_S, now - OBSERVATION_WINDOW_S)


def _gpu(pod: PodSnapshot | None, now: float) -> float | None:
    if pod is None or pod.ring is None or pod.ring.known(_GPU, now, MAX_AGE_S, now - OBSERVATION_WINDOW_S) is None:
        return None
    return pod.ring.mean(_GPU, now, GPU_WINDOW_S, held_s=MAX_AGE_S, since=now - GPU_WINDOW_S)


def _sum_estimated(values: Sequence[float | None]) -> float | None:
    """Return the sum of the values, with the mean of the known values for each unknown value.

    Return None if more than half of the values are unknown.
    """
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return known[0] if len(known) == 1 else sum(known, 0.0)
    return None if 2 * len(known) < len(values) else sum(known) * len(values) / len(known)


def _with_batches(
    memory: SignalMemory,
    snapshot: ModelSnapshot,
    pods: Sequence[PodReading],
    revision: str,
    revision_pods: AbstractSet[str] | None,
) -> SignalMemory:
    """Return the memory updated with new batches of all the revision's pods that report, including draining pods."""
    before = memory.batches
    last = memory.merged_batches
    if revision != memory.revision:
        before, last = MergedBatches(), {}
    reported = snapshot.pods
    new: dict[str, array[int]] = {}
    tables: dict[str, Batches] = {}
    for name, pod in reported.items():
        row = pod.batches
        if row is None or row is last.get(name):
            continue
        if revision_pods is None or name in revision_pods:
            new[name], tables[name] = row, pod.sizes()
    if not new and revision == memory.revision and before.last.keys() <= reported.keys():
        return memory
    exist = {str(pod.name) for pod in pods} | reported.keys()
    batches = before.with_tables(tables, exist=exist)
    if batches is memory.batches and revision == memory.revision:
        return memory
    return replace(
        memory,
        batches=batches,
        revision=revision,
        merged_batches={name: row for name, row in last.items() if name in exist} | new,
        seconds={rows: (count, us / 1e6) for rows, (count, us) in batches.table.items()} or None,
    )


def _with_rows(
    memory: SignalMemory, snapshot: ModelSnapshot, arrived: MergedCounter, counted_at: float, rejected: MergedCounter
) -> SignalMemory:
    """Return the memory updated with the pods' requests and rows, and with the given counts of the balancers."""
    now, before = snapshot.at, memory.answered
    answered: dict[str, tuple[float, float]] = {}
    ratios: list[tuple[float, float]] = []
    for name, pod in snapshot.pods.items():
        ring = pod.ring
        if ring is None or not (back := ring.fresh((_SUCCEEDED, _ROWS), now, MAX_AGE_S, now - OBSERVATION_WINDOW_S)):
            continue
        counts = answered[name] = ring.value(back, _SUCCEEDED), ring.value(back, _ROWS)
        if (earlier := before.get(name)) is not None:
            requests, rows = counts[0] - earlier[0], counts[1] - earlier[1]
            # Requests without rows were answered from a cache. Rows without requests are a faulty counter.
            if requests > 0 and rows > 0:
                ratios.append((rows / requests, requests))
    shape, implausible, mean = (
        with_ratios(memory.shape, memory.implausible, memory.rows_per_request, sorted(ratios))
        if ratios
        else (memory.shape, memory.implausible, memory.rows_per_request)
    )
    return SignalMemory(
        arrived,
        counted_at,
        answered,
        shape,
        implausible,
        mean,
        memory.batches,
        memory.revision,
        memory.merged_batches,
        memory.seconds,
        rejected,
    )


def _names(pods: Iterable[str]) -> str:
    names = sorted(pods)
    return ", ".join(names[:_MAX_NAMED]) + (f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else "")
