"""Time that a pod takes to start, learnt from the model's own pods.

Out of scope: what a start consists of (the status shows its phases), and its metric (`control/reporting/start_time_metrics.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from halcyon.scaling.planner.capacity.replica_capacity import Capacity

PLANNED_SHARE = 0.75
"""Quantile of the start times to plan with: the usual slow start, not the one in twenty that hangs."""
_MAX_STARTS = 20
"""Number of starts remembered: enough for a quantile, few enough to follow a faster image."""


def with_starts(capacity: Capacity, pods: Mapping[str | int, float]) -> Capacity:
    """Add the start times (s) of the pods that have become ready, by name; each counts once."""
    new = [name for name in pods if name not in capacity.started]
    if not new and len(capacity.started) <= 2 * len(pods):
        return capacity
    starts = (*capacity.starts, *(pods[name] for name in new))[-_MAX_STARTS:]
    return replace(capacity, starts=starts, started=frozenset(pods))


def start_s(capacity: Capacity, share: float, default: float) -> float:
    """Return the time within which `share` of the last starts were ready; `default` if there were none."""
    if not capacity.starts:
        return default
    ordered = sorted(capacity.starts)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
