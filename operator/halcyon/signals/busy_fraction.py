"""GPU utilisation estimated from Triton's batch statistics if it isn't measured: the busy share of the model's instances. Pure.

    percent = 100 x seconds spent in batches / (seconds passed x instances), over about the last `WINDOW_S`

It is the mean over a pod's instances, not the GPU's own figure. With one of two instances busy on one GPU it is 50, however
full that instance keeps the GPU. Time in a batch is input, inference and output together, for every backend including Python.

| the counters                                   | result                                                                |
| ---------------------------------------------- | --------------------------------------------------------------------- |
| are new                                        | nothing yet: agents repeat the last read until the next one            |
| grow                                           | a read at the time of the pod's newest sample: both are one poll       |
| don't change, nor does the execution count     | the pod is idle: after `MIN_IDLE_S` that is a read too                    |
| don't change; executions grow or are unknown   | no read: the last one gets older                                      |
| fell, or a size is missing                     | the container restarted: start from scratch                           |
| have the maximum number of sizes, now others   | sizes come and go with their counts: start from scratch               |

A batch counts when it ends, so batches of several seconds make this jump. Out of scope: when it replaces a measurement
(`control.autoscaling.gpu_utilization`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from halcyon.api.documents.observation_report import MAX_SIZES, Batches
from halcyon.scaling.observations import Observation, PodObservation, Value, fresh

SOURCE: Literal["derived"] = "derived"

MAX_AGE_S = 12.0
"""Time for which a value is known after its read: agents read every 5 s, so one lost read does no harm."""
WINDOW_S = 10.0
"""Averaging window: two reads. The time of a read is known to about a second, which over 5 s would be 20 % of the value."""
MIN_WINDOW_S = 3.0
"""Minimum window, for the same reason. Several agents read the same pod, each at its own times."""
MIN_IDLE_S = 6.0
"""Time without new executions after which the counters read last include all of them. It is longer than a read interval."""
MAX_GAP_S = 60.0
"""Maximum time between two reads that still describe the present. With a thousand pods, agents read in turns, 30 s apart."""
MIN_SPACING_S = 0.5
"""Minimum time between two observations: no counter changes faster."""


@dataclass(frozen=True, slots=True)
class _Pod:
    """State of one pod."""

    rows: tuple[int, ...]
    """Batch sizes, as read last."""
    spent_us: int
    """Counter: microseconds in batches, as read last."""
    reads: tuple[tuple[float, int], ...]
    """(time, that counter) of reads with a known time, oldest first; times are monotonic."""
    executions: float | None
    """Counter of executions, from the newest sample."""
    still_since: float
    """Time since which that counter has not changed."""


@dataclass(frozen=True, slots=True)
class BusyMemory:
    """State of a model's pods. It belongs to one process: a new leader starts from scratch."""

    at: float = -math.inf
    """Time of the last observation."""
    pods: Mapping[str, _Pod] = field(default_factory=dict)

    def with_observation(self, observation: Observation) -> BusyMemory:
        """Return the memory with an observation added; pods that are missing in it, or have no batch statistics, are dropped."""
        if observation.at - self.at < MIN_SPACING_S:
            return self
        pods = {
            pod.name: _updated(self.pods.get(pod.name), pod, pod.batches, observation.at)
            for pod in observation.pods
            if pod.batches is not None
        }
        return BusyMemory(observation.at, pods)

    def utilization(self, pod: str, *, now: float, instances: int) -> Value | None:
        """Return percent, 0 to 100, the mean of the pod's `instances`, at the time of its newest read.

        None if that is older than `MAX_AGE_S`, and until two reads are far enough apart. Instances that are not reported make it
        too high; the maximum is 100.
        """
        known = self.pods.get(pod)
        if known is None or not known.reads:
            return None
        (begin, before_us), (end, spent_us) = known.reads[0], known.reads[-1]
        if now - end > MAX_AGE_S or end - begin < MIN_WINDOW_S:
            return None
        busy = (spent_us - before_us) / 1e6 / (end - begin) / max(instances, 1)
        return Value(min(100.0 * busy, 100.0), end)


def _updated(previous: _Pod | None, pod: PodObservation, batches: Batches, now: float) -> _Pod:
    newest = fresh(pod.points, now, lambda p: p.executions)
    executions = None if newest is None else newest.executions
    at = pod.points[-1].at if pod.points else now
    rows, spent_us = tuple(size[0] for size in batches), sum(size[2] for size in batches)
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
        # A sample has the counters as of the sample before, because growth is confirmed by the next one.
        confirmed_at = pod.points[-2].at if len(pod.points) > 1 else at
        return replace(previous, reads=_with_read(previous.reads, confirmed_at, spent_us))
    return previous


def _is_new(before: _Pod, rows: tuple[int, ...], spent_us: int) -> bool:
    """Return whether the counters don't continue the earlier ones."""
    if spent_us < before.spent_us:
        return True
    if rows == before.rows:
        return False
    return max(len(rows), len(before.rows)) >= MAX_SIZES or not set(before.rows) <= set(rows)


def _with_read(reads: tuple[tuple[float, int], ...], at: float, spent_us: int) -> tuple[tuple[float, int], ...]:
    if reads and at <= reads[-1][0]:
        return reads
    reads = (*reads, (at, spent_us))
    # The oldest read kept is the last one that is old enough.
    first = 0
    while first + 2 < len(reads) and reads[first + 1][0] <= at - WINDOW_S:
        first += 1
    return reads[first:]
