"""Authentication of the user who sends a request, and the namespaces that this user may see.

A session is the token itself, in a cookie that scripts cannot read. Replicas therefore store no sessions, any replica
can serve a session, and a revoked token stops working within `ALLOWED_TTL_S`. Users see the namespaces in which they
may `list` ModelDeployments (SubjectAccessReview), and the pages of models that they may `get`.

Out of scope: the reviews themselves (`halcyon.kube.auth`).
"""

# | request                                   | user                                                                                |
# | ----------------------------------------- | ----------------------------------------------------------------------------------- |
# | sign-in is off (localhost only)           | anyone who can reach the port (`kubectl port-forward`); may see everything          |
# | from a trusted proxy                      | the user in the proxy's headers                                                     |
# | with a token, in `Authorization: Bearer`  | the user of the token (TokenReview)                                                 |
# | or in the session cookie                  |                                                                                     |
# | any other                                 | none: 401; headers from an untrusted proxy are ignored                              |

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Protocol
from urllib.parse import urlsplit

from aiohttp import web
from typing_extensions import override

from halcyon.api.types import GROUP, PLURAL, VERSION
from halcyon.dashboard.ports import Name
from halcyon.kube.auth.callers import (
    Forbidden,
    ResourceAttributes,
    ReviewCache,
    Reviews,
    Unauthenticated,
    User,
    bearer_token,
    token_digest,
)
from halcyon.kube.auth.rate_limit import Limiter
from halcyon.metricsapi.auth import CALLER, TooOften

COOKIE = "halcyon-token"
ALLOWED_TTL_S = 30.0
"""Time for which a review that allows access is cached, in seconds."""
DENIED_TTL_S = 5.0
"""Time for which a review that denies access is cached, in seconds. It is short, because the permission may be granted soon."""
MAX_REVIEWS_PER_S = 5.0
"""Maximum mean rate of access reviews for one user over all namespaces, in reviews per second.

An open page needs the user's permissions every second. With 1,000 namespaces, a denial is therefore cached for 200 s.
"""
MAX_CONCURRENT_REVIEWS = 16
"""Maximum number of concurrent access reviews."""
MAX_TOKEN_LENGTH = 3500
"""Maximum length of a token in characters, because browsers drop cookies of more than 4 KiB."""
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class AccessReviews(Protocol):
    """Interface to access reviews by the API server. All methods raise an exception if it is unavailable."""

    @property
    def covers_all(self) -> bool:
        """Whether a single access review can cover all namespaces."""

    async def user(self, token: str) -> User | None:
        """Return the user of a token; None if the token is invalid."""

    async def may_see(self, user: User, *, namespace: str, name: str = "") -> bool:
        """Return True if the user may get this ModelDeployment.

        If the name is empty, return True if the user may list ModelDeployments: in the namespace, or in all if it is
        empty.
        """


class ModelReviews(AccessReviews):
    """Implementation of `AccessReviews` for ModelDeployments with the operator's `Reviews`."""

    def __init__(self, reviews: Reviews) -> None:
        self._reviews = reviews

    @property
    @override
    def covers_all(self) -> bool:
        return self._reviews.covers_all_namespaces

    @override
    async def user(self, token: str) -> User | None:
        return await self._reviews.user(token)

    @override
    async def may_see(self, user: User, *, namespace: str, name: str = "") -> bool:
        verb = "get" if name else "list"
        return await self._reviews.may(user, ResourceAttributes(verb, GROUP, VERSION, PLURAL, namespace, name))


@dataclass(frozen=True, slots=True)
class Proxy:
    """Settings of a trusted reverse proxy that authenticates users."""

    networks: Sequence[IPv4Network | IPv6Network]
    """Networks from which the proxy connects."""
    user_header: str
    groups_header: str
    """Name of the header with the user's groups, separated by commas."""

    def trusts(self, address: str | None) -> bool:
        """Return True if connections from this address come from the proxy."""
        try:
            source = ip_address((address or "").partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(source, "ipv4_mapped", None)
        return any((mapped or source) in network for network in self.networks)

    def user(self, request: web.Request) -> User | None:
        """Return the user whom the proxy names in the headers of the request; None if it names none."""
        name = request.headers.get(self.user_header, "").strip()
        parts = (part.strip() for value in request.headers.getall(self.groups_header, []) for part in value.split(","))
        groups = tuple(dict.fromkeys(part for part in parts if part))
        # The proxy authenticates people, so it must not assign the names of system users or groups.
        if not name or name.startswith("system:") or any(group.startswith("system:") for group in groups):
            return None
        return User(name, (*groups, "system:authenticated"))


class Authorizer:
    """Authentication and authorization of requests. All methods must be called in the same event loop."""

    def __init__(
        self,
        reviews: AccessReviews | None,
        *,
        clock: Callable[[], float],
        namespaces: Callable[[], Collection[str]],
        proxy: Proxy | None = None,
    ) -> None:
        """Create the authorizer. `namespaces` returns the namespaces that contain models.

        `reviews` is None if there is no sign-in, for a port that is reachable from localhost only. `proxy` is the
        trusted proxy that authenticates users; None if there is none.
        """
        self._reviews, self._namespaces, self._proxy = reviews, namespaces, proxy
        self._users: ReviewCache[User | None] = ReviewCache(clock)
        self._allowed: ReviewCache[bool] = ReviewCache(clock, 65536)
        self._clock = clock
        self._failures = Limiter(clock)
        """Rate limit for invalid tokens, by address of the client."""
        self._review_slots = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)

    @property
    def is_open(self) -> bool:
        """Whether the dashboard can be used without signing in."""
        return self._reviews is None

    async def user(self, request: web.Request) -> User:
        """Return the authenticated user of a request.

        Raises:
            Unauthenticated: the request has no valid credentials.
            Forbidden: sign-in is off and the Host header is not localhost, as in a DNS rebinding attack.
        """
        user = await self._user(request)
        request[CALLER] = user.name
        return user

    async def _user(self, request: web.Request) -> User:
        if self._reviews is None:
            # A page of another site can make its own name resolve to localhost (DNS rebinding), but it cannot change the Host header.
            if _host(request) not in _LOCAL:
                raise Forbidden("this dashboard is served on localhost only; open it as http://localhost:PORT")
            return User("localhost")
        if self._proxy is not None and self._proxy.trusts(request.remote):
            user = self._proxy.user(request)
            if user is not None:
                return user
        return await self.owner(self.token(request), request.remote or "")

    def token(self, request: web.Request) -> str:
        """Return the token of a request; empty if it has none, or if none is needed because sign-in is off."""
        if self._reviews is None:
            return ""
        return bearer_token(request.headers) or request.cookies.get(COOKIE, "").strip()

    async def owner(self, token: str, address: str) -> User:
        """Return the user of a token that was sent from this address.

        Raises:
            Unauthenticated: the token is empty, not ASCII, invalid or expired.
            TooOften: the address has sent too many invalid tokens, so this one was not reviewed.
        """
        if self._reviews is None or not token or not token.isascii():
            raise Unauthenticated("sign in with a token of the cluster, for example from kubectl create token NAME")
        key = token_digest(token)
        if (item := self._users.get(key)) is None:
            async with self._review_slots:
                if wait_s := self._failures.wait_s(address):
                    raise TooOften(wait_s)
                reviewed = await self._reviews.user(token)
            valid = reviewed if reviewed is not None and reviewed.name else None
            if valid is None:
                self._failures.take(address)
            item = (self._users.put(key, valid, expires_at=self._clock() + (ALLOWED_TTL_S if valid else DENIED_TTL_S)),)
        if (user := item[0]) is None:
            raise Unauthenticated(
                "the token has expired or is not valid in this cluster; create one, for example with kubectl create token NAME"
            )
        return user

    async def visible_namespaces(self, user: User) -> frozenset[str] | None:
        """Return the namespaces whose models the user may list; None means all namespaces."""
        if self._reviews is None:
            return None
        if self._reviews.covers_all and await self._may(self._reviews, user, namespace=""):
            return None
        namespaces, reviews = sorted(self._namespaces()), self._reviews
        ttl_s = max(DENIED_TTL_S, len(namespaces) / MAX_REVIEWS_PER_S)
        prefix = _identity(user)
        cached = {space: hit[0] for space in namespaces if (hit := self._allowed.get((*prefix, space, ""))) is not None}
        missing = [space for space in namespaces if space not in cached]
        answers = await asyncio.gather(
            *(self._may(reviews, user, namespace=space, denied_ttl_s=ttl_s) for space in missing)
        )
        allowed = cached | dict(zip(missing, answers, strict=True))
        return frozenset(space for space in namespaces if allowed[space])

    async def may_get(self, user: User, name: Name) -> None:
        """Raise an error if the user may not get the model.

        Raises:
            Forbidden: the user does not have the permission, whether or not the model exists.
        """
        if self._reviews is None or await self._may(self._reviews, user, namespace=name.namespace, name=name.name):
            return
        resource = f'modeldeployments.serving.halcyon.dev "{name.name}" in the namespace "{name.namespace}"'
        raise Forbidden(f'User "{user.name}" cannot get {resource}')

    async def _may(
        self, reviews: AccessReviews, user: User, *, namespace: str, name: str = "", denied_ttl_s: float = DENIED_TTL_S
    ) -> bool:
        key = (*_identity(user), namespace, name)
        if (item := self._allowed.get(key)) is not None:
            return item[0]
        async with self._review_slots:
            allowed = await reviews.may_see(user, namespace=namespace, name=name)
        ttl_s = ALLOWED_TTL_S if allowed else denied_ttl_s
        return self._allowed.put(key, allowed, expires_at=self._clock() + ttl_s)


def _identity(user: User) -> tuple[object, ...]:
    return user.name, user.groups, tuple(sorted((key, tuple(values)) for key, values in user.extra.items()))


def _host(request: web.Request) -> str | None:
    """Return the host name in the request's Host header, without the port; None if it is invalid."""
    try:
        return urlsplit(f"//{request.host}").hostname
    except ValueError:
        return None
