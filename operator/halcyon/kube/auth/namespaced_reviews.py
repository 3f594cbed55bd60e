"""Authentication and authorization without TokenReview and SubjectAccessReview, for an operator limited to some namespaces.

Tokens are verified here (`service_account_tokens`), with keys that every service account may read; access is reviewed in the namespace
that it is about. User tokens can't be verified that way, so only service accounts are known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from halcyon.kube import errors
from halcyon.kube.auth import service_account_tokens
from halcyon.kube.auth.callers import ResourceAttributes, User
from halcyon.kube.auth.reviews import access_review, is_allowed
from halcyon.kube.auth.service_account_tokens import Issuer
from halcyon.kube.client import Object
from halcyon.kube.kinds import LOCAL_SUBJECT_ACCESS_REVIEW, Kind

log = logging.getLogger(__name__)

CONFIGURATION, KEYS = "/.well-known/openid-configuration", "/openid/v1/jwks"
MIN_READ_INTERVAL_S = 10.0
"""Minimum time between two reads. An unknown key may be a new one; tokens with unknown keys must not cause more reads."""
MAX_KEY_AGE_S = 3600.0
"""Maximum time that a withdrawn key stays valid."""


class Api(Protocol):
    """The part of the Kubernetes client that reviews use."""

    async def read(self, path: str) -> Object:
        """Read a document that is no object of a kind."""

    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        """Create an object (POST); return the result."""


class NamespacedReviews:
    """Reviews with permissions of a namespace, with the methods of `ApiServerReviews`."""

    covers_all_namespaces = False

    def __init__(self, client: Api, *, monotonic: Callable[[], float], wall: Callable[[], float]) -> None:
        """`client` may create LocalSubjectAccessReviews in the namespaces in question; `wall` is seconds since 1970."""
        self._client = client
        self._monotonic, self._wall = monotonic, wall
        self._issuer: Issuer | None = None
        self._read_at = -MIN_READ_INTERVAL_S
        self._reading = asyncio.Lock()

    async def agent(self, token: str, audience: str) -> str | None:
        """Return the account of an agent's token; None if it isn't valid for this audience.

        Raises:
            ApiError, Unreachable: the keys aren't known yet, and can't be read now.
        """
        account = service_account_tokens.account(
            token, await self._signer(token), audience=audience, now_s=self._wall()
        )
        return None if account is None else account.name

    async def user(self, token: str) -> User | None:
        """Return the service account of a token for the API server itself, whose audience is the issuer's name.

        Raises:
            ApiError, Unreachable: the keys aren't known yet, and can't be read now.
        """
        issuer = await self._signer(token)
        account = service_account_tokens.account(token, issuer, audience=issuer.name, now_s=self._wall())
        if account is None:
            return None
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account.namespace}", "system:authenticated")
        return User(account.name, groups)

    async def may(self, user: User, asked: ResourceAttributes) -> bool:
        """Return True if this user may send the request, which must be about one namespace."""
        review = access_review(LOCAL_SUBJECT_ACCESS_REVIEW, user, asked)
        return is_allowed(await self._client.create(LOCAL_SUBJECT_ACCESS_REVIEW, review, namespace=asked.namespace))

    async def _signer(self, token: str) -> Issuer:
        """Return the issuer, with the token's key if it has one: keys rotate."""
        async with self._reading:
            known, age_s = self._issuer, self._monotonic() - self._read_at
            is_due = (
                known is None
                or age_s >= MAX_KEY_AGE_S
                or (service_account_tokens.key_id(token) not in known.keys and age_s >= MIN_READ_INTERVAL_S)
            )
            if is_due:
                try:
                    self._issuer = await self._read()
                except (errors.ApiError, errors.Unreachable) as error:
                    if known is None or age_s >= 2 * MAX_KEY_AGE_S:
                        raise
                    log.warning("the keys of service-account tokens can't be read", extra={"error": str(error)})
                    return known
                self._read_at = self._monotonic()
            assert self._issuer is not None  # noqa: S101  # read just now, or before
            return self._issuer

    async def _read(self) -> Issuer:
        name: Any = (await self._client.read(CONFIGURATION)).get("issuer")
        return Issuer.of(str(name), await self._client.read(KEYS))
