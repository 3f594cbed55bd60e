"""Authentication and authorization of the metrics API's callers.

| the connection has                                             | the user is                                      |
| --------------------------------------------------------------- | ------------------------------------------------ |
| a client certificate of the request-header CA, name allowed    | the one in the X-Remote headers: the API server  |
|                                                                | has authenticated and authorized it already      |
| anything else, with a bearer token                             | the token's, if it may list the metric           |
| anything else                                                  | none: 401; X-Remote headers are ignored          |

A caller without the front proxy's certificate is limited to a rate (`rate_limit`), before any review of it. The API server itself is
not limited: it sends the requests of all autoscalers, and has limits of its own for its callers.

Source: facts, autoscaling 1.10. Out of scope: the reviews themselves; the caller provides them.
"""

from __future__ import annotations

import hashlib
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, Protocol

from aiohttp import web
from cryptography import x509
from cryptography.x509.oid import NameOID

from halcyon.kube.auth.callers import Forbidden, ResourceAttributes, Reviews, Unauthenticated, User, bearer_token
from halcyon.metricsapi.certificates import signed
from halcyon.metricsapi.rate_limit import Limiter

CALLER: Final = web.RequestKey("halcyon caller", str)
"""Key of the authenticated user's name in a request."""


def caller_of(request: web.Request) -> str:
    """Return the user's name; empty while unknown."""
    name: str = request.get(CALLER, "")
    return name


class TokenReviewer(Protocol):
    """Review of a bearer token (TokenReview, the API server's own audiences)."""

    async def __call__(self, token: str) -> User | None:
        """Return the token's user, or None if the token is not valid. Raises if that can't be determined now."""


class AccessReviewer(Protocol):
    """Review of whether a user may `list` an external metric in a namespace (SubjectAccessReview).

    The verb is list, because the API server turns a GET without a name into it. The metric is spelled as in the request.
    Kubernetes clients, including the HPA, use lower case: `resources: [queuedepth], verbs: [list]`.
    """

    async def __call__(self, user: User, *, namespace: str, metric: str) -> bool:
        """Return True if it may. Raises if that can't be determined now."""


def metric_reviewer(reviews: Reviews) -> AccessReviewer:
    """Return the reviewer of external metrics over the cluster's reviews."""

    async def review(user: User, *, namespace: str, metric: str) -> bool:
        asked = ResourceAttributes("list", "external.metrics.k8s.io", "v1beta1", metric, namespace)
        return await reviews.may(user, asked)

    return review


class TooOften(Exception):  # noqa: N818  # an answer (429), not a fault
    """The caller sends more requests than it may."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"too many requests from this address; retry in {retry_after_s:.1f} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class RequestHeaderConfig:
    """The front proxy's part of the ConfigMap kube-system/extension-apiserver-authentication."""

    client_ca_pem: str
    allowed_names: tuple[str, ...] = ()
    """Common names that a client certificate may have; empty for any."""
    username_headers: tuple[str, ...] = ("X-Remote-User",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    @classmethod
    def from_config_map(cls, data: Mapping[str, str]) -> RequestHeaderConfig | None:
        """Read the configuration from the ConfigMap's data; return None if the API server has no front proxy.

        Raises:
            ValueError: the CA is no certificate, or a list is no JSON list of strings.
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
        """The CA's certificates."""
        return tuple(x509.load_pem_x509_certificates(self.client_ca_pem.encode()))


@dataclass(frozen=True)
class Caller:
    """The user of a request, and whether the API server vouches for it."""

    user: User
    vouched: bool


class Gate:
    """Authenticates and authorises requests."""

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
        """Trust another front proxy from now on, since its CA rotates; None: there is no front proxy."""
        self._front_proxy = front_proxy

    async def caller(self, request: web.Request, now: datetime) -> Caller:
        """Return the caller.

        Raises:
            Unauthenticated: the caller is unknown.
            TooOften: the caller sent too many requests, and no review was made.
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
            known = await self._review_token(token)
            if known is not None and known.name:
                request[CALLER] = known.name
                return Caller(known, vouched=False)
        raise Unauthenticated("the API server's front-proxy certificate or a valid bearer token is required")

    async def may_list(self, caller: Caller, *, namespace: str, metric: str) -> None:
        """Return if the caller may list the metric.

        Raises:
            Forbidden: it may not.
        """
        if caller.vouched or await self._review_access(caller.user, namespace=namespace, metric=metric):
            return
        raise Forbidden(
            f'{metric}.external.metrics.k8s.io is forbidden: User "{caller.user.name}" cannot list resource "{metric}" '
            f'in API group "external.metrics.k8s.io" in the namespace "{namespace}"'
        )

    def _is_front_proxy(self, request: web.Request, proxy: RequestHeaderConfig, now: datetime) -> bool:
        """Return True if the connection's certificate is the front proxy's, by the current CA and names.

        TLS has verified it, but perhaps before the CA was replaced. An intermediate CA must be in the bundle itself.
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
        known = self._verified[1]
        digest = hashlib.sha256(der).digest()
        if digest not in known:
            cert = x509.load_der_x509_certificate(der)
            if not any(signed(cert, authority) for authority in proxy.authorities):
                return None
            if len(known) >= 64:
                known.clear()
            known[digest] = cert
        return known[digest]


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
