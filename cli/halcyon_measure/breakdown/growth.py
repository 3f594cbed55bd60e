"""Growth of counters during a run, with checks that it is plausible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from halcyon_measure.results.observations import Counters, ServerSample, Statistics

TOLERANCE = 0.05
"""Maximum relative difference between the numbers of requests that the server and the client count. If the server
counts fewer, its means aren't used. If it counts more, its means are used, and the result has a note."""
_FEW = 20
"""Maximum number of warm-up requests that may still be in flight when the measured part begins."""


@dataclass(frozen=True)
class Growth:
    """Growth of one replica's counters during the run."""

    counters: Counters
    restarts: int = 0
    """Number of times that the counters restarted at 0, because the pod was replaced or restarted. The growth before
    and after each restart is added up."""


def of_samples(samples: Sequence[ServerSample]) -> Growth | None:
    """Return the growth of a replica's counters; None with fewer than two readings.

    If a counter has decreased, a new process has started to count at 0. The growth of the previous process after its
    last reading is unknown.
    """
    readings = [sample.counters for sample in samples if sample.counters is not None]
    if len(readings) < 2:  # a difference needs two
        return None
    total, restarts = Counters(0, 0, 0, 0, 0, 0, 0), 0
    for old, new in pairwise(readings):
        if new.requests < old.requests or new.executions < old.executions:
            total, restarts = total.plus(new), restarts + 1
        else:
            total = total.plus(new.minus(old))
    return Growth(total, restarts)


def of_statistics(before: Statistics, after: Statistics) -> tuple[Statistics | None, str]:
    """Return the growth of the statistics between two readings. If it isn't plausible, return None and the reason."""
    growth = after.counters.minus(before.counters)
    if min(growth.requests, growth.executions, growth.queue_s, growth.model_s) < 0:
        return None, (
            f"the server's counters ran backwards, from {before.counters.requests:.0f} to "
            f"{after.counters.requests:.0f} requests: another replica answered, or it was restarted"
        )
    sizes = {}
    for rows, later in after.sizes.items():
        earlier = before.sizes.get(rows)
        later_parts = (later.executions, later.input_s, later.model_s, later.output_s)
        earlier_parts = (
            (earlier.executions, earlier.input_s, earlier.model_s, earlier.output_s)
            if earlier is not None
            else (0.0, 0.0, 0.0, 0.0)
        )
        growths = tuple(a - b for a, b in zip(later_parts, earlier_parts, strict=True))
        if growths[0] > 0:
            sizes[rows] = type(later)(*growths)
    return Statistics(growth, sizes), ""


def doubt(growth: Counters, answered: int, in_flight: int = 0) -> tuple[bool, str]:
    """Compare the number of requests in a server's counters with the `answered` requests of this run.

    Return whether the counters' means can be used for the run, and a reason for doubt, which is empty if there is none.
    `in_flight` is the number of warm-up requests that may have ended in the measured part.
    """
    if not answered:
        return False, "no request was answered"
    if growth.requests <= 0:
        return False, f"the server's counters stand still, although it answered {answered} requests"
    slack = max(TOLERANCE * answered, _FEW, in_flight)
    if growth.requests < answered - slack:
        return False, (
            f"the server's counters count {growth.requests:.0f} of {answered} requests: there are several replicas, of "
            "which one was read"
        )
    if growth.requests > answered + slack:
        return True, f"the server's counters include {growth.requests - answered:.0f} requests of others"
    return True, ""


def counter(points: Sequence[tuple[float, float]], name: str) -> tuple[float | None, str]:
    """Return the growth of a single counter over points (time, value).

    If it isn't plausible, return None and the reason.
    """
    if len(points) < 2:  # a difference needs two
        return None, f"{name} was read {len(points)} times; a difference needs two"
    for (_, old), (time_s, new) in pairwise(points):
        if new < old:
            return None, f"{name} ran backwards at {time_s:.0f} s, from {old:g} to {new:g}"
    increase = points[-1][1] - points[0][1]
    if increase == 0:
        return None, f"{name} stands still at {points[0][1]:g}"
    return increase, ""
