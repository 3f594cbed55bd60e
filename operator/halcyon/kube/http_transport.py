"""HTTP requests to the API server: timeouts, limits on concurrency, credentials, the lease fence, and errors.

Out of scope: operations on objects (`client`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from urllib.parse import urlencode

import aiohttp
import orjson
from kubernetes.aio.client.api_client import ApiClient

from halcyon.kube import encoding, errors
from halcyon.kube.clock import Clock, ClusterClock
from halcyon.kube.kinds import Object
from halcyon.kube.lease_fence import LeaseFence
from halcyon.kube.rbac_denials import RbacDenials, needed_right
from halcyon.kube.tracing import Tracer

REQUEST_TIMEOUT_S = 20.0
"""Timeout of a request, in seconds. A write of the leader has a shorter timeout, which is the time until another
replica may hold the Lease."""
UNACKNOWLEDGED_S = 3.0
"""Time after which a connection is dropped if the API server has not acknowledged the sent data, in seconds.

It is the lease duration minus the renewal deadline. If it were longer, the kernel could deliver a write long after its
timeout, when the network works again and another replica leads.
"""
MAX_AT_ONCE = 32
"""Maximum number of concurrent requests, except watches, Leases, /scale and reviews.

Without this limit, 20 new models would open 170 connections, each of which takes 0.3 MiB.
"""
MAX_COUNTS_AT_ONCE = 16
"""Maximum number of concurrent writes to /scale. They have a separate limit, so that they don't wait for the writes
that earlier changes of the replicas have caused."""
MAX_REVIEWS_AT_ONCE = 160
"""Maximum number of concurrent token and access reviews. Clients of the operator cause these reviews, which must not
delay other requests. It is more than the agents and the dashboard have together, so that neither waits for the other."""

LEASE_LATE_S = 0.5
"""Time in seconds after which a Lease request without a response delays further applies. Applies are the most expensive
requests. On an API server that is short of CPU, a burst of new models would otherwise make the operator lose its
lease."""

PLAIN = "application/json"
APPLY = "application/apply-patch+yaml; charset=utf-8"
"""Content type of an apply. Because of the charset, the `kubernetes` package sends the body unchanged. Without the
charset, the package would send ASCII JSON, which is not always valid YAML (`encoding.as_yaml`)."""


def tcp_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket that drops its connection if sent data isn't acknowledged within `UNACKNOWLEDGED_S`."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNACKNOWLEDGED_S * 1000))
    return sock


class HttpTransport:
    """Sender of requests to one API server."""

    def __init__(self, api: ApiClient, *, fence: LeaseFence | None, tracer: Tracer, clock: Clock) -> None:
        """Create the transport. The arguments are described at `KubeClient`."""
        self._api, self._fence, self._tracer, self._clock = api, fence, tracer, clock
        self.host = str(api.configuration.host).rstrip("/")
        """URL of the API server without a path."""
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        self._count_turns = asyncio.Semaphore(MAX_COUNTS_AT_ONCE)
        self._review_turns = asyncio.Semaphore(MAX_REVIEWS_AT_ONCE)
        self._calm = asyncio.Event()
        self._calm.set()
        self.rights = RbacDenials(clock.monotonic)
        """Permissions that the operator lacks, according to responses of the API server."""

    async def json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | Sequence[Object] | bytes | None = None,
        content: str = PLAIN,
        accept: str = PLAIN,
    ) -> Object:
        """Send a request, and return the document in the response.

        Raises:
            ApiError: the API server responds with an error.
            Unreachable: it does not respond.
            LeaseLost: the request is a write, and this process's Lease was not renewed in time.
        """
        resource = needed_right(method, path, watching=False)[1].resource
        while True:
            if content is APPLY:
                # Wait before acquiring the semaphore, so that a waiting apply does not block other requests.
                await self._calm.wait()
            async with self._turn(resource):
                if content is APPLY and not self._calm.is_set():
                    continue  # the Lease request became late while this one waited for the semaphore
                left_s = REQUEST_TIMEOUT_S
                if self._fence is not None and method != "GET" and resource != "leases":
                    left_s = min(self._fence.left_s(), REQUEST_TIMEOUT_S)
                    query = {**(query or {}), "timeout": f"{int(left_s * 1000)}ms"}
                response = await self.send(
                    method,
                    path,
                    query=query,
                    body=body,
                    content=content,
                    accept=accept,
                    timeout=aiohttp.ClientTimeout(total=left_s, sock_connect=10),
                )
                try:
                    return dict(orjson.loads(await response.read()))
                # Another server, such as a proxy, may answer with JSON that is not an object.
                except (aiohttp.ClientError, TimeoutError, ValueError, TypeError) as error:
                    raise errors.Unreachable(f"{method} {path}: {error!r}") from error

    def _turn(self, resource: str) -> contextlib.AbstractAsyncContextManager[None]:
        if resource == "leases":  # these requests must never wait for others
            return self._lease_first()
        if resource.endswith("reviews"):
            return self._review_turns
        return self._count_turns if resource.endswith("/scale") else self._turns

    @contextlib.asynccontextmanager
    async def _lease_first(self) -> AsyncGenerator[None, None]:
        late = asyncio.get_running_loop().call_later(LEASE_LATE_S, self._calm.clear)
        try:
            yield
        finally:
            late.cancel()
            self._calm.set()

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | Sequence[Object] | bytes | None = None,
        content: str = PLAIN,
        accept: str = PLAIN,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # aiohttp's own
    ) -> aiohttp.ClientResponse:
        """Send a request, and return the response before its body is read.

        The limits on concurrent requests don't apply.

        Raises:
            ApiError: the API server responds with an error.
            Unreachable: it does not respond.
        """
        url = f"{self.host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": accept, "Content-Type": content}
        with self._tracer.request(method, path) as span:
            try:
                await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
                answer = await self._api.rest_client.request(
                    method, url, headers=headers, body=body, _request_timeout=timeout
                )
                response: aiohttp.ClientResponse = answer.response
                span.note(http__response__status_code=response.status)
                if isinstance(self._clock, ClusterClock):
                    self._clock.responded(response.headers.get("Date"))
                watching = "watch" in (query or {})
                # A request that was throttled or failed may not have been authorized yet, so it proves no permission.
                if response.status < 500 and response.status not in {401, 403, 429}:
                    self.rights.answered(method, path, watching=watching)
                if response.status < 400:
                    return response
                detail = await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise errors.Unreachable(f"{method} {path}: {error!r}") from error
            document = encoding.status(detail)
            if response.status == 403:
                self.rights.refused(method, path, str(document.get("message") or ""), watching=watching)
            raise encoding.error(f"{method} {path}", response.status, document, response.headers.get("Retry-After"))
