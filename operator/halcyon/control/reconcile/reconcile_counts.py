"""Counters of the reconciler's writes, for /metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ReconcileCounts:
    """Counters since this process started."""

    written: int = 0
    """Number of writes of child objects."""
    skipped: int = 0
    """Number of child objects that needed no write because they were as desired."""
    statuses: int = 0
    """Number of writes of statuses."""
