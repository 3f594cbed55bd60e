"""Authentication and authorization for an operator limited to some namespaces, without TokenReview and SubjectAccessReview.

TokenReview and SubjectAccessReview are cluster-scoped, so an operator with permissions in some namespaces only may not
create them. Instead, the operator verifies tokens itself (`service_account_tokens`), with public keys that every
ServiceAccount may read. It checks permissions with a LocalSubjectAccessReview. Only tokens of ServiceAccounts can be
verified in this way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Protocol

from halcyon.kube import errors
from halcyon.kube.auth import service_account_tokens
from halcyon.kube.auth.callers import AgentIdentity, ResourceAttributes, User
from halcyon.kube.auth.reviews import access_review, is_allowed
from halcyon.kube.auth.service_account_tokens import Issuer
from halcyon.kube.client import Object
from halcyon.kube.kinds import LOCAL_SUBJECT_ACCESS_REVIEW, Kind

log = logging.getLogger(__name__)

CONFIGURATION, KEYS = "/.well-known/openid-configuration", "/openid/v1/jwks"
MIN_READ_INTERVAL_S = 10.0
"""Minimum time between two reads of the keys, in seconds.

A token with an unknown key causes a read, because the key may be new. Without this minimum, forged tokens could cause
many reads."""
MAX_KEY_AGE_S = 3600.0
"""Time after which the public keys are read again, in seconds. A key that the API server no longer uses stays valid for
up to this time, or twice as long if the keys can't be read."""


class Api(Protocol):
    """Interface to the methods of the Kubernetes client that `NamespacedReviews` uses."""

    async def read(self, path: str) -> Object:
        """Return the document at a path of the API server. The path is not that of a resource."""

    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        """Create an object, and return it as the API server has stored it."""


class NamespacedReviews:
    """Implementation of `Reviews` for an operator that has permissions in some namespaces only."""

    covers_all_namespaces = False

    def __init__(
        self, client: Api, namespaces: Collection[str], *, monotonic: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        """Create an instance that has not read any public keys yet.

        The operator is limited to `namespaces`, in which `client` may create LocalSubjectAccessReviews.
        """
        self._client, self._namespaces = client, namespaces
        self._monotonic, self._wall = monotonic, wall
        self._issuer: Issuer | None = None
        self._read_at = -MIN_READ_INTERVAL_S
        self._reading = asyncio.Lock()

    async def agent(self, token: str, audience: str) -> AgentIdentity | None:
        """Return the identity in an agent's token; None if the token is not valid for this audience.

        Raises:
            ApiError, Unreachable: the public keys have not been read yet, and cannot be read now.
        """
        account = service_account_tokens.account(
            token, await self._signer(token), audience=audience, now_s=self._wall()
        )
        return None if account is None else AgentIdentity(account.name, account.pod)

    async def user(self, token: str) -> User | None:
        """Return the ServiceAccount of a token issued for the API server; None if the token is not valid.

        The token's audience must be the issuer's name.

        Raises:
            ApiError, Unreachable: the public keys have not been read yet, and cannot be read now.
        """
        issuer = await self._signer(token)
        account = service_account_tokens.account(token, issuer, audience=issuer.name, now_s=self._wall())
        if account is None:
            return None
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account.namespace}", "system:authenticated")
        return User(account.name, groups)

    async def may(self, user: User, access: ResourceAttributes) -> bool:
        """Return True if the user may send a request with these attributes; False outside the operator's namespaces."""
        if access.namespace not in self._namespaces:
            return False  # the operator may not create a review there
        review = access_review(LOCAL_SUBJECT_ACCESS_REVIEW, user, access)
        return is_allowed(await self._client.create(LOCAL_SUBJECT_ACCESS_REVIEW, review, namespace=access.namespace))

    async def _signer(self, token: str) -> Issuer:
        """Return the issuer of the token.

        If the token's key is unknown, first read the issuer's keys again, because they are rotated.
        """
        async with self._reading:
            issuer, age_s = self._issuer, self._monotonic() - self._read_at
            is_due = (
                issuer is None
                or age_s >= MAX_KEY_AGE_S
                or (service_account_tokens.key_id(token) not in issuer.keys and age_s >= MIN_READ_INTERVAL_S)
            )
            if is_due:
                try:
                    self._issuer = await self._read()
                except (errors.ApiError, errors.Unreachable) as error:
                    if issuer is None or age_s >= 2 * MAX_KEY_AGE_S:
                        raise
                    log.warning("the keys of service-account tokens can't be read", extra={"error": str(error)})
                    return issuer
                self._read_at = self._monotonic()
            assert self._issuer is not None  # noqa: S101  # read just now, or before
            return self._issuer

    async def _read(self) -> Issuer:
        name: Any = (await self._client.read(CONFIGURATION)).get("issuer")
        return Issuer.of(str(name), await self._client.read(KEYS))
