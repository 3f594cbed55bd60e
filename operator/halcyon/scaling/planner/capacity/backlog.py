"""Computation of the number of replicas needed to clear a backlog of queued requests.

Pods that are still starting are taken into account.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from halcyon.scaling.frozen import immutable

_LATE = 20.0
"""Maximum ratio of the GPU time spent to keep one request from being late to the GPU time that the request itself
takes. An example is the backlog after a step from 20 to 200 req/s. With a value of 20, nearly all pods needed to clear
it in 10 s are added if pods start in one minute, and a third of them if pods start in three. With 10, the share of late
responses is one to three percentage points higher at start times of three minutes. With 60, GPU time rises by 10 to 50
%."""


@immutable(frozen=True, slots=True)
class Drain:
    """Pods needed to clear the backlog: existing and new ones."""

    keep: int
    """Number of existing pods that are needed to clear the backlog."""
    new: int
    """Number of pods to add to clear the backlog."""
    quickest: int
    """Number of pods to add to clear the backlog within the allowed time, regardless of their cost."""
    left: float
    """Number of requests still queued at the end of the allowed time if no pods were added."""


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
    """Return the replicas needed for the backlog, from a simulation of the next start_s + drain_s seconds.

    The queue is simulated as a fluid:

        - The arrival rate is `rate` now, and changes linearly to `later_rate` within start_s.
        - Each ready pod serves `peak_rps` requests per second. Pods that are starting become ready after the seconds in
          `arriving_s` (ascending).
        - The queue never holds more than `most` requests.

    A ready pod is kept while there is a backlog. A starting pod is kept if there is a backlog when it joins, or if the
    arrival rate from then on exceeds what the other pods serve. New pods would be ready after start_s. Enough new pods
    are added to clear the rest of the backlog within drain_s, unless they cost more than late requests do (`_worth`).
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
    # `most` limits the queue only until new pods serve, so the queue at start_s is at most `most`.
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
    """Return the number of pods to add for a backlog of `level` requests, beyond those that serve `rate`.

    The number minimises a cost with two terms, both in GPU time. First, n pods use n x start_s of GPU time before they
    serve requests. Second, the backlog then lasts level / (n x peak_rps) seconds, and all requests that arrive during
    this time are late. Each late request costs `_LATE` / peak_rps.

    The sum is minimal at the square root in the code, the formula of the economic order quantity. After a burst, if no
    more requests arrive, no further request becomes late, and the result is 0.
    """
    return math.sqrt(_LATE * rate * level / start_s) / peak_rps if start_s > 0 else math.inf
