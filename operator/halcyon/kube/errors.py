"""Exceptions of the operator.

All of them are subclasses of `HalcyonError`. Responses with an error status are subclasses of `ApiError`.
"""

from __future__ import annotations


class HalcyonError(Exception):
    """Base class of all exceptions of the operator."""


class SettingsError(HalcyonError):
    """A command-line option is invalid."""


class Unreachable(HalcyonError):  # noqa: N818  # a state as the name, as in httpx and aiohttp
    """The API server did not respond."""


class FrontEnded(HalcyonError):  # noqa: N818
    """The framework kopf ended unexpectedly."""


class LeaseLost(HalcyonError):  # noqa: N818
    """Another replica may be the leader, so this process must exit."""


class ApiError(HalcyonError):
    """The API server responded with an error."""

    def __init__(self, status: int, message: str, *, reason: str = "", retry_after_s: float | None = None) -> None:
        """Create the error; `message` is the API server's message, prefixed with the operation that failed."""
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s


class NotFound(ApiError):  # noqa: N818
    """The API server responded with 404: the object does not exist."""


class Conflicted(ApiError):  # noqa: N818
    """The API server responded with 409: the object exists already, another manager owns a field, or another writer changed it."""


class Gone(ApiError):  # noqa: N818
    """The API server responded with 410: the resource version is too old, so list again."""


class Refused(ApiError):  # noqa: N818
    """The API server responded with 401, 403, 422 or a similar 4xx: a retry without a change would fail again."""


class Busy(ApiError):  # noqa: N818
    """The API server responded with 429 or 5xx: retry later."""


def of_status(status: int, message: str, *, reason: str = "", retry_after_s: float | None = None) -> ApiError:
    """Return an exception of the class for this HTTP status."""
    kinds: dict[int, type[ApiError]] = {404: NotFound, 409: Conflicted, 410: Gone}
    fallback = Refused if status in {400, 401, 403, 405, 413, 415, 422} else Busy
    return kinds.get(status, fallback)(status, message, reason=reason, retry_after_s=retry_after_s)
