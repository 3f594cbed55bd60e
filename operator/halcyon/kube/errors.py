"""Every error that the controller raises.

HalcyonError
├── SettingsError        a command-line option is wrong
├── ApiError             the API server answered with an error
│   ├── NotFound         404
│   ├── Conflicted       409: exists already, another manager owns the field, or another writer changed the object
│   ├── Gone             410: the resource version is too old, list again
│   ├── Refused          401, 403, 422 and other 4xx: a retry fails again without a change
│   └── Busy             429, 5xx: retry later
├── Unreachable          no response from the API server
├── FrontEnded           kopf has ended unexpectedly: this process must end
└── LeaseLost            another replica may lead: this process must end
"""

from __future__ import annotations


class HalcyonError(Exception):
    """Base class of all errors."""


class SettingsError(HalcyonError):
    """A command-line option is wrong."""


class Unreachable(HalcyonError):  # noqa: N818  # says what is, as httpx's and aiohttp's do
    """No response from the API server."""


class FrontEnded(HalcyonError):  # noqa: N818
    """Kopf has ended unexpectedly: this process must end."""


class LeaseLost(HalcyonError):  # noqa: N818
    """Another replica may lead: this process must end."""


class ApiError(HalcyonError):
    """The API server answered with an error."""

    def __init__(self, status: int, message: str, *, reason: str = "", retry_after_s: float | None = None) -> None:
        """`message` is the API server's message, prefixed with the operation that failed."""
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s


class NotFound(ApiError):  # noqa: N818
    """404."""


class Conflicted(ApiError):  # noqa: N818
    """409: exists already, another manager owns the field, or another writer changed the object."""


class Gone(ApiError):  # noqa: N818
    """410: the resource version is too old, list again."""


class Refused(ApiError):  # noqa: N818
    """401, 403, 422 and other 4xx: a retry fails again without a change."""


class Busy(ApiError):  # noqa: N818
    """429, 5xx: retry later."""


def of_status(status: int, message: str, *, reason: str = "", retry_after_s: float | None = None) -> ApiError:
    """Return the error for an HTTP status."""
    kinds: dict[int, type[ApiError]] = {404: NotFound, 409: Conflicted, 410: Gone}
    fallback = Refused if status in {400, 401, 403, 405, 413, 415, 422} else Busy
    return kinds.get(status, fallback)(status, message, reason=reason, retry_after_s=retry_after_s)
