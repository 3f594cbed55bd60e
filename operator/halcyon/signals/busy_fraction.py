"""Estimate of GPU utilisation from Triton's batch statistics: the busy share of the model's instances. Pure.

The estimate is used if GPU utilisation is not measured:

    percent = 100 x seconds spent in batches / (seconds passed x instances), over about the last `WINDOW_S`

The estimate is the mean over the instances in a pod, not the utilisation of the GPU. If one of two instances on a GPU
is busy, the estimate is 50 %, however much of the GPU this instance uses. The time of a batch includes input, inference
and output, for every backend including Python.

Until the next read, agents report the same counters again, so a new read is detected by changed counters.

A batch is counted when it ends, so batches of several seconds make the estimate jump. Out of scope: when the estimate
replaces a measurement (`control.autoscaling.sources.gpu_utilization`).
"""

# | the counters                                          | interpretation                                                  |
# | ----------------------------------------------------- | --------------------------------------------------------------- |
# | are reported for the first time                       | the time of this read is unknown, so it is not used             |
# | grew                                                  | a read at the time of the pod's newest sample (the same poll)   |
# | are unchanged, and so is the execution count          | the pod is idle: a read, after `MIN_IDLE_S`                     |
# | are unchanged; executions grew or are unknown         | no new read: the estimate gets older                            |
# | fell, or a batch size is missing                      | the container restarted: all earlier reads are dropped          |
# | have the maximum number of sizes, and these differ    | if the total time is unknown: all earlier reads are dropped     |

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from halcyon.api.documents.observation_report import MAX_SIZES, Batches
from halcyon.scaling.observations import Observation, PodObservation, Value, fresh

SOURCE: Literal["derived"] = "derived"

MAX_AGE_S = 12.0
"""Maximum age, in seconds, at which an estimate of GPU utilisation is used. Agents read the counters every 5 s, so the
loss of one read has no effect."""
WINDOW_S = 10.0
"""Window over which an estimate of GPU utilisation is averaged, in seconds. It covers about two reads of the counters.
The time of a read is known only to about 1 s, which would cause an error of 20 % over 5 s."""
MIN_WINDOW_S = 3.0
"""Minimum seconds between the two reads from which an estimate is computed, because the time of a read is known only to
about 1 s. Reads may be close together if several agents read the same pod."""
MIN_IDLE_S = 6.0
"""Seconds without new executions after which the last counters are assumed to include all executions. It is longer than
the interval between two reads."""
MAX_GAP_S = 60.0
"""Maximum seconds between two reads of a pod's counters from which an estimate is computed. With a thousand pods,
agents read each pod every 30 s."""
MIN_SPACING_S = 0.5
"""Minimum seconds between two observations that are processed. The counters don't change faster."""


@dataclass(frozen=True, slots=True)
class _Pod:
    """Batch counters of one pod, from the recent reads."""

    rows: tuple[int, ...]
    """Batch sizes in the last read, in rows."""
    spent_us: int
    """Total time spent in batches as of the last read, in microseconds."""
    reads: tuple[tuple[float, int], ...]
    """Reads whose time is known, oldest first, as (monotonic time, microseconds spent in batches)."""
    executions: float | None
    """Counter of executions in the newest sample; None if unknown."""
    still_since: float
    """Time at which the counter of executions last changed."""


@dataclass(frozen=True, slots=True)
class BusyMemory:
    """Batch counters of a model's pods. They are kept in memory only, so a new leader starts without them."""

    at: float = -math.inf
    """Time of the last observation that was processed."""
    pods: Mapping[str, _Pod] = field(default_factory=dict)

    def with_observation(self, observation: Observation) -> BusyMemory:
        """Return the counters updated with an observation. Pods without batch statistics in it are dropped."""
        if observation.at - self.at < MIN_SPACING_S:
            return self
        pods = {
            pod.name: _updated(self.pods.get(pod.name), pod, pod.batches, observation.at)
            for pod in observation.pods
            if pod.batches is not None
        }
        return BusyMemory(observation.at, pods)

    def utilization(self, pod: str, *, now: float, instances: int) -> Value | None:
        """Return the busy share of a pod's instances in percent, 0 to 100, with the time of the newest read.

        Return None if the read is older than `MAX_AGE_S`, or if no two reads are at least `MIN_WINDOW_S` apart. If
        `instances` is lower than the real number, the result is too high, but at most 100.
        """
        history = self.pods.get(pod)
        if history is None or not history.reads:
            return None
        (begin, before_us), (end, spent_us) = history.reads[0], history.reads[-1]
        if now - end > MAX_AGE_S or end - begin < MIN_WINDOW_S:
            return None
        busy = (spent_us - before_us) / 1e6 / (end - begin) / max(instances, 1)
        return Value(min(100.0 * busy, 100.0), end)


def _updated(previous: _Pod | None, pod: PodObservation, batches: Batches, now: float) -> _Pod:
    newest = fresh(pod.points, now, lambda p: p.executions)
    executions = None if newest is None else newest.executions
    at = pod.points[-1].at if pod.points else now
    rows, spent_us = tuple(size[0] for size in batches), pod.spent_us
    if spent_us is None:
        spent_us = sum(size[2] for size in batches)
    elif len(rows) >= MAX_SIZES:
        rows = ()  # `spent_us` has all sizes, so it does not matter which of them are reported
    if previous is None:
        return _Pod(rows, spent_us, (), executions, at)
    if _is_new(previous, rows, spent_us):
        return _Pod(rows, spent_us, ((at, spent_us),), executions, at)
    if previous.reads and at - previous.reads[-1][0] > MAX_GAP_S:
        previous = replace(previous, reads=())
    if executions != previous.executions:
        previous = replace(previous, executions=executions, still_since=at)
    if spent_us != previous.spent_us:
        return replace(previous, rows=rows, spent_us=spent_us, reads=_with_read(previous.reads, at, spent_us))
    if executions is not None and at - previous.still_since >= MIN_IDLE_S:
        # A sample has the counters of the previous sample, because growth counts only once the next sample confirms it.
        confirmed_at = pod.points[-2].at if len(pod.points) > 1 else at
        return replace(previous, reads=_with_read(previous.reads, confirmed_at, spent_us))
    return previous


def _is_new(before: _Pod, rows: tuple[int, ...], spent_us: int) -> bool:
    """Return whether the new counters don't continue the earlier ones, for example because the container restarted."""
    if spent_us < before.spent_us:
        return True
    if rows == before.rows or not (rows and before.rows):
        return False
    return max(len(rows), len(before.rows)) >= MAX_SIZES or not set(before.rows) <= set(rows)


def _with_read(reads: tuple[tuple[float, int], ...], at: float, spent_us: int) -> tuple[tuple[float, int], ...]:
    if reads and at <= reads[-1][0]:
        return reads
    reads = (*reads, (at, spent_us))
    # Keep one read that is at least `WINDOW_S` old, and all newer ones.
    first = 0
    while first + 2 < len(reads) and reads[first + 1][0] <= at - WINDOW_S:
        first += 1
    return reads[first:]
