"""Exceptions of a batch runner."""

# | exception | meaning |
# | --- | --- |
# | BatchError | the user must change something before a runner can continue |
# | RowError | one row has no result; the batch continues with the others |

from __future__ import annotations

from halcyon_measure.errors import MeasureError


class BatchError(MeasureError):
    """The batch can't continue until the user changes something.

    The message gives the object, the value, the limit and the remedy.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """Cause of the error in one CamelCase word, which becomes the reason of a condition."""


class RowError(MeasureError):
    """A row of a data set has no result."""
