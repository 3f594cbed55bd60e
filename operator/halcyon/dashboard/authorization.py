"""Authentication of a request's user, and the namespaces that this user may see.

| request                            | user                                                                           |
| ---------------------------------- | ------------------------------------------------------------------------------ |
| on localhost, without sign-in      | any user who can reach the port (`kubectl port-forward`); sees everything      |
| else, from a trusted proxy         | the user in the proxy's headers                                                |
| else, with a token                 | the token's user (TokenReview): `Authorization: Bearer`, or the session cookie |
| else                               | none: 401; headers from an untrusted proxy are ignored                         |

The session is the token itself, in a cookie that scripts can't read. Any replica can serve it, nothing is stored, and a revoked token
stops working within `ALLOWED_TTL_S`. A user sees the namespaces in which they may `list` ModelDeployments (SubjectAccessReview), and the pages
of the models that they may `get`.

Out of scope: the reviews themselves (`halcyon.kube.auth`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Protocol
from urllib.parse import urlsplit

from aiohttp import web

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
from halcyon.metricsapi.auth import CALLER

COOKIE = "halcyon-token"
ALLOWED_TTL_S = 30.0
"""Time for which a positive review is cached."""
DENIED_TTL_S = 5.0
"""Time for which a negative review is cached; short, because the permission may be granted meanwhile."""
MAX_CONCURRENT_REVIEWS = 16
"""Maximum number of concurrent reviews."""
MAX_TOKEN_LENGTH = 3500
"""Maximum length in characters: browsers drop cookies of more than 4 KiB."""
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class AccessReviews(Protocol):
    """Reviews by the API server. All methods raise an exception if it is unavailable."""

    @property
    def knows_all(self) -> bool:
        """Whether one review can cover all namespaces."""

    async def user(self, token: str) -> User | None:
        """Return the user of a token; None if the token is invalid."""

    async def may_see(self, user: User, *, namespace: str, name: str = "") -> bool:
        """Return whether a user may list the ModelDeployments of a namespace (empty: all), or get the one with this name."""


class ModelReviews:
    """Access reviews of models, over the cluster's reviews."""

    def __init__(self, reviews: Reviews) -> None:
        self._reviews = reviews

    @property
    def knows_all(self) -> bool:
        """Whether one review can cover all namespaces."""
        return self._reviews.covers_all_namespaces

    async def user(self, token: str) -> User | None:
        """Return the user of a token; None if it isn't valid."""
        return await self._reviews.user(token)

    async def may_see(self, user: User, *, namespace: str, name: str = "") -> bool:
        """Return whether a user may list the ModelDeployments of a namespace (empty: all), or get the one with this name."""
        verb = "get" if name else "list"
        return await self._reviews.may(user, ResourceAttributes(verb, GROUP, VERSION, PLURAL, namespace, name))


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that authenticates its users."""

    networks: Sequence[IPv4Network | IPv6Network]
    """Networks that its connections come from."""
    user_header: str
    groups_header: str
    """Header with comma-separated groups."""

    def trusts(self, address: str | None) -> bool:
        """Return whether a connection from this address is the proxy's."""
        try:
            source = ip_address((address or "").partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(source, "ipv4_mapped", None)
        return any((mapped or source) in network for network in self.networks)

    def user(self, request: web.Request) -> User | None:
        """Return the user in the request's headers; None if there is none."""
        name = request.headers.get(self.user_header, "").strip()
        parts = (part.strip() for value in request.headers.getall(self.groups_header, []) for part in value.split(","))
        groups = tuple(dict.fromkeys(part for part in parts if part))
        # The proxy authenticates people; it can't grant the name of a system user or group.
        if not name or name.startswith("system:") or any(group.startswith("system:") for group in groups):
            return None
        return User(name, (*groups, "system:authenticated"))


class Authorizer:
    """Authenticator and authoriser of requests. All methods belong to one event loop."""

    def __init__(
        self,
        reviews: AccessReviews | None,
        *,
        clock: Callable[[], float],
        namespaces: Callable[[], Collection[str]],
        proxy: Proxy | None = None,
    ) -> None:
        """Take the reviews; None: no sign-in, for a port that is reachable from localhost only. `clock` is monotonic, in seconds."""
        self._reviews, self._namespaces, self._proxy = reviews, namespaces, proxy
        self._users: ReviewCache[User | None] = ReviewCache(clock)
        self._allowed: ReviewCache[bool] = ReviewCache(clock, 65536)
        self._clock = clock
        self._review_slots = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)

    @property
    def is_open(self) -> bool:
        """Whether users need no sign-in."""
        return self._reviews is None

    async def user(self, request: web.Request) -> User:
        """Return the user of a request.

        Raises:
            Unauthenticated: the cluster doesn't know the user.
            Forbidden: the request is for another host, as from another site's page whose name resolves to this address.
        """
        user = await self._user(request)
        request[CALLER] = user.name
        return user

    async def _user(self, request: web.Request) -> User:
        if self._reviews is None:
            # Another site's page can make its own name resolve to localhost (DNS rebinding), but it can't change the Host header.
            if _host(request) not in _LOCAL:
                raise Forbidden("this dashboard is served on localhost only; open it as http://localhost:PORT")
            return User("localhost")
        if self._proxy is not None and self._proxy.trusts(request.remote):
            user = self._proxy.user(request)
            if user is not None:
                return user
        return await self.owner(bearer_token(request.headers) or request.cookies.get(COOKIE, "").strip())

    async def owner(self, token: str) -> User:
        """Return the user of a token.

        Raises:
            Unauthenticated: the cluster doesn't know the token.
        """
        if self._reviews is None or not token:
            raise Unauthenticated("sign in with a token of the cluster; good: kubectl create token NAME")
        key = token_digest(token)
        if (held := self._users.get(key)) is None:
            async with self._review_slots:
                reviewed = await self._reviews.user(token)
            known = reviewed if reviewed is not None and reviewed.name else None
            held = (self._users.put(key, known, expires_at=self._clock() + (ALLOWED_TTL_S if known else DENIED_TTL_S)),)
        if (user := held[0]) is None:
            raise Unauthenticated(
                "the cluster doesn't know this token, or it has expired; good: kubectl create token NAME"
            )
        return user

    async def sees(self, user: User) -> frozenset[str] | None:
        """Return the namespaces whose models a user may list; None: all."""
        if self._reviews is None:
            return None
        if self._reviews.knows_all and await self._may(self._reviews, user, namespace=""):
            return None
        spaces, reviews = sorted(self._namespaces()), self._reviews
        allowed = await asyncio.gather(*(self._may(reviews, user, namespace=space) for space in spaces))
        return frozenset(space for space, may in zip(spaces, allowed, strict=True) if may)

    async def may_get(self, user: User, name: Name) -> None:
        """Check that a user may get a model.

        Raises:
            Forbidden: they may not, or the model doesn't exist.
        """
        if self._reviews is None or await self._may(self._reviews, user, namespace=name.namespace, name=name.name):
            return
        raise Forbidden(
            f'User "{user.name}" cannot get modeldeployments.serving.halcyon.dev "{name.name}" in the namespace '
            f'"{name.namespace}"'
        )

    async def _may(self, reviews: AccessReviews, user: User, *, namespace: str, name: str = "") -> bool:
        extra = tuple(sorted((key, tuple(values)) for key, values in user.extra.items()))
        key = (user.name, user.groups, extra, namespace, name)
        if (held := self._allowed.get(key)) is None:
            async with self._review_slots:
                allowed = await reviews.may_see(user, namespace=namespace, name=name)
            held = (
                self._allowed.put(
                    key, allowed, expires_at=self._clock() + (ALLOWED_TTL_S if allowed else DENIED_TTL_S)
                ),
            )
        return held[0]


def _host(request: web.Request) -> str | None:
    """Return the host name of a request without the port; None if it is invalid."""
    try:
        return urlsplit(f"//{request.host}").hostname
    except ValueError:
        return None
