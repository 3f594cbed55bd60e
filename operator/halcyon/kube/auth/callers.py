"""Callers of the operator's servers: their names, their tokens, and results of reviews that are cached for a while.

Three servers authenticate their callers, and each adds rules of its own:

| server                | credentials                                            | what the caller may do                       |
| --------------------- | ------------------------------------------------------ | -------------------------------------------- |
| reports of agents     | a token for the audience of the collector              | report for the model of its service account  |
| metrics API           | the front proxy's certificate, or a token              | list a metric of a namespace                 |
| dashboard             | a trusted proxy's headers, a token, or a cookie with it | list or get ModelDeployments                 |

Out of scope: the reviews themselves (`reviews`, `namespaced_reviews`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

ACCOUNT = "system:serviceaccount:"
"""Prefix of the user names of service accounts, before `NAMESPACE:NAME`."""

T = TypeVar("T")


@dataclass(frozen=True)
class User:
    """An authenticated user."""

    name: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Unauthenticated(Exception):  # noqa: N818  # an answer (401), not a fault
    """The caller is unknown."""


class Forbidden(Exception):  # noqa: N818  # an answer (403), not a fault
    """The caller lacks the permission."""


class ResourceAttributes(NamedTuple):
    """A request that a user may or may not be allowed to send; empty fields are left out of the review."""

    verb: str
    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""


class Reviews(Protocol):
    """Reviews of users by the cluster. All methods raise if the answer can't be determined now."""

    @property
    def covers_all_namespaces(self) -> bool:
        """Whether one access review can be about all namespaces at once."""

    async def agent(self, token: str, audience: str) -> str | None:
        """Return the account of an agent's token; None if it isn't valid for this audience."""

    async def user(self, token: str) -> User | None:
        """Return the user of a token for the API server itself; None if it isn't valid."""

    async def may(self, user: User, asked: ResourceAttributes) -> bool:
        """Return True if this user may send the request."""


class ServiceAccount(NamedTuple):
    """A service account."""

    namespace: str
    name: str


def service_account(username: str) -> ServiceAccount | None:
    """Return the service account with this user name; None if it is another user's."""
    if not username.startswith(ACCOUNT):
        return None
    namespace, _, name = username.removeprefix(ACCOUNT).partition(":")
    return ServiceAccount(namespace, name) if namespace and name and ":" not in name else None


def bearer_token(headers: Mapping[str, str]) -> str:
    """Return the token of a request's Authorization header; empty if there is none."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def token_digest(token: str) -> bytes:
    """Return a key for a token, so that a cache holds no credentials."""
    return hashlib.sha256(token.encode()).digest()


class ReviewCache(Generic[T]):
    """Answers of reviews until they expire. If it is full of valid answers, all are dropped."""

    def __init__(self, monotonic: Callable[[], float], max_answers: int = 4096) -> None:
        self._monotonic, self._max_answers = monotonic, max_answers
        self._answers: dict[object, tuple[float, T]] = {}

    def get(self, key: object) -> tuple[T] | None:
        """Return the answer in a tuple, because None may be one; None if there is no valid answer."""
        held = self._answers.get(key)
        return (held[1],) if held is not None and self._monotonic() < held[0] else None

    def put(self, key: object, answer: T, *, expires_at: float) -> T:
        """Keep an answer until this time; return it."""
        now = self._monotonic()
        if len(self._answers) >= self._max_answers:
            self._answers = {k: v for k, v in self._answers.items() if v[0] > now}
        if len(self._answers) >= self._max_answers:
            self._answers.clear()
        self._answers[key] = (expires_at, answer)
        return answer

    def discard(self, key: object) -> None:
        """Drop an answer, if there is one."""
        self._answers.pop(key, None)
