"""Authentication and authorization by the API server, with TokenReview and SubjectAccessReview."""

from __future__ import annotations

from halcyon.kube.auth.callers import AgentIdentity, ResourceAttributes, User
from halcyon.kube.client import Kube, Object
from halcyon.kube.kinds import SUBJECT_ACCESS_REVIEW, TOKEN_REVIEW, Kind

POD_NAME = "authentication.kubernetes.io/pod-name"
"""Key in the extra fields of a user. Its value is the name of the pod to which the user's token is bound."""


def access_review(kind: Kind, user: User, access: ResourceAttributes) -> Object:
    """Return an access review object of this kind.

    It reviews whether the user may send a request with these attributes.
    """
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        **({"metadata": {"namespace": access.namespace}} if kind.namespaced else {}),
        "spec": {
            "user": user.name,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra.items()},
            "resourceAttributes": {key: value for key, value in access._asdict().items() if value},
        },
    }


def is_allowed(review: Object) -> bool:
    """Return True if the API server's response to an access review allows the request."""
    return bool((review.get("status") or {}).get("allowed"))


class ApiServerReviews:
    """Implementation of `Reviews` with TokenReview and SubjectAccessReview."""

    covers_all_namespaces = True

    def __init__(self, client: Kube) -> None:
        """Create the reviews with a Kubernetes client that may create TokenReviews and SubjectAccessReviews."""
        self._client = client

    async def agent(self, token: str, audience: str) -> AgentIdentity | None:
        """Return the identity in an agent's token; None if the token is not valid for this audience."""
        user = await self._user({"token": token, "audiences": [audience]}, audience)
        return None if user is None else AgentIdentity(user.name, next(iter(user.extra.get(POD_NAME, ())), ""))

    async def user(self, token: str) -> User | None:
        """Return the user of a token for the API server; None if the token is not valid."""
        return await self._user({"token": token}, None)

    async def may(self, user: User, access: ResourceAttributes) -> bool:
        """Return True if the user may send a request with these attributes."""
        review = access_review(SUBJECT_ACCESS_REVIEW, user, access)
        return is_allowed(await self._client.create(SUBJECT_ACCESS_REVIEW, review))

    async def _user(self, spec: Object, audience: str | None) -> User | None:
        review = {"apiVersion": TOKEN_REVIEW.api_version, "kind": TOKEN_REVIEW.kind, "spec": spec}
        status = (await self._client.create(TOKEN_REVIEW, review)).get("status") or {}
        # An API server without support for audiences returns none in the response. Treat the token as invalid then.
        if not status.get("authenticated") or (audience and audience not in (status.get("audiences") or ())):
            return None
        user = status.get("user") or {}
        return User(
            str(user.get("username") or ""),
            tuple(user.get("groups") or ()),
            {key: tuple(values) for key, values in (user.get("extra") or {}).items()},
        )
