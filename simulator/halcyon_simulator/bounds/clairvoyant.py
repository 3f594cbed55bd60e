"""Bounds of a simulation case for all policies: the clairvoyant schedule, the work bound and the reactive floor.

They depend only on the arrivals, so no run is needed. Arrays have one value per whole second: `need[t]` is valid for
[t, t + 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from halcyon_simulator.bounds.replica_capacity import capacity_rps
from halcyon_simulator.engine.case import Case, Drift
from halcyon_simulator.engine.event_loop import Floats
from halcyon_simulator.engine.run import first_count

Counts = NDArray[np.int64]
_ROUNDING = 1e-9
_DRIFT_POINTS = 5


@dataclass(frozen=True)
class Bounds:
    """Bounds of a simulation case, with which the results of policies are compared."""

    need: Counts
    """Number of replicas needed for the arrivals of the next `slo_s` seconds."""
    schedule: Counts
    """Number of replicas of the clairvoyant schedule, including pods that are starting."""
    gpu_seconds: float
    """GPU-seconds of the clairvoyant schedule in the scored span."""
    largest: int
    """Maximum number of replicas of the clairvoyant schedule in the scored span."""
    work_s: float
    """GPU-seconds that the scored requests need if all instances always compute full batches."""
    reactive_floor_pct: float
    """Percentage of the scored requests that a policy without foresight can't serve in time (see `_present`)."""


def bounds(case: Case) -> Bounds:
    """Return the bounds of a simulation case.

    Raises:
        ValueError: no replica can meet the objective.
    """
    seconds = np.arange(math.ceil(case.duration_s), dtype=np.float64)
    arrivals = case.arrivals[: int(np.searchsorted(case.arrivals, case.duration_s))]
    mu = _capacity(case, seconds)
    soon = np.searchsorted(arrivals, seconds + case.slo_s) - np.searchsorted(arrivals, seconds)
    least = case.low if case.low == 0 else max(case.low, 1)
    unlimited = np.ceil(soon / (case.slo_s * mu) - _ROUNDING).astype(np.int64)
    need = np.clip(unlimited, least, case.high)
    schedule, gpu_seconds = _scheduled(need, case)
    scored = arrivals[int(np.searchsorted(arrivals, case.score_from_s)) :]
    work_s = float(_factor(case.drift, scored).sum()) / case.service.peak_rps
    excess = np.maximum(soon / case.slo_s - mu * _present(need, case), 0.0)
    lost = float(excess[seconds >= case.score_from_s].sum())
    return Bounds(
        need=need,
        schedule=schedule,
        gpu_seconds=gpu_seconds,
        largest=int(schedule[math.floor(case.score_from_s) :].max(initial=0)),
        work_s=work_s,
        reactive_floor_pct=min(100 * lost / len(scored), 100.0) if len(scored) else 0.0,
    )


def _scheduled(need: Counts, case: Case) -> tuple[Counts, float]:
    """Return the replicas of the clairvoyant schedule, and its GPU-seconds in the scored span.

    Replica number k runs while need >= k, and through gaps that are not longer than a start. In a longer gap it is
    released, and started again just in time. A start before time 0 is possible and isn't billed. This is the ski rental
    problem with a known future. Source: the project's facts on autoscaling, section 7.2.
    """
    size, end = len(need), min(float(len(need)), case.duration_s)
    always = int(need.min())
    change = np.zeros(size + 1, np.int64)
    gpu_seconds = always * max(end - case.score_from_s, 0.0)
    for level in range(always + 1, int(need.max()) + 1):
        edges = np.flatnonzero(np.diff(need >= level, prepend=False, append=False))
        begins, ends = edges[::2], edges[1::2]
        apart = begins[1:] - ends[:-1] > case.start_s
        begins = np.maximum(begins[np.append(True, apart)] - case.start_s, 0.0)
        ends = ends[np.append(apart, True)]
        np.add.at(change, np.floor(begins).astype(np.int64), 1)
        np.add.at(change, ends, -1)
        billed = np.minimum(ends, end) - np.maximum(begins, case.score_from_s)
        gpu_seconds += float(np.maximum(billed, 0.0).sum())
    return always + np.cumsum(change[:-1]), gpu_seconds


def _present(need: Counts, case: Case) -> Counts:
    """Return the number of ready pods at each second under a policy without foresight and without headroom.

    The policy creates a needed pod at once, and the pod is ready one start time later. A pod that is no longer needed
    is kept for one more start time. Therefore the result is the largest need in the period from two start times ago to
    one start time ago. For the time before 0, the need is the initial number of replicas.

    The reactive floor is the share of requests that exceeds the capacity of these pods. It is the sum over the seconds
    of the scored span of (rate over the next `slo_s` - mu x present), where positive, divided by the number of scored
    requests.
    """
    start = math.ceil(case.start_s)
    reach = np.concatenate((np.full(2 * start, first_count(case), np.int64), need))
    width, size = start + 1, 1
    # Compute the maximum over windows of `size` seconds, and double `size` until it is `width`.
    while 2 * size <= width:
        reach = np.maximum(reach[:-size], reach[size:])
        size *= 2
    if size < width:
        reach = np.maximum(reach[: size - width], reach[width - size :])
    return reach[: len(need)]


def _factor(drift: Drift | None, times: Floats) -> Floats:
    """Return the factor by which the case's drift changes the batch duration at each of the given times."""
    if drift is None:
        return np.ones(len(times))
    return np.interp(times, [drift.begin_s, drift.end_s], [1.0, drift.factor])


def _capacity(case: Case, seconds: Floats) -> Floats:
    """Return a replica's capacity mu at each second. With drift, it is interpolated between a few points."""
    if case.drift is None:
        return np.full(len(seconds), capacity_rps(case.service, case.slo_s))
    low, high = sorted((1.0, case.drift.factor))
    points = np.linspace(low, high, _DRIFT_POINTS)
    service = case.service
    capacities = [
        capacity_rps(replace(service, t0_s=service.t0_s * point, a_s=service.a_s * point), case.slo_s)
        for point in points.tolist()
    ]
    return np.interp(_factor(case.drift, seconds), points, capacities)
