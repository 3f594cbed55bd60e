"""The client of the API server: the `kubernetes` package's asynchronous transport, with plain dicts on our side.

The package handles configuration, credentials (also those of exec plugins), TLS and connections. Its typed models are not
used: they drop fields that they don't know, and take seven to ten times as long (docs/decisions/0004-client.md).
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
from halcyon.kube.clock import SYSTEM_CLOCK, Clock
from halcyon.kube.kinds import Kind
from halcyon.kube.lease_fence import LeaseFence
from halcyon.kube.rbac_denials import RbacDenials
from halcyon.kube.tracing import OFF, Span, Tracer

FIELD_MANAGER = "halcyon"
REQUEST_TIMEOUT_S = 20.0
WATCH_TIMEOUT_S = 290
"""Time after which the API server ends a watch; another one starts where it ended."""
SILENCE_S = 100.0
"""Time without any event after which a watch counts as dead. It gets a bookmark about once a minute, at times a little later."""
CHUNK = 500
MAX_AT_ONCE = 32
"""Maximum concurrent requests, without watches, Leases and /scale. A connection takes 0.3 MiB, and 20 new models would open 170."""
MAX_COUNTS_AT_ONCE = 16
"""Maximum concurrent writes to /scale. They have a limit of their own, so that they don't queue behind the writes that they cause."""

LEASE_LATE_S = 0.5
"""Time after which an unanswered Lease request holds back further applies. These take an API server longest: if it is short of CPU,
a burst of new models would cost us the lease."""

Object = dict[str, Any]
_PLAIN = "application/json"
_APPLY = "application/apply-patch+yaml; charset=utf-8"
"""With the charset the package sends a body unchanged; without it, the body would become JSON in ASCII (see `encoding.as_yaml`)."""
_METADATA = "application/json;as={kind};g=meta.k8s.io;v=v1,application/json"


class Kube(Protocol):
    """The operations of the API server that the controller needs."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return the object, or None if it doesn't exist."""

    async def apply(
        self, kind: Kind, obj: Object, *, force: bool = True, subresource: str = "", manager: str = FIELD_MANAGER
    ) -> Object:
        """Apply an object server-side; return the resulting object."""

    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        """Create an object; return the resulting object, or with `dry_run` the one that would result."""

    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        """Send a JSON merge patch. If it has metadata.resourceVersion, it only succeeds while the object has that version."""

    async def scale(self, kind: Kind, obj: Object, *, before: int, after: int) -> Object:
        """Write spec.replicas through /scale if the object is still `obj` and its replicas are still `before`; return the resulting Scale.

        Other changes of the object since then don't matter. Raises `Conflicted` if the object or its replicas differ.
        """

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str | None = None) -> None:
        """Delete an object, only with this uid if one is given. It is no error if it doesn't exist."""

    async def evict(self, namespace: str, pod: str) -> None:
        """Request a pod's eviction; a PodDisruptionBudget may prevent it (`Busy`, 429)."""

    async def list(
        self, kind: Kind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> tuple[list[Object], str]:
        """Return all objects, read in chunks, and the list's resourceVersion."""

    def watch(
        self, kind: Kind, *, since: str, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> AsyncGenerator[tuple[str, Object], None]:
        """Yield (type, object) of each event after the resourceVersion `since`, until the API server ends the watch."""


async def connect(
    kubeconfig: str | None = None, *, fence: LeaseFence | None = None, tracer: Tracer = OFF
) -> KubeClient:
    """Return a client for the cluster of this kubeconfig, or for the one that this pod runs in."""
    configuration = Configuration()
    if kubeconfig is None:
        kubernetes_config.load_incluster_config(configuration)
    else:
        await kubernetes_config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
    configuration.connection_pool_maxsize = 0  # watches hold connections; the work queue bounds the rest
    return KubeClient(ApiClient(configuration), fence=fence, tracer=tracer)


class KubeClient(Kube):
    """`Kube` over HTTP."""

    def __init__(
        self, api: ApiClient, *, fence: LeaseFence | None = None, tracer: Tracer = OFF, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Take over `api`, which `close` closes.

        Args:
            api: the package's client.
            fence: checked before each write except that of a Lease; None: this process writes without a lease.
            tracer: records a span for each request.
            clock: of this process.
        """
        self._api = api
        self._host = str(api.configuration.host).rstrip("/")
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        self._count_turns = asyncio.Semaphore(MAX_COUNTS_AT_ONCE)
        self._calm = asyncio.Event()
        self._calm.set()
        self.rights = RbacDenials(clock.monotonic)
        """Rights that the API server reports as missing."""
        self._fence, self._tracer = fence, tracer
        self.writes = 0
        """Number of writes, excluding those of Leases and of token and access reviews."""

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    @override
    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        try:
            return await self._json("GET", kind.path(namespace, name))
        except errors.NotFound:
            return None

    async def read(self, path: str) -> Object:
        """Return a document of the API server that is not an object of a kind."""
        # Some have a media type of their own and are served as no other.
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
                    # A Scale leaves out replicas of 0, and null matches a missing field.
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
            # Items of a list have no apiVersion and kind, unlike events and responses: they would differ from the desired objects.
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
        # The lease must never wait for other work.
        while True:
            if content is _APPLY:
                await self._calm.wait()  # before taking a turn: a waiting apply must not block other requests
            async with self._turn(path):
                if content is _APPLY and not self._calm.is_set():
                    continue  # the lease became late in between
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
            watching = "watch" in (query or {})
            # A request that was throttled or failed may not have reached authorization.
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
    """Wait for `delay_s`, or until `stop` is set; return whether it is."""
    try:
        async with asyncio.timeout(delay_s):
            await stop.wait()
    except TimeoutError:
        return False
    return True
