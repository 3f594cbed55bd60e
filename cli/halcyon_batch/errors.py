"""Errors of a runner.

BatchError       the user must change something before a runner can go on
RowError         one row has no result; the others go on
"""

from __future__ import annotations

from halcyon_measure.errors import MeasureError


class BatchError(MeasureError):
    """A batch that can't go on. The message has the object, the value, the limit and what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """One word for the failure, as in a condition."""


class RowError(MeasureError):
    """A row without a result."""
