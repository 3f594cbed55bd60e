"""Replicas to drain a backlog, less what starting pods will absorb."""

from __future__ import annotations

import math
from collections.abc import Sequence

from halcyon.scaling.frozen import immutable

_LATE = 20.0
"""Value of a timely response, in computed requests: up to so many times a request's own GPU time may be spent to keep it from
being late. At 20, a step from 20 to 200 req/s with a start time of a minute still gets nearly what drains it in 10 s; with
start times of three minutes it gets a third. Less (10) costs one to three points of late responses at start times of three
minutes. More (60) costs 10 to 50 % of the GPU time there."""


@immutable(frozen=True, slots=True)
class Drain:
    """Replicas that the backlog asks for."""

    keep: int
    """Existing pods to keep for the backlog."""
    new: int
    """Pods to add to the existing ones."""
    quickest: int
    """Pods to add to drain the backlog in the time allowed."""
    left: float
    """Requests still queued with the existing pods when the time for draining is over."""


def drain(
    *,
    backlog: float,
    rate: float,
    later_rate: float,
    peak_rps: float,
    ready: int,
    arriving_s: Sequence[float],
    start_s: float,
    drain_s: float,
    most: float = math.inf,
) -> Drain:
    """Simulate the backlog as a fluid over the next start_s + drain_s seconds.

    The arrival rate is `rate` now and changes linearly to `later_rate` by start_s. Each ready pod serves `peak_rps`; starting
    pods join in `arriving_s` seconds from now (ascending). A ready pod is kept while a backlog remains. A starting one is kept
    if a backlog remains when it joins, or if the arrival rate from then on exceeds what the other pods serve. New pods would be
    ready in start_s. Enough of them are added to clear, within drain_s, the backlog that remains then, but no more than are
    worth their cost (`_worth`). `most`: maximum length of the queue.
    """
    end = start_s + drain_s
    growth = (later_rate - rate) / start_s if start_s > 0 else 0.0

    def grown(level: float, begin: float, until: float) -> float:
        arriving = rate + growth * min((begin + until) / 2, start_s)
        return level + (arriving - serving * peak_rps) * (until - begin)

    level, at, serving = min(backlog, most), 0.0, ready
    keep = ready if backlog > 0 else 0
    useful = 0
    for joins in arriving_s:
        if joins >= end:
            break
        level = min(max(grown(level, at, joins), 0.0), most)
        at = joins
        arriving = rate + growth * min(joins, start_s)
        if level > 0 or max(arriving, later_rate) > serving * peak_rps:
            serving += 1
            useful += 1
    # The bound only applies until more pods serve: the rest at start_s is the most that can be waiting then.
    if at < start_s:
        level = min(max(grown(level, at, start_s), 0.0), most)
        at = start_s
    left = max(grown(level, at, end), 0.0)
    if useful:
        keep = ready
    quickest = math.ceil(left / (peak_rps * drain_s) - 1e-9) if left > 0 else 0
    worthwhile = later_rate / peak_rps + _worth(level, later_rate, peak_rps, start_s) - serving
    new = max(math.ceil(min(worthwhile, quickest) - 1e-9), 0 if serving else min(quickest, 1))
    return Drain(keep + useful, new, quickest, left)


def _worth(level: float, rate: float, peak_rps: float, start_s: float) -> float:
    """Return the pods, beyond those that serve the `rate`, that are worth their cost for a backlog of `level` requests.

    n pods take n x start_s of GPU time before they serve. Then the backlog lasts level / (n x peak_rps), and requests that
    arrive meanwhile are late: rate times that, each worth `_LATE` / peak_rps of GPU time. The sum is minimal at the root below,
    as in the order quantity of an inventory. After a burst that is over, no further request becomes late.
    """
    return math.sqrt(_LATE * rate * level / start_s) / peak_rps if start_s > 0 else math.inf
