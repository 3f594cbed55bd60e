"""Client of the API server, with objects as plain dicts. It uses the asynchronous transport of the `kubernetes` package.

The package handles configuration, credentials (including exec plugins), TLS and connections. Its typed models are not used, because
they drop unknown fields and take seven to ten times as long (docs/decisions/0004-client.md).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp
import orjson
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from typing_extensions import override

from halcyon.kube import encoding, errors
from halcyon.kube.clock import SYSTEM_CLOCK, Clock, ClusterClock
from halcyon.kube.kinds import Kind
from halcyon.kube.lease_fence import LeaseFence
from halcyon.kube.rbac_denials import RbacDenials
from halcyon.kube.tracing import OFF, Span, Tracer

FIELD_MANAGER = "halcyon"
REQUEST_TIMEOUT_S = 20.0
WATCH_TIMEOUT_S = 290
"""Time after which the API server ends a watch, in seconds. The next watch continues from there."""
SILENCE_S = 100.0
"""Time without any event after which a watch counts as dead, in seconds.

A watch receives a bookmark about once a minute, sometimes slightly later.
"""
CHUNK = 500
MAX_AT_ONCE = 32
"""Maximum number of concurrent requests, except watches, Leases and /scale.

Without this limit, 20 new models would open 170 connections, each of which takes 0.3 MiB.
"""
MAX_COUNTS_AT_ONCE = 16
"""Maximum number of concurrent writes to /scale. A separate limit prevents them from waiting for the writes that earlier ones caused."""

LEASE_LATE_S = 0.5
"""Time after which a Lease request without a response delays further applies, in seconds.

Applies are the most expensive requests. On an API server that is short of CPU, a burst of new models would otherwise make the operator
lose its lease.
"""

Object = dict[str, Any]
_PLAIN = "application/json"
_APPLY = "application/apply-patch+yaml; charset=utf-8"
"""Content type of an apply. With the charset, the package sends the body unchanged; without it, as ASCII JSON (`encoding.as_yaml`)."""
_METADATA = "application/json;as={kind};g=meta.k8s.io;v=v1,application/json"


class Kube(Protocol):
    """Interface of the Kubernetes client: the operations that the operator needs."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return the object, or None if it doesn't exist."""

    async def apply(
        self, kind: Kind, obj: Object, *, force: bool = True, subresource: str = "", manager: str = FIELD_MANAGER
    ) -> Object:
        """Apply an object with server-side apply, and return the resulting object."""

    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        """Create an object, and return the resulting object. With `dry_run`, nothing is stored."""

    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        """Send a JSON merge patch. If it contains metadata.resourceVersion, it succeeds only if the object still has this version."""

    async def scale(self, kind: Kind, obj: Object, *, before: int, after: int) -> Object:
        """Change spec.replicas through /scale from `before` to `after`, and return the resulting Scale.

        Other changes to the object have no effect on this.

        Raises:
            Conflicted: the object is not the same as `obj`, or its replicas are not `before` any more.
        """

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str | None = None) -> None:
        """Delete an object; if `uid` is given, only if the object has this uid. Do nothing if the object does not exist."""

    async def evict(self, namespace: str, pod: str) -> None:
        """Request the eviction of a pod. If a PodDisruptionBudget prevents it, `Busy` (429) is raised."""

    async def list(
        self, kind: Kind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> tuple[list[Object], str]:
        """Return all objects, and the resourceVersion of the list. The list is read in pages."""

    def watch(
        self, kind: Kind, *, since: str, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> AsyncGenerator[tuple[str, Object], None]:
        """Yield the type and the object of each event after the resourceVersion `since`, until the API server ends the watch."""


async def connect(
    kubeconfig: str | None = None,
    *,
    fence: LeaseFence | None = None,
    tracer: Tracer = OFF,
    clock: ClusterClock | None = None,
) -> KubeClient:
    """Return a client for the cluster in the kubeconfig; without one, for the cluster in which this pod runs.

    `clock` follows the API server's clock from then on.
    """
    configuration = Configuration()
    if kubeconfig is None:
        kubernetes_config.load_incluster_config(configuration)
    else:
        await kubernetes_config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
    # No limit: each watch needs a connection, and other requests are limited by semaphores.
    configuration.connection_pool_maxsize = 0
    return KubeClient(ApiClient(configuration), fence=fence, tracer=tracer, clock=clock or ClusterClock())


class KubeClient(Kube):
    """Implementation of `Kube` over HTTP."""

    def __init__(
        self,
        api: ApiClient,
        *,
        fence: LeaseFence | None = None,
        tracer: Tracer = OFF,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Create the client.

        Args:
            api: client of the `kubernetes` package; `close` closes it.
            fence: fence to check before each write, except to a Lease. None: this process needs no lease for its writes.
            tracer: tracer that records a span for each request.
            clock: clock of this process; a ClusterClock is set by each response.
        """
        self._api = api
        self._host = str(api.configuration.host).rstrip("/")
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        self._count_turns = asyncio.Semaphore(MAX_COUNTS_AT_ONCE)
        self._calm = asyncio.Event()
        self._calm.set()
        self.rights = RbacDenials(clock.monotonic)
        """Permissions that are missing according to responses of the API server."""
        self._fence, self._tracer, self._clock = fence, tracer, clock
        self.writes = 0
        """Number of writes so far, except writes to Leases, token reviews and access reviews."""

    @property
    def endpoint(self) -> tuple[str, str | None]:
        """URL of the API server without a path, and the path of the PEM file with its CA (None: the system's CAs)."""
        return self._host, self._api.configuration.ssl_ca_cert or None

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    @override
    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        try:
            return await self._json("GET", kind.path(namespace, name))
        except errors.NotFound:
            return None

    async def read(self, path: str) -> Object:
        """Return the document at a path of the API server that is not a resource."""
        # Some documents are available only with their own media type.
        return await self._json("GET", path, accept="*/*")

    @override
    async def apply(
        self, kind: Kind, obj: Object, *, force: bool = True, subresource: str = "", manager: str = FIELD_MANAGER
    ) -> Object:
        meta = obj["metadata"]
        self.writes += 1
        return await self._json(
            "PATCH",
            kind.path(meta.get("namespace", ""), meta["name"], subresource),
            query={"fieldManager": manager, "force": "true" if force else "false"},
            body=encoding.as_yaml(obj),
            content=_APPLY,
        )

    @override
    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        self.writes += not dry_run and kind.plural not in {
            "leases",
            "tokenreviews",
            "subjectaccessreviews",
            "localsubjectaccessreviews",
        }
        query = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        return await self._json("POST", kind.path(namespace), query=query, body=obj)

    @override
    async def evict(self, namespace: str, pod: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": pod}}
        self.writes += 1
        await self._json("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body=body)

    @override
    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        self.writes += kind.plural != "leases"
        return await self._json(
            "PATCH",
            kind.path(namespace, name, subresource),
            query={"fieldManager": FIELD_MANAGER},
            body=dict(body),
            content="application/merge-patch+json",
        )

    @override
    async def scale(self, kind: Kind, obj: Object, *, before: int, after: int) -> Object:
        meta = obj["metadata"]
        self.writes += 1
        try:
            return await self._json(
                "PATCH",
                kind.path(meta["namespace"], meta["name"], "scale"),
                query={"fieldManager": FIELD_MANAGER},
                body=[
                    {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
                    # A Scale omits replicas of 0, and in a JSON patch test null matches a missing field.
                    {"op": "test", "path": "/spec/replicas", "value": before or None},
                    {"op": "add", "path": "/spec/replicas", "value": after},
                ],
                content="application/json-patch+json",
            )
        except errors.Refused as error:
            if error.status != 422:
                raise
            raise errors.Conflicted(409, f"{error}; its replicas may no longer be {before}") from error

    @override
    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str | None = None) -> None:
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        self.writes += 1
        try:
            await self._json("DELETE", kind.path(namespace, name), body=body)
        except errors.NotFound:
            return

    @override
    async def list(
        self, kind: Kind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> tuple[list[Object], str]:
        query = {"limit": str(CHUNK)} | ({"labelSelector": selector} if selector else {})
        accept = _METADATA.format(kind="PartialObjectMetadataList") if metadata_only else _PLAIN
        items: list[Object] = []
        while True:
            page = await self._json("GET", kind.path(namespace), query=query, accept=accept)
            # Items of a list have no apiVersion and kind. Add them, so that comparison with the desired objects finds no difference.
            items += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items") or []]
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
                return items, page["metadata"]["resourceVersion"]

    @override
    async def watch(
        self, kind: Kind, *, since: str, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> AsyncGenerator[tuple[str, Object], None]:
        query = {
            "watch": "1",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_TIMEOUT_S),
        } | ({"labelSelector": selector} if selector else {})
        accept = _METADATA.format(kind="PartialObjectMetadata") if metadata_only else _PLAIN
        response = await self._send(
            "GET",
            kind.path(namespace),
            query=query,
            accept=accept,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=SILENCE_S),
        )
        try:
            async with aclosing(encoding.lines(response)) as lines:
                async for line in lines:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        raise encoding.error(f"watch {kind.plural}", event["object"].get("code", 500), event["object"])
                    yield event["type"], event["object"]
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError) as error:
            raise errors.Unreachable(f"watch {kind.plural}: {error!r}") from error
        finally:
            response.close()

    async def _json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | Sequence[Object] | bytes | None = None,
        content: str = _PLAIN,
        accept: str = _PLAIN,
    ) -> Object:
        # Requests for the lease must never wait for other requests.
        while True:
            if content is _APPLY:
                # Wait before acquiring the semaphore, so that a waiting apply does not block other requests.
                await self._calm.wait()
            async with self._turn(path):
                if content is _APPLY and not self._calm.is_set():
                    continue  # the Lease request became late while this one waited for the semaphore
                if self._fence is not None and method != "GET" and "/leases" not in path:
                    self._fence.check()
                response = await self._send(method, path, query=query, body=body, content=content, accept=accept)
                try:
                    return dict(orjson.loads(await response.read()))
                except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError) as error:
                    raise errors.Unreachable(f"{method} {path}: {error!r}") from error

    def _turn(self, path: str) -> contextlib.AbstractAsyncContextManager[None]:
        if "/leases" in path:
            return self._lease_first()
        return self._count_turns if path.endswith("/scale") else self._turns

    @contextlib.asynccontextmanager
    async def _lease_first(self) -> AsyncGenerator[None, None]:
        late = asyncio.get_running_loop().call_later(LEASE_LATE_S, self._calm.clear)
        try:
            yield
        finally:
            late.cancel()
            self._calm.set()

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | Sequence[Object] | bytes | None = None,
        content: str = _PLAIN,
        accept: str = _PLAIN,
        timeout: aiohttp.ClientTimeout | None = None,  # noqa: ASYNC109  # aiohttp's own
    ) -> aiohttp.ClientResponse:
        with self._tracer.request(method, path) as span:
            return await self._answered(
                span,
                method,
                path,
                query=query,
                body=body,
                headers={"Accept": accept, "Content-Type": content},
                timeout=timeout,
            )

    async def _answered(
        self,
        span: Span,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        body: Object | Sequence[Object] | bytes | None,
        headers: dict[str, str],
        timeout: aiohttp.ClientTimeout | None,  # noqa: ASYNC109  # aiohttp's own
    ) -> aiohttp.ClientResponse:
        url = f"{self._host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
            answer = await self._api.rest_client.request(
                method,
                url,
                headers=headers,
                body=body,
                _request_timeout=timeout or aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, sock_connect=10),
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
        said = encoding.status(detail)
        if response.status == 403:
            self.rights.refused(method, path, str(said.get("message") or ""), watching=watching)
        raise encoding.error(f"{method} {path}", response.status, said, response.headers.get("Retry-After"))


async def pause(delay_s: float, stop: asyncio.Event) -> bool:
    """Wait for `delay_s` seconds or until `stop` is set; return True if it is set."""
    try:
        async with asyncio.timeout(delay_s):
            await stop.wait()
    except TimeoutError:
        return False
    return True
