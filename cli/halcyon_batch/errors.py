"""Errors of a batch runner.

BatchError       the user must change something before a runner can continue
RowError         one row has no result; the batch continues with the others
"""

from __future__ import annotations

from halcyon_measure.errors import MeasureError


class BatchError(MeasureError):
    """A batch that can't continue. The message has the object, the value, the limit and what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """One word for the failure, used as the reason of a condition."""


class RowError(MeasureError):
    """A row that has no result."""
