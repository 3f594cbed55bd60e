"""Exceptions of a batch runner."""

# | exception | meaning |
# | --- | --- |
# | BatchError | the user must change something before a runner can continue |
# | RowError | one row has no result; the batch continues with the others |
# | OSError | a volume or a store doesn't respond now; a new runner continues |

from __future__ import annotations

import errno

from halcyon_measure.errors import MeasureError

_TEMPORARY = frozenset(
    {
        *(errno.EIO, errno.ESTALE, errno.EREMOTEIO, errno.ENOTCONN, errno.ETIMEDOUT, errno.EAGAIN),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ECONNRESET),
        *(errno.ENOMEM, errno.EMFILE, errno.ENFILE),
    }
)
"""Codes of errors of a file system that can pass, for example while a file server restarts."""


class BatchError(MeasureError):
    """The batch can't continue until the user changes something.

    The message gives the object, the value, the limit and the remedy.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """Cause of the error in one CamelCase word, which becomes the reason of a condition."""


class RowError(MeasureError):
    """Exception for a row of a data set that has no result."""


def is_temporary(error: BaseException) -> bool:
    """Return whether an error of a file system can pass, so that a new runner can continue without the user."""
    return isinstance(error, OSError) and error.errno in _TEMPORARY
