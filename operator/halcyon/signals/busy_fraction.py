"""GPU utilisation from what Triton says of its batches, where nothing measures it: the busy share of the model's instances. Pure.

    percent = 100 x seconds spent in batches / (seconds passed x instances), over about the last `WINDOW_S`

It is the mean over a pod's instances, not a GPU's own figure: with one of two instances at work on one GPU it says 50, however
full that one keeps the GPU. Time in a batch is input, inference and output together, whatever the backend, Python's included.

| the counters                                   | what follows                                                          |
| ---------------------------------------------- | --------------------------------------------------------------------- |
| are seen first                                 | nothing yet: agents repeat what they read until they read it anew      |
| grow                                           | a read, at the time of the pod's newest sample: both are of one look   |
| stand, and so does the count of executions     | the pod is idle: after `STILL_S` that is a read too                    |
| stand, while executions grow or aren't known   | no read: what was known gets old                                      |
| fell, or lack a size that they had             | the container began anew, and so do we                                |
| hold as many sizes as can be told, and others  | sizes come and go with all that they have counted: we begin anew      |

A batch counts when it ends, so batches of several seconds make this jump. Not here: where it stands in (`control.sensing`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from halcyon.api.documents.observation_report import MAX_SIZES, Batches
from halcyon.scaling.observations import Observation, PodObservation, Value, fresh

SOURCE: Literal["derived"] = "derived"

STALE_S = 12.0
"""A value is known for so long after the read: agents read every 5 s, so one lost read does no harm."""
WINDOW_S = 10.0
"""Two reads' worth. When exactly a read was made is known to about a second, which over 5 s would be a fifth of the value."""
MIN_WINDOW_S = 3.0
"""For the same reason less time than this tells nothing. Several agents read the same pod, each in its own rhythm."""
STILL_S = 6.0
"""Executions that stand for longer than reads lie apart are in the counters that were read."""
GAP_S = 60.0
"""Reads further apart say nothing of now. In a model of a thousand pods they take turns, and are 30 s apart."""
SPACING_S = 0.5
"""Looks closer together than this are one: nothing that is seen changes so fast."""


@dataclass(frozen=True, slots=True)
class _Pod:
    """What is remembered of one pod."""

    rows: tuple[int, ...]
    """Batch sizes, as read last."""
    spent_us: int
    """Counter: microseconds in batches, as read last."""
    reads: tuple[tuple[float, int], ...]
    """(time, that counter) of reads whose time is known, oldest first; times are monotonic."""
    executions: float | None
    """Counter: as in the newest sample."""
    still_since: float
    """Since when that has stood."""


@dataclass(frozen=True, slots=True)
class BusyMemory:
    """What is remembered of a model's pods. Of one process: it begins anew with each leader."""

    at: float = -math.inf
    """Of the last observation."""
    pods: Mapping[str, _Pod] = field(default_factory=dict)

    def with_observation(self, observation: Observation) -> BusyMemory:
        """With what is seen now; pods that aren't seen, or whose batches nobody tells, are forgotten."""
        if observation.at - self.at < SPACING_S:
            return self
        pods = {
            pod.name: _seen(self.pods.get(pod.name), pod, pod.batches, observation.at)
            for pod in observation.pods
            if pod.batches is not None
        }
        return BusyMemory(observation.at, pods)

    def utilization(self, pod: str, *, now: float, instances: int) -> Value | None:
        """Percent, 0 to 100, the mean of the pod's `instances`, at the time of its newest read.

        None where that is older than `STALE_S`, and until two reads lie far enough apart. Instances that nobody has told of
        make it too high; it ends at 100.
        """
        known = self.pods.get(pod)
        if known is None or not known.reads:
            return None
        (begin, before_us), (end, spent_us) = known.reads[0], known.reads[-1]
        if now - end > STALE_S or end - begin < MIN_WINDOW_S:
            return None
        busy = (spent_us - before_us) / 1e6 / (end - begin) / max(instances, 1)
        return Value(min(100.0 * busy, 100.0), end)


def _seen(before: _Pod | None, pod: PodObservation, batches: Batches, now: float) -> _Pod:
    newest = fresh(pod.points, now, lambda p: p.executions)
    executions = None if newest is None else newest.executions
    at = pod.points[-1].at if pod.points else now
    rows, spent_us = tuple(size[0] for size in batches), sum(size[2] for size in batches)
    if before is None:
        return _Pod(rows, spent_us, (), executions, at)
    if _is_new(before, rows, spent_us):
        return _Pod(rows, spent_us, ((at, spent_us),), executions, at)
    if before.reads and at - before.reads[-1][0] > GAP_S:
        before = replace(before, reads=())
    if executions != before.executions:
        before = replace(before, executions=executions, still_since=at)
    if spent_us != before.spent_us:
        return replace(before, rows=rows, spent_us=spent_us, reads=_with_read(before.reads, at, spent_us))
    if executions is not None and at - before.still_since >= STILL_S:
        # A count in a sample is that of the sample before: what is growth is confirmed by the next.
        confirmed_at = pod.points[-2].at if len(pod.points) > 1 else at
        return replace(before, reads=_with_read(before.reads, confirmed_at, spent_us))
    return before


def _is_new(before: _Pod, rows: tuple[int, ...], spent_us: int) -> bool:
    """Whether the counters don't continue those of before."""
    if spent_us < before.spent_us:
        return True
    if rows == before.rows:
        return False
    return max(len(rows), len(before.rows)) >= MAX_SIZES or not set(before.rows) <= set(rows)


def _with_read(reads: tuple[tuple[float, int], ...], at: float, spent_us: int) -> tuple[tuple[float, int], ...]:
    if reads and at <= reads[-1][0]:
        return reads
    reads = (*reads, (at, spent_us))
    # The oldest that stays is the last one that is old enough.
    first = 0
    while first + 2 < len(reads) and reads[first + 1][0] <= at - WINDOW_S:
        first += 1
    return reads[first:]
