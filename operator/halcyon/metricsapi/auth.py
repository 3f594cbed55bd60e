"""Authentication and authorization of callers of the metrics API.

Callers without the front proxy's certificate are rate limited (`rate_limit`) before their token is reviewed. The API
server itself is not limited, because it forwards the requests of all HPAs, and limits its own callers.

Out of scope: the reviews themselves, which the caller provides.
"""

# | the connection has                                             | the user is                                                     |
# | -------------------------------------------------------------- | --------------------------------------------------------------- |
# | a client certificate from the request-header CA, with an       | the user in the X-Remote headers, whom the API server has       |
# | allowed name                                                   | already authenticated and authorized                            |
# | no such certificate, but a valid bearer token                  | the user of the token, who must have permission to list metrics |
# | neither                                                        | unknown: 401; X-Remote headers are ignored                      |

from __future__ import annotations

import hashlib
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, Protocol

from aiohttp import web
from cryptography import x509
from cryptography.x509.oid import NameOID

from halcyon.kube.auth.callers import Forbidden, ResourceAttributes, Reviews, Unauthenticated, User, bearer_token
from halcyon.kube.auth.rate_limit import Limiter
from halcyon.metricsapi.certificates import signed

CALLER: Final = web.RequestKey("halcyon caller", str)
"""Key under which an aiohttp request stores the name of the authenticated user."""


def caller_of(request: web.Request) -> str:
    """Return the name of the request's authenticated user; empty if there is none yet."""
    name: str = request.get(CALLER, "")
    return name


TokenReviewer = Callable[[str], Awaitable[User | None]]
"""Function that reviews a bearer token for the API server's audiences, with a TokenReview. It returns the user of the
token; None if the token is not valid. It raises an error if this cannot be determined now."""


class AccessReviewer(Protocol):
    """Function that reviews whether a user may `list` an external metric in a namespace, with a SubjectAccessReview.

    The verb is `list`, because the API server treats a GET without an object name as a list. The metric's name is
    written as in the request. Kubernetes clients, including the HPA, use lower case: `resources: [queuedepth], verbs:
    [list]`.
    """

    async def __call__(self, user: User, *, namespace: str, metric: str) -> bool:
        """Return True if the user has the permission. Raise an error if this cannot be determined now."""


def metric_reviewer(reviews: Reviews) -> AccessReviewer:
    """Return an access reviewer for external metrics that uses `reviews`."""

    async def review(user: User, *, namespace: str, metric: str) -> bool:
        attributes = ResourceAttributes("list", "external.metrics.k8s.io", "v1beta1", metric, namespace)
        return await reviews.may(user, attributes)

    return review


class TooOften(Exception):  # noqa: N818  # an answer (429), not a fault
    """The caller exceeds its rate limit (HTTP status 429)."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"too many requests from this address; retry in {retry_after_s:.1f} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class RequestHeaderConfig:
    """Settings of the front proxy from the ConfigMap kube-system/extension-apiserver-authentication."""

    client_ca_pem: str
    allowed_names: tuple[str, ...] = ()
    """Common names that a client certificate may have. If it is empty, all names are allowed."""
    username_headers: tuple[str, ...] = ("X-Remote-User",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    @classmethod
    def from_config_map(cls, data: Mapping[str, str]) -> RequestHeaderConfig | None:
        """Parse the data of the ConfigMap. Return None if the API server has no front proxy.

        Raises:
            ValueError: the CA is not a certificate, or a list is not a JSON list of strings.
        """
        pem = data.get("requestheader-client-ca-file", "")
        if not pem.strip():
            return None
        x509.load_pem_x509_certificates(pem.encode())
        return cls(
            client_ca_pem=pem,
            allowed_names=_texts(data, "requestheader-allowed-names", ()),
            username_headers=_texts(data, "requestheader-username-headers", cls.username_headers),
            group_headers=_texts(data, "requestheader-group-headers", cls.group_headers),
            extra_prefixes=_texts(data, "requestheader-extra-headers-prefix", cls.extra_prefixes),
        )

    @cached_property
    def authorities(self) -> tuple[x509.Certificate, ...]:
        """Return the certificates in the CA bundle of the front proxy."""
        return tuple(x509.load_pem_x509_certificates(self.client_ca_pem.encode()))


@dataclass(frozen=True)
class Caller:
    """User of a request. `vouched` is true if the API server has authenticated and authorized this user already."""

    user: User
    vouched: bool


class Gate:
    """Authentication and authorization of requests."""

    def __init__(
        self,
        *,
        front_proxy: RequestHeaderConfig | None,
        review_token: TokenReviewer,
        review_access: AccessReviewer,
        limiter: Limiter | None = None,
    ) -> None:
        self._front_proxy = front_proxy
        self._review_token, self._review_access = review_token, review_access
        self._limiter = limiter or Limiter(time.monotonic)
        self._verified: tuple[RequestHeaderConfig | None, dict[bytes, x509.Certificate]] = (None, {})

    def trust(self, front_proxy: RequestHeaderConfig | None) -> None:
        """Use these settings of the front proxy from now on; None if the API server has no front proxy."""
        self._front_proxy = front_proxy

    async def caller(self, request: web.Request, now: datetime) -> Caller:
        """Return the authenticated caller of the request.

        Raises:
            Unauthenticated: the caller has no valid credentials.
            TooOften: the caller exceeds its rate limit, so its token was not reviewed.
        """
        proxy = self._front_proxy
        if proxy is not None and self._is_front_proxy(request, proxy, now):
            user = _remote_user(request, proxy)
            if user is not None:
                request[CALLER] = user.name
                return Caller(user, vouched=True)
        if retry_after_s := self._limiter.take(request.remote or ""):
            raise TooOften(retry_after_s)
        if token := bearer_token(request.headers):
            reviewed = await self._review_token(token)
            if reviewed is not None and reviewed.name:
                request[CALLER] = reviewed.name
                return Caller(reviewed, vouched=False)
        raise Unauthenticated("the API server's front-proxy certificate or a valid bearer token is required")

    async def may_list(self, caller: Caller, *, namespace: str, metric: str) -> None:
        """Raise an error if the caller may not list the metric.

        Raises:
            Forbidden: the caller does not have the permission.
        """
        if caller.vouched or await self._review_access(caller.user, namespace=namespace, metric=metric):
            return
        raise Forbidden(
            f'{metric}.external.metrics.k8s.io is forbidden: User "{caller.user.name}" cannot list resource "{metric}" '
            f'in API group "external.metrics.k8s.io" in the namespace "{namespace}"'
        )

    def _is_front_proxy(self, request: web.Request, proxy: RequestHeaderConfig, now: datetime) -> bool:
        """Return True if the connection's client certificate belongs to the front proxy, according to the current CA and names.

        TLS verified the certificate at the start of the connection, possibly before the CA was replaced, so it is verified again. An
        intermediate CA must be in the CA bundle itself.
        """
        connection = None if request.transport is None else request.transport.get_extra_info("ssl_object")
        if not isinstance(connection, ssl.SSLObject) or not connection.getpeercert():
            return False
        der = connection.getpeercert(binary_form=True)
        if not der:
            return False
        cert = self._verified_certificate(der, proxy)
        if cert is None or not cert.not_valid_before_utc <= now.astimezone(UTC) <= cert.not_valid_after_utc:
            return False
        names = [str(a.value) for a in cert.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        return not proxy.allowed_names or any(name in proxy.allowed_names for name in names)

    def _verified_certificate(self, der: bytes, proxy: RequestHeaderConfig) -> x509.Certificate | None:
        if self._verified[0] is not proxy:
            self._verified = (proxy, {})
        verified = self._verified[1]
        digest = hashlib.sha256(der).digest()
        if digest not in verified:
            cert = x509.load_der_x509_certificate(der)
            if not any(signed(cert, authority) for authority in proxy.authorities):
                return None
            if len(verified) >= 64:
                verified.clear()
            verified[digest] = cert
        return verified[digest]


def _remote_user(request: web.Request, proxy: RequestHeaderConfig) -> User | None:
    name = next((value for header in proxy.username_headers if (value := request.headers.get(header))), None)
    if name is None:
        return None
    groups = tuple(value for header in proxy.group_headers for value in request.headers.getall(header, []))
    extra: dict[str, tuple[str, ...]] = {}
    for header, value in request.headers.items():
        for prefix in proxy.extra_prefixes:
            if header.lower().startswith(prefix.lower()):
                key = header[len(prefix) :].lower()
                extra[key] = (*extra.get(key, ()), value)
    return User(name, groups, extra)


def _texts(data: Mapping[str, str], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    if not data.get(key, "").strip():
        return default
    value = json.loads(data[key])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(
            f'extension-apiserver-authentication: {key} is {data[key]!r}; it must be a JSON list of strings, for example ["front-proxy-client"]'
        )
    return tuple(value) or default
