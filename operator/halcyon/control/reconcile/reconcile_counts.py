"""Counters of the objects that the reconciler writes, for the /metrics page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ReconcileCounts:
    """Counters of writes since this process started."""

    written: int = 0
    """Number of writes of child objects."""
    skipped: int = 0
    """Number of child objects that needed no write because they matched the plan."""
    statuses: int = 0
    """Number of status writes."""
