"""Score of a run: the outcome that the benchmark compares. The bounds depend only on the case (see `clairvoyant`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from halcyon_simulator.bounds.clairvoyant import Bounds, bounds
from halcyon_simulator.engine.case import Case, RunOutcome
from halcyon_simulator.engine.run import Trajectory, Write

_BAND = 0.1
"""Maximum deviation from the final number of replicas for which the replicas count as settled, as a share of the final
number."""
_STEP_S = 30.0
_STEP_RATIO = 2.0
_STEP_SIGMA = 5.0
"""Minimum size of a step of the load, in standard deviations of a Poisson process. The mean rates of the 30 s before
and after must also differ by the factor `_STEP_RATIO`. Therefore neither a ramp nor a burst counts as a step."""


def score(
    case: Case,
    trajectory: Trajectory,
    *,
    policy: str,
    params: Mapping[str, float | str],
    limits: Bounds | None = None,
) -> RunOutcome:
    """Return the outcome of a run, for the requests and the time from `case.score_from_s` on.

    `limits` are the case's bounds, which are the same for all policies; they are computed if not given. Percentiles are
    those of the requests with a response; NaN if there are none. Ratios are NaN if the bound is 0.
    """
    limits = bounds(case) if limits is None else limits
    begin_s = case.score_from_s
    latency = trajectory.latency_s[int(np.searchsorted(trajectory.arrivals, begin_s)) :]
    requests = len(latency)
    refused = int(np.isnan(latency).sum())
    late = int((latency > case.slo_s).sum())
    answered = latency[np.isfinite(latency)]
    p50, p95, p99 = np.percentile(answered, [50, 95, 99]) * 1000 if len(answered) else (math.nan,) * 3
    gpu_seconds = trajectory.pods.gpu_seconds(begin_s, case.duration_s)
    writes = [write for write in trajectory.writes if write.at_s >= begin_s]
    largest = max([_count_at(trajectory, begin_s), *(write.after for write in writes)])
    return RunOutcome(
        scenario=case.name,
        policy=policy,
        params=params,
        seed=case.seed,
        requests=requests,
        violations_pct=100 * (refused + late) / requests if requests else 0.0,
        refused_pct=100 * refused / requests if requests else 0.0,
        p50_ms=float(p50),
        p95_ms=float(p95),
        p99_ms=float(p99),
        gpu_seconds=gpu_seconds,
        gpu_ratio_work=_ratio(gpu_seconds, limits.work_s),
        gpu_ratio_clairvoyant=_ratio(gpu_seconds, limits.gpu_seconds),
        direction_changes_per_h=direction_changes(writes) * 3600 / max(case.duration_s - begin_s, 1.0),
        overshoot=_ratio(largest, limits.largest),
        settling_s=settling_s(case, trajectory),
        pods_in_vain=_in_vain(case, trajectory),
        reactive_floor_pct=limits.reactive_floor_pct,
    )


def direction_changes(writes: Sequence[Write]) -> int:
    """Return the number of writes that change the direction of the previous write."""
    signs = np.sign([write.after - write.before for write in writes])
    return int((signs[1:] != signs[:-1]).sum())


def last_step_s(case: Case) -> float | None:
    """Return the time of the last step of the load in the scored span, or None if there is none."""
    seconds = np.arange(case.score_from_s + _STEP_S, case.duration_s - _STEP_S)
    current = np.searchsorted(case.arrivals, seconds)
    before = current - np.searchsorted(case.arrivals, seconds - _STEP_S)
    after = np.searchsorted(case.arrivals, seconds + _STEP_S) - current
    change = np.abs(after - before)
    most = np.maximum(after, before)
    steps = np.flatnonzero(
        (most >= _STEP_RATIO * np.minimum(after, before)) & (change > _STEP_SIGMA * np.sqrt(after + before))
    )
    if len(steps) == 0:
        return None
    # A step is detected at several seconds around it. Its time is that of the largest change.
    gaps = np.flatnonzero(np.diff(steps) > 1)
    last = steps[gaps[-1] + 1 :] if len(gaps) else steps
    return float(seconds[last[np.argmax(change[last])]])


def settling_s(case: Case, trajectory: Trajectory) -> float | None:
    """Return the time from the last step of the load until the replicas stay within 10 % of their final value.

    The result is None if the load has no step. It is also None if the replicas settle less than one start time before
    the end, because it is uncertain whether they would have stayed.
    """
    step_s = last_step_s(case)
    if step_s is None:
        return None
    final = int(trajectory.written[-1])
    outside = np.flatnonzero(np.abs(trajectory.written - final) > _BAND * final)
    settled_s = float(outside[-1] + 1) if len(outside) else 0.0
    if settled_s > case.duration_s - case.start_s:
        return None
    return max(settled_s - step_s, 0.0)


def _count_at(trajectory: Trajectory, at_s: float) -> int:
    before = [write.after for write in trajectory.writes if write.at_s < at_s]
    return before[-1] if before else trajectory.first


def _in_vain(case: Case, trajectory: Trajectory) -> int:
    """Return the number of pods that were released in the scored span and ready for less time than their start took.

    Pods that never became ready are included.
    """
    pods = trajectory.pods
    released = np.isfinite(pods.released_s) & (pods.released_s >= case.score_from_s)
    ready = np.isfinite(pods.ready_s)
    started = np.where(ready, pods.ready_s, 0.0) - np.where(np.isfinite(pods.held_s), pods.held_s, 0.0)
    served = pods.released_s - np.where(ready, pods.ready_s, 0.0)
    return int((released & (~ready | (served < started))).sum())


def _ratio(value: float, bound: float) -> float:
    return value / bound if bound > 0 else math.nan
