"""Counters of the reconciler's writes, for /metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ReconcileCounts:
    """Counters since the start."""

    written: int = 0
    """Child objects written."""
    skipped: int = 0
    """Child objects that were already as desired."""
    statuses: int = 0
    """Statuses written."""
