"""Client of the API server, with objects as plain dicts. It uses the asynchronous transport of the `kubernetes` package.

The package handles configuration, credentials (including exec plugins), TLS and connections. Its typed models are not used, because
they drop unknown fields and take seven to ten times as long (docs/decisions/0004-client.md).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import orjson
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.incluster_config import InClusterConfigLoader
from typing_extensions import override

from halcyon.kube import encoding, errors, kinds
from halcyon.kube.clock import SYSTEM_CLOCK, Clock, ClusterClock
from halcyon.kube.http_transport import APPLY, PLAIN, HttpTransport, tcp_socket
from halcyon.kube.kinds import Kind
from halcyon.kube.lease_fence import LeaseFence
from halcyon.kube.token_file import CA, FOLDER, TOKEN, CaFile, TokenFile
from halcyon.kube.tracing import OFF, Tracer

FIELD_MANAGER = "halcyon"
WATCH_TIMEOUT_S = 290
"""Time in seconds after which the API server ends a watch. The next watch continues from the last resource version."""
SILENCE_S = 70.0
"""Time without any event, in seconds, after which a watch counts as dead. A watch receives a bookmark about once a minute.
The API server keeps 75 s of changes, from which the next watch continues without a list."""
CHUNK = 500
PAGE_TRIES, PAGE_RETRY_S = 5, 1.0
"""Maximum number of attempts to read a page of a list after the first page, and the minimum seconds between them."""
Object = kinds.Object
_METADATA = "application/json;as={kind};g=meta.k8s.io;v=v1,application/json"


class Kube(Protocol):
    """Interface of the Kubernetes client, with the operations that the operator needs."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return the object, or None if it doesn't exist."""

    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Object:
        """Apply an object with server-side apply, take over the fields of other managers, and return the result.

        Raises:
            Conflicted: the uid or resourceVersion in `obj` (`encoding.creating`, `encoding.changing`) differs from that
                of the stored object.
        """

    async def create(self, kind: Kind, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        """Create an object, and return the resulting object. If `dry_run` is true, nothing is stored."""

    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        """Send a JSON merge patch.

        If the patch contains a uid or resourceVersion, the request fails unless the object still has the same one.
        """

    async def scale(self, kind: Kind, obj: Object, *, before: int, after: int, version: str | None = None) -> Object:
        """Change spec.replicas from `before` to `after` through the /scale subresource. Return the resulting Scale.

        A concurrent change to other fields of the object is a conflict only if `version` is given.

        Raises:
            Conflicted: the object's uid differs from that of `obj`, its replicas are no longer `before`, or its
                resourceVersion is no longer `version`.
        """

    async def delete(self, kind: Kind, namespace: str, name: str, *, seen: Object | None = None) -> None:
        """Delete an object. Do nothing if the object does not exist.

        Raises:
            Conflicted: `seen` is given, and the object has another uid or resourceVersion.
        """

    async def evict(self, namespace: str, pod: Object) -> None:
        """Request the eviction of a pod, but not of a newer pod with the same name.

        Raises:
            Conflicted: another pod now has this name.
        """

    async def list(
        self, kind: Kind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> tuple[list[Object], str]:
        """Return all objects of a kind, and the resourceVersion of the list. The list is read in pages."""
        items: list[Object] = []
        version = ""
        async for page, listed_at in self.pages(
            kind, namespace=namespace, selector=selector, metadata_only=metadata_only
        ):
            items += page
            version = listed_at
        return items, version

    async def pages(
        self, kind: Kind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> AsyncGenerator[tuple[Sequence[Object], str], None]:
        """Yield the pages of a list, each with the resourceVersion of the list, so that never all objects are in memory.

        Raises:
            Gone: the list took so long that its other pages are no longer available.
        """
        yield await self.list(kind, namespace=namespace, selector=selector, metadata_only=metadata_only)

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
    account: Path = FOLDER,
) -> KubeClient:
    """Return a client for the cluster in the kubeconfig.

    If there is no kubeconfig, return a client for this pod's cluster, with the service account in the folder `account`.
    Each response sets `clock` to the API server's time.

    Raises:
        SettingsError: the kubeconfig or the service account is missing or invalid.
    """
    configuration, clock = Configuration(), clock or ClusterClock()
    try:
        if kubeconfig is None:
            files = {"token_filename": str(account / TOKEN), "cert_filename": str(account / CA)}
            InClusterConfigLoader(**files, try_refresh_token=False).load_and_set(configuration)
        else:
            await kubernetes_config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
    except kubernetes_config.ConfigException as error:
        hint = "outside a cluster, set for example --kubeconfig=/etc/halcyon/kubeconfig"
        raise errors.SettingsError(f"no API server is configured: {error}; {hint}") from error
    # As kubectl: Python 3.13 requires extensions that the CAs of many clusters lack, for example those of EKS.
    configuration.disable_strict_ssl_verification = True
    # No limit: each watch needs a connection, and other requests are limited by semaphores.
    configuration.connection_pool_maxsize = 0
    api = ApiClient(configuration)
    tls = api.rest_client.ssl_context
    if kubeconfig is None:
        token, authorities = TokenFile(account / TOKEN, clock), CaFile(account / CA, tls)

        def refresh(used: Configuration) -> None:
            token(used)
            authorities.refresh()

        configuration.refresh_api_key_hook = refresh
    connector = aiohttp.TCPConnector(limit=0, ssl=tls, socket_factory=tcp_socket)
    # A pod reaches its own cluster's API server directly. A proxy in the environment is for servers outside the cluster.
    configuration.client_session_kwargs = {"connector": connector, "trust_env": kubeconfig is not None}
    return KubeClient(api, fence=fence, tracer=tracer, clock=clock, connector=connector)


class KubeClient(Kube):
    """Implementation of `Kube` over HTTP."""

    def __init__(
        self,
        api: ApiClient,
        *,
        fence: LeaseFence | None = None,
        tracer: Tracer = OFF,
        clock: Clock = SYSTEM_CLOCK,
        connector: aiohttp.TCPConnector | None = None,
    ) -> None:
        """Create the client. `close` closes `api`, and the connector that it uses, unless `api` creates its own.

        The fence is checked before each write, except to a Lease. If it is None, this process needs no lease for its
        writes. If the clock is a ClusterClock, each response sets it.
        """
        self._api, self._connector = api, connector
        self._transport = HttpTransport(api, fence=fence, tracer=tracer, clock=clock)
        self.rights = self._transport.rights
        """Permissions that are missing according to responses of the API server."""
        self.writes = 0
        """Number of writes so far. Writes to Leases, token reviews and access reviews are not counted."""

    @property
    def endpoint(self) -> tuple[str, str | None]:
        """Connection data of the API server: its URL without a path, and the path of the PEM file with its CA.

        If the path is None, the system's CAs are used.
        """
        return self._transport.host, self._api.configuration.ssl_ca_cert or None

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()
        if self._connector is not None:
            await self._connector.close()

    @override
    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        try:
            return await self._transport.json("GET", kind.path(namespace, name))
        except errors.NotFound:
            return None

    async def read(self, path: str) -> Object:
        """Return the document at a path of the API server that is not a resource."""
        # Some documents are available only with their own media type.
        return await self._transport.json("GET", path, accept="*/*")

    @override
    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Object:
        meta = obj["metadata"]
        self.writes += 1
        with _another_uid_conflicts():
            return await self._transport.json(
                "PATCH",
                kind.path(meta.get("namespace", ""), meta["name"], subresource),
                query={"fieldManager": manager, "force": "true"},
                body=encoding.as_yaml(obj),
                content=APPLY,
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
        return await self._transport.json("POST", kind.path(namespace), query=query, body=obj)

    @override
    async def evict(self, namespace: str, pod: Object) -> None:
        name = pod["metadata"]["name"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": pod["metadata"]["uid"]}},
        }
        self.writes += 1
        await self._transport.json("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body=body)

    @override
    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        self.writes += kind.plural != "leases"
        with _another_uid_conflicts():
            return await self._transport.json(
                "PATCH",
                kind.path(namespace, name, subresource),
                query={"fieldManager": FIELD_MANAGER},
                body=dict(body),
                content="application/merge-patch+json",
            )

    @override
    async def scale(self, kind: Kind, obj: Object, *, before: int, after: int, version: str | None = None) -> Object:
        meta = obj["metadata"]
        is_same = [] if version is None else [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
        self.writes += 1
        try:
            return await self._transport.json(
                "PATCH",
                kind.path(meta["namespace"], meta["name"], "scale"),
                query={"fieldManager": FIELD_MANAGER},
                body=[
                    {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
                    *is_same,
                    # A Scale omits replicas of 0, and in a JSON patch test null matches a missing field.
                    {"op": "test", "path": "/spec/replicas", "value": before or None},
                    {"op": "add", "path": "/spec/replicas", "value": after},
                ],
                content="application/json-patch+json",
            )
        except errors.Refused as error:
            if error.status != 422:
                raise
            raise errors.Conflicted(409, f"{error}; it has changed, or its replicas are no longer {before}") from error

    @override
    async def delete(self, kind: Kind, namespace: str, name: str, *, seen: Object | None = None) -> None:
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if seen is not None:
            body["preconditions"] = {field: seen["metadata"][field] for field in ("uid", "resourceVersion")}
        self.writes += 1
        try:
            await self._transport.json("DELETE", kind.path(namespace, name), body=body)
        except errors.NotFound:
            return

    @override
    async def pages(
        self, kind: Kind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> AsyncGenerator[tuple[Sequence[Object], str], None]:
        query = {"limit": str(CHUNK)} | ({"labelSelector": selector} if selector else {})
        accept = _METADATA.format(kind="PartialObjectMetadataList") if metadata_only else PLAIN
        tries = 0
        while True:
            tries += 1
            try:
                page = await self._transport.json("GET", kind.path(namespace), query=query, accept=accept)
            except errors.Busy as error:
                # A busy API server may reject one of many pages. The earlier ones needn't be read again.
                if "continue" not in query or tries == PAGE_TRIES:
                    raise
                await asyncio.sleep(max(error.retry_after_s or 0.0, PAGE_RETRY_S))
                continue
            # Items of a list have no apiVersion and kind. Add them, so that comparison with the desired objects finds no difference.
            items = [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items") or []]
            yield items, page["metadata"]["resourceVersion"]
            if not (token := page["metadata"].get("continue")):
                return
            query["continue"], tries = token, 0

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
        accept = _METADATA.format(kind="PartialObjectMetadata") if metadata_only else PLAIN
        response = await self._transport.send(
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


@contextlib.contextmanager
def _another_uid_conflicts() -> Generator[None, None, None]:
    """Return a context manager that raises `Conflicted` if the object in the cluster has a different uid.

    If the request has no resourceVersion, the API server reports a different uid as a change to an immutable field
    (422).
    """
    try:
        yield
    except errors.Refused as error:
        if error.status == 422 and "metadata.uid" in str(error):
            raise errors.Conflicted(409, f"{error}; another object has this name") from error
        raise


async def pause(delay_s: float, stop: asyncio.Event) -> bool:
    """Wait for `delay_s` seconds or until `stop` is set; return True if it is set."""
    try:
        async with asyncio.timeout(delay_s):
            await stop.wait()
    except TimeoutError:
        return False
    return True
