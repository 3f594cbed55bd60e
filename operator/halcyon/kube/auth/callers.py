"""Identity of callers of the operator's servers, with a cache for the results of reviews.

Three servers authenticate their callers: the collector of reports, the metrics API and the dashboard. They differ in
the credentials that they accept, and in the permission that they check.

Out of scope: the reviews themselves (`reviews`, `namespaced_reviews`).
"""

# | server                | credentials                                              | permission that is checked                    |
# | --------------------- | -------------------------------------------------------- | --------------------------------------------- |
# | collector of reports  | a token for the audience of the collector                | to report for the model of its ServiceAccount |
# | metrics API           | the front proxy's certificate, or a token                | to list a metric in a namespace               |
# | dashboard             | a trusted proxy's headers, a token, or a cookie with one | to list or get ModelDeployments               |

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

ACCOUNT = "system:serviceaccount:"
"""Prefix of the user name of a ServiceAccount, followed by `NAMESPACE:NAME`."""

T = TypeVar("T")


@dataclass(frozen=True)
class User:
    """User that has been authenticated, with the attributes that access reviews need."""

    name: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Unauthenticated(Exception):  # noqa: N818  # an answer (401), not a fault
    """The caller cannot be authenticated (401)."""


class Forbidden(Exception):  # noqa: N818  # an answer (403), not a fault
    """The caller does not have the permission (403)."""


class ResourceAttributes(NamedTuple):
    """Attributes of a request that an access review of its permission needs.

    Empty fields are omitted from the review.
    """

    verb: str
    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""


class AgentIdentity(NamedTuple):
    """Identity of an agent, as read from its token."""

    account: str
    """User name of the agent's ServiceAccount."""
    pod: str
    """Name of the pod to which the token is bound; empty if the token is bound to no pod."""


class Reviews(Protocol):
    """Interface for authenticating and authorizing callers.

    All methods raise an error if the result cannot be determined now.
    """

    @property
    def covers_all_namespaces(self) -> bool:
        """Whether a single access review can cover all namespaces."""

    async def agent(self, token: str, audience: str) -> AgentIdentity | None:
        """Return the identity in an agent's token; None if the token is not valid for this audience."""

    async def user(self, token: str) -> User | None:
        """Return the user of a token for the API server; None if the token is not valid."""

    async def may(self, user: User, access: ResourceAttributes) -> bool:
        """Return True if the user may send a request with these attributes."""


class ServiceAccount(NamedTuple):
    """Namespace and name of a ServiceAccount."""

    namespace: str
    name: str


def service_account(username: str) -> ServiceAccount | None:
    """Return the ServiceAccount with this user name. Return None if the name belongs to another kind of user."""
    if not username.startswith(ACCOUNT):
        return None
    namespace, _, name = username.removeprefix(ACCOUNT).partition(":")
    return ServiceAccount(namespace, name) if namespace and name and ":" not in name else None


def bearer_token(headers: Mapping[str, str]) -> str:
    """Return the bearer token in the request's Authorization header; empty if there is none, or if it isn't ASCII."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.isascii() else ""


def token_digest(token: str) -> bytes:
    """Return a digest of the token. It is used as a key of a cache, so that the cache contains no credentials."""
    return hashlib.sha256(token.encode()).digest()


class ReviewCache(Generic[T]):
    """Cache of review results, each with an expiry time. If the cache is full of valid results, it is cleared."""

    def __init__(self, monotonic: Callable[[], float], max_answers: int = 4096) -> None:
        self._monotonic, self._max_answers = monotonic, max_answers
        self._answers: dict[object, tuple[float, T]] = {}

    def get(self, key: object) -> tuple[T] | None:
        """Return the valid cached result for a key, in a tuple with one item.

        Return None if there is no valid result. The tuple distinguishes this from a result that is None.
        """
        entry = self._answers.get(key)
        return (entry[1],) if entry is not None and self._monotonic() < entry[0] else None

    def put(self, key: object, answer: T, *, expires_at: float) -> T:
        """Store a result until the time `expires_at`, and return the result."""
        now = self._monotonic()
        if len(self._answers) >= self._max_answers:
            self._answers = {k: v for k, v in self._answers.items() if v[0] > now}
        if len(self._answers) >= self._max_answers:
            self._answers.clear()
        self._answers[key] = (expires_at, answer)
        return answer

    def discard(self, key: object) -> None:
        """Remove the result for this key, if there is one."""
        self._answers.pop(key, None)
