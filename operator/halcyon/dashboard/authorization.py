"""Who asks, and which namespaces they may see.

| how the dashboard is served        | the user is                                                                    |
| ---------------------------------- | ------------------------------------------------------------------------------ |
| on localhost, without sign-in      | whoever reaches the port (`kubectl port-forward`), and sees everything         |
| else, from a trusted proxy         | the one in its headers                                                         |
| else, with a token                 | the token's (TokenReview): `Authorization: Bearer`, or the cookie of a session |
| else                               | nobody: 401; headers of a proxy that isn't trusted count for nothing           |

The session is the token itself in a cookie that no script can read: any replica can serve it, nothing is stored, and what the
cluster revokes ends within `KEEP_S`. A user sees the namespaces in which the cluster lets them `list` ModelDeployments
(SubjectAccessReview), and the pages of the models that they may `get`.

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
KEEP_S = 30.0
"""How long a good answer of a review counts."""
KEEP_NO_S = 5.0
"""How long a bad one does: somebody may just have been given the right."""
AT_ONCE = 16
"""Reviews that are asked for at the same time."""
MAX_TOKEN_LENGTH = 3500
"""Characters: browsers drop cookies of more than 4 KiB."""
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class AccessReviews(Protocol):
    """The cluster's own answers. All raise where they can't be had now."""

    @property
    def knows_all(self) -> bool:
        """Whether it can be asked about all namespaces at once."""

    async def user(self, token: str) -> User | None:
        """Whose token it is; None where it isn't valid."""

    async def may_see(self, user: User, *, namespace: str, name: str = "") -> bool:
        """Whether this user may list the ModelDeployments of a namespace (empty: of all), or get the one of this name."""


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
    """One that has signed its users in."""

    networks: Sequence[IPv4Network | IPv6Network]
    """Where its connections come from."""
    user_header: str
    groups_header: str
    """Groups with commas between them."""

    def trusts(self, address: str | None) -> bool:
        """Whether a connection from here is the proxy's."""
        try:
            found = ip_address((address or "").partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None)
        return any((mapped or found) in network for network in self.networks)

    def user(self, request: web.Request) -> User | None:
        """The user in its headers; None where there is none."""
        name = request.headers.get(self.user_header, "").strip()
        told = (part.strip() for value in request.headers.getall(self.groups_header, []) for part in value.split(","))
        groups = tuple(dict.fromkeys(part for part in told if part))
        # Who comes by a proxy is signed in; nobody gets a system's name by it.
        if not name or name.startswith("system:") or any(group.startswith("system:") for group in groups):
            return None
        return User(name, (*groups, "system:authenticated"))


class Authorizer:
    """Authenticates and authorises. All methods belong to one event loop."""

    def __init__(
        self,
        reviews: AccessReviews | None,
        *,
        clock: Callable[[], float],
        namespaces: Callable[[], Collection[str]],
        proxy: Proxy | None = None,
    ) -> None:
        """`reviews` None: no sign-in, for a port that only localhost reaches. `clock` is monotonic, in seconds."""
        self._reviews, self._namespaces, self._proxy = reviews, namespaces, proxy
        self._users: ReviewCache[User | None] = ReviewCache(clock)
        self._allowed: ReviewCache[bool] = ReviewCache(clock, 65536)
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)

    @property
    def is_open(self) -> bool:
        """Whether nobody has to sign in."""
        return self._reviews is None

    async def user(self, request: web.Request) -> User:
        """Who asks.

        Raises:
            Unauthenticated: nobody that the cluster knows.
            Forbidden: the request is for another host: a page of somebody else's that has this one's address.
        """
        found = await self._user(request)
        request[CALLER] = found.name
        return found

    async def _user(self, request: web.Request) -> User:
        if self._reviews is None:
            # A browser's other pages can have a name of theirs resolve to localhost; they can't send another Host.
            if _host(request) not in _LOCAL:
                raise Forbidden("this dashboard is served on localhost only; open it as http://localhost:PORT")
            return User("localhost")
        if self._proxy is not None and self._proxy.trusts(request.remote):
            user = self._proxy.user(request)
            if user is not None:
                return user
        return await self.owner(bearer_token(request.headers) or request.cookies.get(COOKIE, "").strip())

    async def owner(self, token: str) -> User:
        """Whose token this is.

        Raises:
            Unauthenticated: nobody's that the cluster knows.
        """
        if self._reviews is None or not token:
            raise Unauthenticated("sign in with a token of the cluster; good: kubectl create token NAME")
        key = token_digest(token)
        if (held := self._users.get(key)) is None:
            async with self._turns:
                found = await self._reviews.user(token)
            known = found if found is not None and found.name else None
            held = (self._users.put(key, known, expires_at=self._clock() + (KEEP_S if known else KEEP_NO_S)),)
        if (user := held[0]) is None:
            raise Unauthenticated(
                "the cluster doesn't know this token, or it has expired; good: kubectl create token NAME"
            )
        return user

    async def sees(self, user: User) -> frozenset[str] | None:
        """Namespaces whose models this user may list; None: all of them."""
        if self._reviews is None:
            return None
        if self._reviews.knows_all and await self._may(self._reviews, user, namespace=""):
            return None
        spaces, reviews = sorted(self._namespaces()), self._reviews
        allowed = await asyncio.gather(*(self._may(reviews, user, namespace=space) for space in spaces))
        return frozenset(space for space, may in zip(spaces, allowed, strict=True) if may)

    async def may_get(self, user: User, name: Name) -> None:
        """Returns if this user may see the model.

        Raises:
            Forbidden: where they may not; also where there is no such model.
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
            async with self._turns:
                allowed = await reviews.may_see(user, namespace=namespace, name=name)
            held = (self._allowed.put(key, allowed, expires_at=self._clock() + (KEEP_S if allowed else KEEP_NO_S)),)
        return held[0]


def _host(request: web.Request) -> str | None:
    """The name that it was asked for by, without the port; None where that is none."""
    try:
        return urlsplit(f"//{request.host}").hostname
    except ValueError:
        return None
