"""Leadership of an operator replica, as set by a test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class FixedLeadership:
    """Leadership that changes only if the test changes it."""

    is_leader: bool = True
    has_leader: bool = True
