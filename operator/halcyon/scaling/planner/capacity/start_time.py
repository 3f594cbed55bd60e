"""Start time of pods, learnt from the model's own pods.

Out of scope: the phases of a start (the status shows them), and its metric (`control/reporting/start_time_metrics.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from halcyon.scaling.planner.capacity.replica_capacity import Capacity

PLANNED_SHARE = 0.75
"""Quantile of the recent start times that the planner uses. It covers ordinary slow starts, but not the one start in
twenty that hangs."""
_MAX_STARTS = 20
"""Number of recent start times that are stored. They are enough for a quantile, but few enough that a new image soon
shows."""


def with_starts(capacity: Capacity, pods: Mapping[str | int, float]) -> Capacity:
    """Return the capacity after adding the start times of newly ready pods.

    Each pod is counted once. `pods` contains the start times in seconds by pod name.
    """
    new = [name for name in pods if name not in capacity.started]
    if not new and len(capacity.started) <= 2 * len(pods):
        return capacity
    starts = (*capacity.starts, *(pods[name] for name in new))[-_MAX_STARTS:]
    return replace(capacity, starts=starts, started=frozenset(pods))


def start_s(capacity: Capacity, share: float, default: float) -> float:
    """Return the number of seconds within which a share `share` of the recent pod starts finished.

    Return `default` if there were no starts.
    """
    if not capacity.starts:
        return default
    ordered = sorted(capacity.starts)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
