"""A proxy between an operator and the API server that injects faults into requests.

It terminates TLS with its own certificate, and sends requests as the administrator or with a service account's
permissions. Each `Door` is an address with its own rule and its own record of requests, so that several operators can
be disturbed independently. Rules run in the proxy's thread, one at a time.
"""

import asyncio
import base64
import ssl
import tempfile
import threading
import time
from collections.abc import AsyncIterable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from e2e.cluster.pki import Identity
from halcyon.metricsapi.certificates import renewed
from tests.integration.watch_faults import BrokenWatchError, EventRule, disturbed

T = TypeVar("T")

_WRITING = {"POST", "PUT", "PATCH", "DELETE"}
_NO_WRITES = {"leases", "tokenreviews", "subjectaccessreviews", "selfsubjectreviews"}
_DROPPED = {"connection", "keep-alive", "transfer-encoding", "upgrade", "host", "authorization", "content-length"}
_MOST_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Request:
    """A request, the argument of a rule."""

    method: str
    path: str
    watching: bool
    at: float
    """Monotonic time in seconds."""
    write: int | None = None
    """Number among the writes through this door, from 1; None if it isn't one (Leases and reviews don't count)."""

    @property
    def segments(self) -> list[str]:
        """Return the path segments below the API's version."""
        parts = self.path.strip("/").split("/")
        return parts[2:] if parts[0] == "api" else parts[3:]

    @property
    def namespace(self) -> str:
        """Return the namespace; empty for cluster-scoped objects."""
        return self.segments[1] if len(self.segments) > 1 and self.segments[0] == "namespaces" else ""

    @property
    def target(self) -> str:
        """Return plural, name and subresource, for example `deployments/m-a`."""
        return "/".join(self.segments[2:] if self.namespace else self.segments)

    @property
    def listing(self) -> bool:
        """Return True for a list of objects."""
        return self.method == "GET" and not self.watching and bool(self.target) and "/" not in self.target

    @property
    def resource(self) -> str:
        """Return the plural of the resource."""
        return self.target.partition("/")[0]


@dataclass(frozen=True)
class Answer:
    """A response that is returned instead of sending the request to the API server."""

    status: int
    retry_after_s: int | None = None


@dataclass(frozen=True)
class Break:
    """A connection failure, before or after the API server has processed the request."""

    after: bool


@dataclass(frozen=True)
class Delay:
    """A delay before the request is sent to the API server."""

    delay_s: float


@dataclass(frozen=True)
class Kill:
    """SIGKILL for the door's operator, before or after the API server has processed the request.

    The door then closes.
    """

    after: bool


@dataclass(frozen=True)
class AsOf:
    """A list as it was at this resource version, as from an API server that is behind. Reads of single objects have no such form."""

    version: str


Fault = Answer | Break | Delay | Kill | AsOf
Rule = Callable[[Request], Fault | None]


def no_fault(_: Request) -> None:
    """Return no fault for any request."""


@dataclass
class Door:
    """One address of the proxy."""

    kubeconfig: Path
    rule: Rule
    kill: Callable[[], None]
    """Function that kills the operator behind this door."""
    in_turn: bool
    """True if each write waits for the response to the previous one, so that "the n-th write" is well defined."""
    account: str = ""
    """Service account whose permissions apply, as NAMESPACE:NAME; empty: the administrator's."""
    seen: list[Request] = field(default_factory=list)
    answered: list[tuple[Request, int]] = field(default_factory=list)
    """Requests with the API server's status code."""
    answered_at: list[float] = field(default_factory=list)
    """Monotonic time of each of these responses, in seconds."""
    closed: threading.Event = field(default_factory=threading.Event)
    """Set by a `Kill`; from then on no request passes."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0
    events: EventRule | None = None
    """Rule for the events of watches; None: all are sent unchanged."""
    streams: list[tuple[str, Callable[[], None]]] = field(default_factory=list)
    """Plural of each open watch, and a function that breaks it."""

    def drop_streams(self, *resources: str) -> None:
        """Break the open watches of these resources, or all of them if none is given."""
        for resource, abort in tuple(self.streams):
            if not resources or resource in resources:
                abort()

    def writes(self) -> list[Request]:
        """Return the writes so far, in order."""
        return [r for r in self.seen if r.write is not None]


class Proxy:
    """The proxy, a context manager that runs in its own thread."""

    def __init__(self, upstream: Identity) -> None:
        self._upstream = upstream
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._runners: list[web.AppRunner] = []
        self._directory = tempfile.TemporaryDirectory(prefix="halcyon-proxy-")
        self._certificates = renewed(None, ("localhost",), datetime.now(UTC))

    def __enter__(self) -> Self:
        self._thread.start()
        self._client = self._do(self._connect())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._directory.cleanup()

    def open(
        self,
        rule: Rule = no_fault,
        *,
        kill: Callable[[], None] = lambda: None,
        in_turn: bool = False,
        account: str = "",
    ) -> Door:
        """Open a new address."""
        return self._do(self._open(rule, kill, in_turn=in_turn, account=account))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _connect(self) -> aiohttp.ClientSession:
        context = ssl.create_default_context(cafile=str(self._upstream.ca))
        context.load_cert_chain(self._upstream.certificate, self._upstream.key)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            read_bufsize=_MOST_BYTES,
        )

    async def _end(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        await self._client.close()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _open(self, rule: Rule, kill: Callable[[], None], *, in_turn: bool, account: str) -> Door:
        number = len(self._runners)
        door = Door(Path(self._directory.name) / f"kubeconfig-{number}", rule, kill, in_turn, account)
        app = web.Application(client_max_size=_MOST_BYTES)

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._handle(door, request)

        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        pair = Path(self._directory.name) / "pair.pem"
        pair.write_text(self._certificates.serving.cert_pem + self._certificates.serving.key_pem)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        self._runners.append(runner)
        door.kubeconfig.write_text(yaml.safe_dump(self._kubeconfig(runner.addresses[0][1])))
        return door

    def _kubeconfig(self, port: int) -> dict[str, Any]:
        ca = base64.b64encode(self._certificates.bundle_pem.encode()).decode()
        server = {"server": f"https://localhost:{port}", "certificate-authority-data": ca}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": server}],
            "users": [{"name": "proxy", "user": {"token": "of-no-meaning"}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
            "current-context": "proxy",
        }

    async def _handle(self, door: Door, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        watching = "watch" in request.query
        plain = Request(request.method, request.path, watching, time.monotonic())
        if request.method not in _WRITING or plain.resource in _NO_WRITES:
            return await self._through(door, request, plain, body)
        if not door.in_turn:
            return await self._through(door, request, self._numbered(door, plain), body)
        async with door.turn:
            return await self._through(door, request, self._numbered(door, plain), body)

    @staticmethod
    def _numbered(door: Door, request: Request) -> Request:
        door.count += 1
        return replace(request, at=time.monotonic(), write=door.count)

    async def _through(self, door: Door, request: web.Request, known: Request, body: bytes) -> web.StreamResponse:
        if door.closed.is_set():
            return self._broken(request)
        door.seen.append(known)
        fault = door.rule(known)
        if isinstance(fault, Answer):
            return _refusal(fault)
        if isinstance(fault, Delay):
            await asyncio.sleep(fault.delay_s)
        before = isinstance(fault, Kill | Break) and not fault.after
        if isinstance(fault, Kill) and before:
            self._kill(door)
        if before:
            return self._broken(request)
        path = request.raw_path
        if isinstance(fault, AsOf) and known.listing and "continue=" not in path:
            path += f"{'&' if '?' in path else '?'}resourceVersion={fault.version}&resourceVersionMatch=Exact"
        answer = await self._client.request(
            known.method,
            URL(self._upstream.url + path, encoded=True),
            data=body or None,
            headers=[*((k, v) for k, v in request.headers.items() if k.lower() not in _DROPPED), *_as(door.account)],
        )
        door.answered.append((known, answer.status))
        door.answered_at.append(time.monotonic())
        async with answer:
            if known.watching and answer.status == 200:
                return await self._stream(door, known, request, answer)
            text = await answer.read()
        if isinstance(fault, Kill):
            self._kill(door)
        if isinstance(fault, Kill | Break):
            return self._broken(request)
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in _DROPPED}
        return web.Response(status=answer.status, body=text, headers=headers)

    async def _stream(
        self, door: Door, known: Request, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": answer.headers["Content-Type"]})
        await response.prepare(request)
        loop = asyncio.get_running_loop()

        def abort() -> None:
            loop.call_soon_threadsafe(self._broken, request)

        stream = (known.resource, abort)
        door.streams.append(stream)
        try:
            chunks: AsyncIterable[bytes] = answer.content.iter_any()
            if door.events is not None:
                chunks = disturbed(known.resource, answer.content, door.events)
            async for chunk in chunks:
                if door.closed.is_set():
                    break
                await response.write(chunk)
        except (aiohttp.ClientError, ConnectionError, BrokenWatchError):
            self._broken(request)
        finally:
            door.streams.remove(stream)
        return response

    @staticmethod
    def _kill(door: Door) -> None:
        door.closed.set()
        door.kill()

    @staticmethod
    def _broken(request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)


def _as(account: str) -> list[tuple[str, str]]:
    """Return headers that give the administrator's request an account's permissions only."""
    if not account:
        return []
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{account.partition(':')[0]}", "system:authenticated")
    user = ("Impersonate-User", f"system:serviceaccount:{account}")
    return [user, *(("Impersonate-Group", group) for group in groups)]


_REASONS = {
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


def _refusal(fault: Answer) -> web.Response:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": fault.status,
        "reason": _REASONS[fault.status],
        "message": "the test's proxy says so",
    }
    headers = {} if fault.retry_after_s is None else {"Retry-After": str(fault.retry_after_s)}
    return web.json_response(status, status=fault.status, headers=headers)
