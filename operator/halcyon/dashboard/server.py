"""HTTP handlers of the dashboard: pages, documents, and streams of documents.

The API returns the session, the table of models, and a model's spec, revisions, history, logs and what-if calculation.
Errors are JSON: {"error": MESSAGE}. No request changes the cluster.
"""

# GET    /                                    the page
# GET    /static/PATH                         files of the page
# GET    /api/session                         the signed-in user
# POST   /api/session {"token": ...}          sign in: set a cookie with the token
# DELETE /api/session                         sign out
# GET    /api/models?text=&state=&sort=&order=&offset=&limit=
# GET    /api/models/NAMESPACE/NAME[/spec|/revisions|/measured|/batches]
# GET    /api/models/NAMESPACE/NAME/history?hours=
# GET    /api/models/NAMESPACE/NAME/logs?pod=    last lines, read with the user's own token
# GET    /api/models/NAMESPACE/NAME/whatif?latency=&min=&max=&hours=
# GET    /api/stream/models?...               documents of /api/models as server-sent events
# GET    /api/stream/models/NAMESPACE/NAME    documents of /api/models/NAMESPACE/NAME as server-sent events

from __future__ import annotations

import asyncio
import gzip
import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

import orjson
from aiohttp import web

from halcyon.api.rollout_status import routed_name
from halcyon.dashboard import batches, measured, model_page, pod_start_phases, server_sent_events, whatif
from halcyon.dashboard.authorization import COOKIE, MAX_TOKEN_LENGTH, Authorizer
from halcyon.dashboard.history import ChartHistory
from halcyon.dashboard.model_table import Fleet, InvalidQuery, TableQuery, cached, int_parameter
from halcyon.dashboard.page_files import HEADERS, INDEX, LIBRARY, page_files
from halcyon.dashboard.pod_logs import LogsUnavailable
from halcyon.dashboard.ports import BatchReader, DashboardSource, LogReader, Name, Object, ResultReader
from halcyon.dashboard.server_sent_events import ConnectionLimit, ConnectionLimitReached
from halcyon.dashboard.site import MAX_HOURS, NO_LINKS, Links, SiteMetrics
from halcyon.dashboard.whatif import WhatIfQuery
from halcyon.kube.auth.callers import Forbidden, Unauthenticated
from halcyon.metricsapi.auth import TooOften, caller_of

log = logging.getLogger(__name__)

NO_PAGES = (
    "the dashboard has no pages, because its chart library static/uplot is not installed: run the operator from its image, or run "
    "`make bootstrap` in a clone and install that"
)
MAX_BODY_BYTES = 16 * 1024
"""Maximum size of a request's body, in bytes. Only sign-in requests have a body, which contains a token."""
MIN_COMPRESSED_BYTES = 1024
"""Minimum size of a response that is compressed, in bytes."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Dashboard:
    """Dashboard as a web application."""

    def __init__(
        self,
        source: DashboardSource,
        access: Authorizer,
        history: ChartHistory,
        *,
        site: SiteMetrics | None = None,
        links: Links = NO_LINKS,
        cluster: str = "",
        logs: LogReader | None = None,
        measured_results: ResultReader | None = None,
        batches: BatchReader | None = None,
        streams: ConnectionLimit | None = None,
        steps: Callable[[], int],
    ) -> None:
        """Create the dashboard.

        `site` has values from the site's Prometheus, and `links` base URLs of the site's other tools. `cluster` is the
        name of the cluster. `streams` limits the number of open pages; None for the default. `steps` is a function that
        returns the number of steps in the history so far. A source or reader is None if the site has none.
        """
        self._source, self._access, self._history = source, access, history
        self._steps, self._links, self._cluster, self._logs = steps, links, cluster, logs
        self._measured_results, self._batch_reader = measured_results, batches
        self._metrics = site or SiteMetrics(None, monotonic=time.monotonic, wall=time.time)
        self._fleet = Fleet(history)
        self._second, self._tables = -1, dict[tuple[frozenset[str] | None, TableQuery], bytes]()
        """Current second, and the tables rendered in it. Pages with the same query and permissions share a table."""
        self.streams = streams or ConnectionLimit()
        self._whatif_lock, self._whatif_free_at = asyncio.Lock(), 0.0
        self._files = page_files()

    @property
    def has_pages(self) -> bool:
        """Whether all files of the page are installed."""
        return LIBRARY in self._files

    def app(self) -> web.Application:
        """Return the aiohttp application with all routes."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_headers_and_errors])
        app.add_routes(
            [
                web.get("/", self._index),
                web.get("/static/{path:.+}", self._static),
                web.get("/api/session", self._session),
                web.post("/api/session", self._sign_in),
                web.delete("/api/session", self._sign_out),
                web.get("/api/models", self._models),
                web.get("/api/models/{namespace}/{name}", self._model),
                web.get("/api/models/{namespace}/{name}/history", self._series),
                web.get("/api/models/{namespace}/{name}/spec", self._spec),
                web.get("/api/models/{namespace}/{name}/revisions", self._revisions),
                web.get("/api/models/{namespace}/{name}/logs", self._log_lines),
                web.get("/api/models/{namespace}/{name}/measured", self._measured),
                web.get("/api/models/{namespace}/{name}/batches", self._batches),
                web.get("/api/models/{namespace}/{name}/whatif", self._whatif),
                web.get("/api/stream/models", self._models_stream),
                web.get("/api/stream/models/{namespace}/{name}", self._model_stream),
            ]
        )
        app.on_shutdown.append(self._close)
        return app

    async def _close(self, app: web.Application) -> None:
        del app
        self.streams.close()

    # Files

    async def _index(self, request: web.Request) -> web.Response:
        return self._file(request, INDEX) if self.has_pages else _fail(503, NO_PAGES)

    async def _static(self, request: web.Request) -> web.Response:
        return self._file(request, request.match_info["path"])

    def _file(self, request: web.Request, name: str) -> web.Response:
        file = self._files.get(name)
        return _fail(404, f"there is no file {name[:100]}") if file is None else file.response(request)

    # Sessions

    async def _session(self, request: web.Request) -> web.Response:
        user = await self._access.user(request)
        site = {"links": asdict(self._links), "cluster": self._cluster}
        is_open = self._access.is_open or COOKIE not in request.cookies
        return _json(200, {"user": user.name, "open": is_open} | site)

    async def _sign_in(self, request: web.Request) -> web.Response:
        # A form on another site cannot send this content type without a CORS preflight request, which this server never allows.
        if request.content_type != "application/json":
            return _fail(415, f"the content type of the body is {request.content_type}; it must be application/json")
        try:
            body = await request.read()
        except ConnectionError:
            return _fail(400, "the body is incomplete")  # not sent, because the client has disconnected
        try:
            token = "".join(orjson.loads(body)["token"].split())  # a terminal breaks long lines
        except (ValueError, TypeError, KeyError, AttributeError):
            return _fail(400, 'the body has no token; for example {"token": "eyJhb..."}')
        if len(token) > MAX_TOKEN_LENGTH:
            return _fail(
                400,
                f"the token has {len(token)} characters; a cookie holds {MAX_TOKEN_LENGTH}. Use an authenticating proxy",
            )
        user = await self._access.owner(token, request.remote or "")
        response = _json(200, {"user": user.name})
        response.set_cookie(COOKIE, token, path="/", httponly=True, samesite="Strict", secure=request.secure)
        return response

    async def _sign_out(self, request: web.Request) -> web.Response:
        response = _json(200, {})
        response.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict", secure=request.secure)
        return response

    # Documents

    async def _models(self, request: web.Request) -> web.Response:
        return _compressed(request, await self._table_document(request, TableQuery.of(request.query)))

    async def _model(self, request: web.Request) -> web.Response:
        return _compressed(request, await self._model_document(request))

    async def _series(self, request: web.Request) -> web.Response:
        name, model = await self._authorized_model(request)
        hours = int_parameter(request.query, "hours", 1, 1, MAX_HOURS)
        if hours > 1:
            served = routed_name(model) or name.name
            return _compressed(request, orjson.dumps(await self._metrics.history(name, served, hours)))
        document = model_page.series(self._history.series(name)) | {"past": model_page.past(self._source.past(name))}
        return _compressed(request, orjson.dumps(document))

    async def _spec(self, request: web.Request) -> web.Response:
        name, model = await self._authorized_model(request)
        return _compressed(request, orjson.dumps(model_page.spec(model, self._source.overlay(name))))

    async def _revisions(self, request: web.Request) -> web.Response:
        name, model = await self._authorized_model(request)
        roles = (model.get("status") or {}).get("revision") or {}
        current, target = str(roles.get("current") or ""), str(roles.get("target") or "")
        document = model_page.revisions(self._source.revisions(name), current, target)
        return _compressed(request, orjson.dumps(document))

    async def _log_lines(self, request: web.Request) -> web.Response:
        name = await self._authorized_name(request)
        pod = next(
            (pod for pod in self._source.servers(name) if pod.obj["metadata"]["name"] == request.query.get("pod")), None
        )
        if pod is None:
            return _fail(404, "the model has no server pod of this name")
        log_of, token = pod_start_phases.log_of(pod.obj), self._access.token(request)
        if log_of is None:
            return _json(200, {"lines": "", "why": "No container of the pod has run yet, so there is no log."})
        if self._logs is None or not token:
            why = "The operator has no permission to read logs. To read them with your own permissions, sign in with a token."
            return _json(200, {"lines": "", "why": why})
        try:
            lines = await self._logs.tail(token, namespace=name.namespace, pod=pod.obj["metadata"]["name"], **log_of)
        except LogsUnavailable as error:
            return _json(200, {"lines": "", "why": str(error)})
        return _json(200, {"lines": lines, "why": ""})

    async def _measured(self, request: web.Request) -> web.Response:
        name, model = await self._authorized_model(request)
        # Read at each request: no cache holds these ConfigMaps, because only opened pages need them.
        stored = None if self._measured_results is None else await self._measured_results(name)
        return _compressed(request, orjson.dumps(measured.results(stored, model)))

    async def _batches(self, request: web.Request) -> web.Response:
        name, _ = await self._authorized_model(request)
        # Read at each request: only the leader has a cache of them, and each replica serves pages.
        stored = () if self._batch_reader is None else await self._batch_reader(name.namespace)
        return _compressed(request, orjson.dumps(batches.batches(stored, name.name)))

    async def _whatif(self, request: web.Request) -> web.Response:
        name, _ = await self._authorized_model(request)
        query, known, past = WhatIfQuery.of(request.query), self._source.known(name), self._source.past(name)
        # A calculation over two weeks takes up to a second of CPU time, so run it outside the event loop, and only one at a time. The
        # next one waits, so that all together take a quarter of a core.
        async with self._whatif_lock:
            await asyncio.sleep(self._whatif_free_at - time.monotonic())
            began = time.monotonic()
            document = await asyncio.to_thread(whatif.comparison, query, known, past)
            self._whatif_free_at = time.monotonic() + 3 * (time.monotonic() - began)
        return _compressed(request, orjson.dumps(document))

    async def _table_document(self, request: web.Request, query: TableQuery) -> bytes:
        user = await self._access.user(request)
        namespaces = await self._access.visible_namespaces(user)
        if (second := int(time.monotonic())) != self._second:
            self._second = second
            self._tables.clear()
        return cached(self._tables, (namespaces, query), lambda: self._render_table(query, namespaces))

    def _render_table(self, query: TableQuery, namespaces: frozenset[str] | None) -> bytes:
        document = self._fleet.page(query, self._source, namespaces=namespaces, step=self._steps(), second=self._second)
        return orjson.dumps({"synced": self._source.synced, "allocatable": self._metrics.allocatable()} | document)

    async def _model_document(self, request: web.Request) -> bytes:
        name, model = await self._authorized_model(request)
        return orjson.dumps(
            model_page.page(
                model,
                servers=self._source.servers(name),
                balancers=self._source.balancers(name),
                numbers=self._source.reading(name),
                newest=self._history.series(name, 1),
                events=self._source.events(name),
            )
        )

    async def _authorized_model(self, request: web.Request) -> tuple[Name, Object]:
        name = await self._authorized_name(request)
        if (model := self._source.model(name)) is None:
            raise _NoSuchModel(name)
        return name, model

    async def _authorized_name(self, request: web.Request) -> Name:
        name = Name(request.match_info["namespace"], request.match_info["name"])
        await self._access.may_get(await self._access.user(request), name)
        return name

    # Streams

    async def _models_stream(self, request: web.Request) -> web.StreamResponse:
        query = TableQuery.of(request.query)
        return await self._stream(request, "models", lambda: self._table_document(request, query))

    async def _model_stream(self, request: web.Request) -> web.StreamResponse:
        return await self._stream(request, "model", lambda: self._model_document(request))

    async def _stream(self, request: web.Request, event: str, render: server_sent_events.Render) -> web.StreamResponse:
        await render()  # if the user may not see the document, this raises an error before the stream begins
        response = web.StreamResponse(
            headers=HEADERS
            | {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        if request.method == "HEAD":
            # A HEAD request gets only headers; aiohttp would send events to a client that expects no body.
            return response
        with self.streams.connection("" if self._access.is_open else caller_of(request)):
            try:
                await response.prepare(request)
                try:
                    await _send_events(response, server_sent_events.events(event, render, self.streams.wait_closing))
                except (ConnectionError, TimeoutError):
                    raise
                except Exception as error:  # noqa: BLE001  # `_message` logs it
                    # The client may have disconnected. The outer block handles that, so this write must be inside it.
                    await response.write(
                        b"event: over\ndata: %b\n\n" % orjson.dumps({"error": _message(request, error)})
                    )
            except (ConnectionError, TimeoutError):
                # A client that accepts no data counts as disconnected, and its buffers must be freed.
                if request.transport is not None:
                    request.transport.abort()
            return response


async def _send_events(response: web.StreamResponse, events: AsyncGenerator[bytes]) -> None:
    async with aclosing(events) as frames:
        async for frame in frames:
            async with asyncio.timeout(server_sent_events.WRITE_TIMEOUT_S):
                await response.write(frame)


class _NoSuchModel(Exception):  # noqa: N818  # an answer (404), not a fault
    """The model does not exist (404)."""

    def __init__(self, name: Name) -> None:
        super().__init__(f"there is no ModelDeployment {name.namespace}/{name.name}")


_CODES: Mapping[type[Exception], int] = {
    Unauthenticated: 401,
    Forbidden: 403,
    _NoSuchModel: 404,
    InvalidQuery: 400,
    ConnectionLimitReached: 503,
    TooOften: 429,
}


def _message(request: web.Request, error: Exception) -> str:
    """Return the error's message for the user. An unexpected error, for example of an access review, is only logged."""
    if type(error) in _CODES:
        return str(error)
    log.error("request failed", exc_info=error, extra={"path": request.path})
    return "the request could not be answered now; try again"


@web.middleware
async def _headers_and_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Add the common headers to every response, and convert exceptions to JSON error responses."""
    try:
        response = await handler(request)
    except web.HTTPException as error:
        response = _fail(error.status, f"{request.method} {request.path[:200]}: {error.reason}")
    except Exception as error:  # noqa: BLE001  # `_message` logs it
        response = _fail(_CODES.get(type(error), 503), _message(request, error))
        if isinstance(error, Unauthenticated):
            response.headers["WWW-Authenticate"] = "Bearer"
        if isinstance(error, ConnectionLimitReached | TooOften):
            response.headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    if not response.prepared:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
    return response


def _json(code: int, document: Mapping[str, Any]) -> web.Response:
    headers = {"Cache-Control": "no-store"}
    return web.Response(status=code, body=orjson.dumps(document), content_type="application/json", headers=headers)


def _compressed(request: web.Request, body: bytes) -> web.Response:
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if len(body) >= MIN_COMPRESSED_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, compresslevel=1, mtime=0)
    return web.Response(body=body, content_type="application/json", headers=headers)


def _fail(code: int, message: str) -> web.Response:
    return _json(code, {"error": message})
