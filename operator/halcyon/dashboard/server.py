"""The dashboard over HTTP: pages, documents, streams of them, and what every answer says to browsers about safety.

    GET    /                                    the pages
    GET    /static/PATH                         their files
    GET    /api/session                         who is signed in
    POST   /api/session {"token": ...}          sign in: a cookie with that token
    DELETE /api/session                         sign out
    GET    /api/models?text=&state=&sort=&order=&offset=&limit=
    GET    /api/models/NAMESPACE/NAME[/history|/spec]
    GET    /api/models/NAMESPACE/NAME/whatif?latency=&min=&max=&hours=
    GET    /api/stream/models?...               the two above as server-sent events
    GET    /api/stream/models/NAMESPACE/NAME

Errors are JSON: {"error": a sentence}. Nothing here changes anything in the cluster.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import orjson
from aiohttp import web

from halcyon.dashboard import model_page, server_sent_events, whatif
from halcyon.dashboard.authorization import COOKIE, MAX_TOKEN_LENGTH, Authorizer
from halcyon.dashboard.history import ChartHistory
from halcyon.dashboard.model_table import BadQuestion, Fleet, Question
from halcyon.dashboard.ports import DashboardSource, Name
from halcyon.dashboard.server_sent_events import ConnectionLimit, Full
from halcyon.dashboard.whatif import Wish
from halcyon.kube.auth.callers import Forbidden, Unauthenticated

log = logging.getLogger(__name__)

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer."""
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_LIBRARY = "uplot/uPlot.esm.js"
"""Draws the charts. It isn't in git, so a wheel that was made of a plain clone lacks it (scripts/wheel.py)."""
NO_PAGES = (
    "the dashboard has no pages: this installation lacks their chart library, static/uplot; run the operator from its image, or "
    "run `make bootstrap` in a clone and install that"
)
_SIZE_LIMIT = 16 * 1024
"""Bytes of a request's body: a token."""
_COMMON = 1024
"""Bytes from which on an answer is compressed."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    packed: bytes
    kind: str
    tag: str


class Dashboard:
    """The handlers."""

    def __init__(
        self,
        source: DashboardSource,
        access: Authorizer,
        history: ChartHistory,
        *,
        seats: ConnectionLimit | None = None,
        steps: Callable[[], int],
    ) -> None:
        """`steps` counts the steps of the history."""
        self._source, self._access, self._history = source, access, history
        self._steps = steps
        self._fleet = Fleet(history)
        self.seats = seats or ConnectionLimit()
        self._reckoning = asyncio.Lock()
        self._files = _files()

    @property
    def has_pages(self) -> bool:
        """Whether all that the pages load is installed."""
        return _LIBRARY in self._files

    def app(self) -> web.Application:
        """The application."""
        app = web.Application(client_max_size=_SIZE_LIMIT, middlewares=[_safely])
        app.add_routes(
            [
                web.get("/", self._index),
                web.get("/static/{path:.+}", self._static),
                web.get("/api/session", self._session),
                web.post("/api/session", self._sign_in),
                web.delete("/api/session", self._sign_out),
                web.get("/api/models", self._models),
                web.get("/api/models/{namespace}/{name}", self._model),
                web.get("/api/models/{namespace}/{name}/history", self._points),
                web.get("/api/models/{namespace}/{name}/spec", self._spec),
                web.get("/api/models/{namespace}/{name}/whatif", self._what_if),
                web.get("/api/stream/models", self._models_stream),
                web.get("/api/stream/models/{namespace}/{name}", self._model_stream),
            ]
        )
        app.on_shutdown.append(self._close)
        return app

    async def _close(self, app: web.Application) -> None:
        del app
        self.seats.close()

    # Files

    async def _index(self, request: web.Request) -> web.Response:
        return self._file(request, "index.html") if self.has_pages else _fail(503, NO_PAGES)

    async def _static(self, request: web.Request) -> web.Response:
        return self._file(request, request.match_info["path"])

    def _file(self, request: web.Request, name: str) -> web.Response:
        found = self._files.get(name)
        if found is None:
            return _fail(404, f"there is no file {name[:100]}")
        # Asked for anew each time, and answered without a body where it is the same: an upgrade shows at once.
        headers = {"ETag": found.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("If-None-Match") == found.tag:
            return web.Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return web.Response(body=found.packed, content_type=found.kind, charset="utf-8", headers=headers)
        return web.Response(body=found.body, content_type=found.kind, charset="utf-8", headers=headers)

    # Sessions

    async def _session(self, request: web.Request) -> web.Response:
        user = await self._access.user(request)
        return _json(200, {"user": user.name, "open": self._access.is_open})

    async def _sign_in(self, request: web.Request) -> web.Response:
        # Another site's form can't send this type without being asked whether it may, and nobody here says yes.
        if request.content_type != "application/json":
            return _fail(415, f"the body is {request.content_type}; good: application/json")
        try:
            body = await request.read()
        except ConnectionError:
            return _fail(400, "the body did not come as a whole")  # nobody reads it: the connection is gone
        try:
            token = orjson.loads(body)["token"].strip()
        except (ValueError, TypeError, KeyError, AttributeError):
            return _fail(400, 'the body is no session; good: {"token": "eyJhb..."}')
        if len(token) > MAX_TOKEN_LENGTH:
            return _fail(
                400,
                f"the token has {len(token)} characters; a cookie holds {MAX_TOKEN_LENGTH}. Use a proxy that signs in",
            )
        user = await self._access.owner(token)
        response = _json(200, {"user": user.name})
        response.set_cookie(COOKIE, token, path="/", httponly=True, samesite="Strict", secure=request.secure)
        return response

    async def _sign_out(self, request: web.Request) -> web.Response:
        response = _json(200, {})
        response.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict", secure=request.secure)
        return response

    # Documents

    async def _models(self, request: web.Request) -> web.Response:
        return _compressed(request, await self._page(request, Question.of(request.query)))

    async def _model(self, request: web.Request) -> web.Response:
        return _compressed(request, await self._detail(request, _name(request)))

    async def _points(self, request: web.Request) -> web.Response:
        name = await self._named(request)
        found = model_page.series(self._history.series(name)) | {"past": model_page.past(self._source.past(name))}
        return _compressed(request, orjson.dumps(found))

    async def _spec(self, request: web.Request) -> web.Response:
        name = await self._named(request)
        model = self._source.model(name)
        if model is None:
            raise _Gone(name)
        return _compressed(request, orjson.dumps(model_page.spec(model, self._source.overlay(name))))

    async def _what_if(self, request: web.Request) -> web.Response:
        name = await self._named(request)
        if self._source.model(name) is None:
            raise _Gone(name)
        wish, known, past = Wish.of(request.query), self._source.known(name), self._source.past(name)
        # Two weeks of bins take a good part of a second: beside the loop, and one at a time.
        async with self._reckoning:
            found = await asyncio.to_thread(whatif.told, wish, known, past)
        return _compressed(request, orjson.dumps(found))

    async def _page(self, request: web.Request, question: Question) -> bytes:
        user = await self._access.user(request)
        sees = await self._access.sees(user)
        found = self._fleet.page(
            question,
            names=self._source.names(),
            model=self._source.model,
            reading=self._source.reading,
            sees=sees,
            changes=self._source.changes,
            step=self._steps(),
        )
        return orjson.dumps({"synced": self._source.synced} | found)

    async def _detail(self, request: web.Request, name: Name) -> bytes:
        await self._access.may_get(await self._access.user(request), name)
        model = self._source.model(name)
        if model is None:
            raise _Gone(name)
        return orjson.dumps(
            model_page.page(
                model,
                servers=self._source.servers(name),
                balancers=self._source.balancers(name),
                reading=self._source.reading(name),
                newest=self._history.series(name, 1),
                events=self._source.events(name),
            )
        )

    async def _named(self, request: web.Request) -> Name:
        name = _name(request)
        await self._access.may_get(await self._access.user(request), name)
        return name

    # Streams

    async def _models_stream(self, request: web.Request) -> web.StreamResponse:
        question = Question.of(request.query)
        return await self._stream(request, "models", lambda: self._page(request, question))

    async def _model_stream(self, request: web.Request) -> web.StreamResponse:
        name = _name(request)
        return await self._stream(request, "model", lambda: self._detail(request, name))

    async def _stream(self, request: web.Request, event: str, render: server_sent_events.Render) -> web.StreamResponse:
        await render()  # whoever may not see it gets a plain answer that says so
        response = web.StreamResponse(
            headers=HEADERS
            | {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        if request.method == "HEAD":
            # The headers alone: aiohttp would send the events behind them, to a client that expects none.
            return response
        with self.seats.seat():
            try:
                await response.prepare(request)
                try:
                    await _send_events(response, server_sent_events.events(event, render, self.seats.ended))
                except _ANSWERS as error:
                    # The client may have gone meanwhile, which is no fault: this write is within the outer block.
                    await response.write(b"event: over\ndata: %b\n\n" % orjson.dumps({"error": str(error)}))
            except (ConnectionError, TimeoutError):
                # A client that takes nothing is gone too: nothing that was kept for it may stay.
                if request.transport is not None:
                    request.transport.abort()
            return response


async def _send_events(response: web.StreamResponse, events: AsyncGenerator[bytes]) -> None:
    async with aclosing(events) as frames:
        async for frame in frames:
            async with asyncio.timeout(server_sent_events.STUCK_S):
                await response.write(frame)


class _Gone(Exception):  # noqa: N818  # an answer (404), not a fault
    """There is no such model."""

    def __init__(self, name: Name) -> None:
        super().__init__(f"there is no ModelDeployment {name.namespace}/{name.name}")


_CODES: Mapping[type[Exception], int] = {Unauthenticated: 401, Forbidden: 403, _Gone: 404, BadQuestion: 400, Full: 503}
_ANSWERS = tuple(_CODES)


@web.middleware
async def _safely(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The answer with the headers of all; errors as JSON."""
    try:
        response = await handler(request)
    except _ANSWERS as error:
        response = _fail(_CODES[type(error)], str(error))
        if isinstance(error, Unauthenticated):
            response.headers["WWW-Authenticate"] = "Bearer"
        if isinstance(error, Full):
            response.headers["Retry-After"] = "10"
    except web.HTTPException as error:
        response = _fail(error.status, f"{request.method} {request.path[:200]}: {error.reason}")
    except Exception:  # whatever a review raises, nobody sees anything by it
        log.exception("no answer", extra={"path": request.path})
        response = _fail(503, "this could not be found out now; try again")
    if not response.prepared:
        response.headers.update(HEADERS)
    return response


def _files() -> dict[str, _File]:
    """The files of the pages, by their paths; some 250 KiB, read once."""
    found = {}
    for path, entry in _walked(resources.files("halcyon.dashboard").joinpath("static")):
        kind = _TYPES.get(path.rpartition(".")[2])
        if kind is not None:
            body = entry.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            found[path] = _File(body, gzip.compress(body, mtime=0), kind, tag)
    return found


def _walked(folder: Traversable, before: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walked(entry, f"{before}{entry.name}/")
        else:
            yield f"{before}{entry.name}", entry


def _name(request: web.Request) -> Name:
    return Name(request.match_info["namespace"], request.match_info["name"])


def _json(code: int, document: Mapping[str, Any]) -> web.Response:
    headers = {"Cache-Control": "no-store"}
    return web.Response(status=code, body=orjson.dumps(document), content_type="application/json", headers=headers)


def _compressed(request: web.Request, body: bytes) -> web.Response:
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if len(body) >= _COMMON and "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, compresslevel=1, mtime=0)
    return web.Response(body=body, content_type="application/json", headers=headers)


def _fail(code: int, message: str) -> web.Response:
    return _json(code, {"error": message})
