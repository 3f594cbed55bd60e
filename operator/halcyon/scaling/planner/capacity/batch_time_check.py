"""Comparison of a request's time in its pod with Triton's batch times: when they contradict each other or agree. Pure.

Out of scope: measuring the time in a pod (`answer_samples`), and for how long the two must agree (`answer_evidence`).
"""

from __future__ import annotations

from halcyon.scaling.planner.capacity.queueing import Replica

_FACTOR = 3.0
"""Ratio of a request's time in its pod to the time predicted from batch times, above which the two contradict each
other."""
_MIN_S = 0.25
"""Seconds by which the time in a pod must also exceed the prediction. They allow for transfers and for the sampling of
counters."""
_AGREED_FACTOR, _AGREED_S = 2.0, 0.02
"""Limit on the time in a pod, below which batch times are used again after a contradiction. It is `_AGREED_FACTOR`
times the time predicted from the batch times, plus `_AGREED_S` seconds."""
PROMISED = 0.5
"""Share of the rate of answers predicted from batch times, below which the rate of full pods contradicts the
prediction."""


def limit_s(replica: Replica | None, held: float) -> float:
    """Return the time in a pod, in seconds, above which a request contradicts the batch times; 0 without batch times.

    `held` is the number of requests that the pod executes.
    """
    if replica is None:
        return 0.0
    rounds = max(held / (replica.max_batch * replica.instances), 1.0)
    return _FACTOR * rounds * replica.batch_s + _MIN_S


def agreed_s(limit: float) -> float:
    """Return the maximum time in a pod, in seconds, at which batch times are used again.

    `limit` is the result of `limit_s`.
    """
    return (limit - _MIN_S) * _AGREED_FACTOR / _FACTOR + _AGREED_S
