"""Limit that all pods of a model share, such as a lock, a database, or a GPU that other processes use.

The limit is detected by comparing the total rate of answers of full pods with the rate that fewer full pods reached
before. Out of scope: whether pods are full (`answer_evidence`), and what the plan does with the limit (`parts`).
"""

from __future__ import annotations

import math

from halcyon.scaling.frozen import immutable
from halcyon.scaling.lazy_text import plain

_MARGINAL = 0.4
"""Share of the expected gain from additional pods, below which the pods are considered to share a limit. The expected
gain is that of independent pods."""
_MORE = 1.3
"""Minimum ratio between two numbers of pods whose rates of answers are compared. With a smaller ratio, the expected
gain can't be distinguished from noise."""
_LIFTED = 1.2
"""Factor by which the rate of answers of all pods must increase before a known shared limit is dropped."""
_PEAK_S = 300.0
"""Maximum age, in seconds, of an earlier rate of fewer full pods that is used for a comparison. Older rates aren't
used, because pods may have become slower."""

Peaks = tuple[tuple[int, float, float], ...]
"""Rates of answers of full pods by number of pods: (ready pods, requests per second of all of them together, time). The
entries are sorted by number of pods."""


@immutable(frozen=True, slots=True)
class SharedLimit:
    """Limit on the rate of all pods together, caused by a shared resource such as a database or a lock."""

    replicas: int
    """Number of replicas that reach the limit: one more than would be needed if the replicas were independent."""
    rps: float
    """Requests per second that all pods together answer at the limit."""
    pods: int
    """Number of full pods with which the limit was detected."""
    at: float
    """Time at which the limit was detected."""

    def describe(self) -> str:
        """Describe how the limit was detected, as a sentence with numbers."""
        return (
            f"{self.pods} full pods answered {plain(self.rps, 3)} req/s together, about as much as {self.replicas - 1} of their "
            "own: they share a limit, so more replicas would answer no more"
        )


def with_peak(
    at: float,
    peaks: Peaks,
    shared: SharedLimit | None,
    ready: int,
    rate: float,
    *,
    slack: float = 0.0,
    alone: tuple[int, float] | None = None,
) -> tuple[Peaks, SharedLimit | None]:
    """Return the stored answer rates and the shared limit after a new measurement.

    The measurement is that `ready` full pods answer `rate` requests per second, with an error of `slack`. `alone` is
    the capacity of fewer pods according to their batch times, as (pods, requests per second of each). It can only show
    a limit that fewer than `ready` replicas reach, because running fewer pods then tests the limit.
    """
    recent = {count: (total, time) for count, total, time in peaks if at - time <= _PEAK_S}
    previous = recent.get(ready)
    recent[ready] = rate if previous is None else previous[0] + 0.2 * (rate - previous[0]), at
    peaks = tuple((count, *recent[count]) for count in sorted(recent))
    now = recent[ready][0]
    if shared is not None:
        # Independent pods answer in proportion to their number.
        is_refuted = shared.replicas <= ready < shared.pods and now + slack < shared.rps * (1 + ready / shared.pods) / 2
        return (((ready, rate, at),), None) if is_refuted or rate - slack > _LIFTED * shared.rps else (peaks, shared)
    each = max([total / count for count, total, _ in peaks] + ([alone[1]] if alone else []))
    for fewer, before, _ in peaks:
        if _adds_little(ready, now + slack, fewer, before):
            total = max(now, before)
            return peaks, SharedLimit(min(math.ceil(total / each - 0.1) + 1, ready), total, ready, at)
    if alone is not None and _adds_little(ready, now + slack, alone[0], alone[0] * alone[1]):
        replicas = math.ceil(max(now, alone[0] * alone[1]) / each - 0.1) + 1
        if replicas < ready:
            return peaks, SharedLimit(replicas, now, ready, at)
    return peaks, None


def _adds_little(ready: int, rate: float, fewer: int, before: float) -> bool:
    """Return whether `ready` pods answer hardly more requests per second than `fewer` pods did before."""
    return ready >= _MORE * fewer and before > 0 and rate - before < _MARGINAL * before * (ready - fewer) / fewer
