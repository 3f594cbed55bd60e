"""Listening ports of the operator, on IPv4 and IPv6, with timeouts, connection limits, and TLS with small buffers.

aiohttp has no connection limit, waits 3,630 s for a request, and receives a connection only after its TLS handshake.
Therefore this module accepts the sockets itself, and passes only accepted connections to aiohttp. See
docs/decisions/0038-connections.md.

Out of scope: the connection limits themselves (`connections`), and the applications that are served.
"""

# | timeout                | applies to                                                                              |
# | ---------------------- | --------------------------------------------------------------------------------------- |
# | `REQUEST_TIMEOUT_S`    | TLS handshake and first request head together, from accept on; the body of each request |
# | `KEEP_ALIVE_TIMEOUT_S` | the next request head, from the end of a response on                                    |
# | `RESPONSE_TIMEOUT_S`   | a client that does not read its response                                                |
# | none                   | a request in its handler; streams of agents and pages have heartbeats instead           |

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from typing import Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from halcyon.kube.auth.rate_limit import Limiter
from halcyon.metricsapi.auth import caller_of
from halcyon.metricsapi.client_connection import REQUEST_TIMEOUT_S, ClientTransport, PlainProtocol, TlsProtocol
from halcyon.metricsapi.connections import DEFAULT_LIMITS, Connection, Connections, Limit, PortLimits, source_of
from halcyon.metricsapi.sockets import listen
from halcyon.metricsapi.waiting_connections import WaitingConnections
from halcyon.monitoring import instruments, operator_metrics

KEEP_ALIVE_TIMEOUT_S = 25.0
"""Timeout for the next request on an open connection, in seconds. It is longer than the polling interval of HPAs, which
is 15 s."""
RESPONSE_TIMEOUT_S = 28.0
LOG_INTERVAL_S = 60.0
ACCEPT_RETRY_INTERVAL_S = 1.0
PAGE: Final = web.RequestKey("halcyon page", bool)
"""Key that marks a request whose response is written in parts but is not a stream. The limits still apply to its
connection."""
WAITING_INTERVAL_S = 0.1
"""Interval at which waiting sockets are checked, in seconds. Older connections may have become replaceable, or sockets
may have waited too long."""
_MAX_ACCEPTS = 64
"""Maximum number of connections that are accepted before other tasks run, so that a flood of rejected connections does
not block these tasks."""

log = logging.getLogger(__name__)


class ListeningPorts:
    """Factory of listeners. The listeners share its metrics."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._closed = instruments.counter(operator_metrics.CONNECTIONS_CLOSED, registry or CollectorRegistry())

    async def open(
        self,
        app: web.Application,
        *,
        name: str,
        host: str | None,
        port: int,
        tls: ssl.SSLContext | None = None,
        shutdown_s: float = 5.0,
        limits: PortLimits = DEFAULT_LIMITS,
    ) -> Listener:
        """Open a port that serves the application; the caller must close it with `cleanup()`.

        `name` is the name of the port in the metric and in logs. Without `host`, the port listens on all IPv4 and IPv6
        addresses. Port 0 means any free port. Without `tls`, it serves plain HTTP. `shutdown_s` is the maximum time for
        which `cleanup` waits for responses in progress, in seconds.

        Raises:
            OSError: the port is in use.
        """
        listener = Listener(app, self._closed, name=name, tls=tls, shutdown_s=shutdown_s, limits=limits)
        await listener.start(host, port)
        return listener


class Listener:
    """Open port, created by `ListeningPorts.open`."""

    def __init__(
        self,
        app: web.Application,
        closed: Counter,
        *,
        name: str,
        tls: ssl.SSLContext | None,
        shutdown_s: float,
        limits: PortLimits,
    ) -> None:
        """Create the listener. It does not listen before `start` is called."""
        self.connections = Connections(limits)
        self._budget = Limiter(time.monotonic, rate_per_s=limits.requests_per_s, burst=limits.requests_burst)
        """Number of further requests that each source may send without authentication."""
        self._closed, self._name, self._tls = closed, name, tls
        app.middlewares.insert(0, self._middleware)
        app.on_response_prepare.append(self._prepare)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=shutdown_s,
            keepalive_timeout=KEEP_ALIVE_TIMEOUT_S,
        )
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._peers: dict[asyncio.BaseProtocol, ClientTransport] = {}
        """Transport of each open connection, by the connection's aiohttp protocol."""
        self._by_connection: dict[Connection, ClientTransport] = {}
        self._logged: dict[str, float] = {}
        self._waiting: WaitingConnections[tuple[Limit, socket.socket]] = WaitingConnections(limits.waiting)
        """Accepted sockets that must wait, each with the limit that they would exceed now."""
        self._check: asyncio.TimerHandle | None = None
        """Next check of the waiting sockets; None while there are none."""

    @property
    def addresses(self) -> list[Any]:
        """Addresses on which the port listens, as returned by `getsockname`."""
        return [sock.getsockname() for sock in self._sockets]

    async def start(self, host: str | None, port: int) -> None:
        """Start listening.

        Raises:
            OSError: the port is in use.
        """
        await self._runner.setup()
        try:
            self._sockets = listen(host, port)
        except OSError:
            await self._runner.cleanup()
            raise
        self._accepting = [asyncio.create_task(self._accept(sock)) for sock in self._sockets]

    async def cleanup(self) -> None:
        """Stop accepting connections, wait for responses in progress, and close all connections."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, *self._opening, return_exceptions=True)
        if self._check is not None:
            self._check.cancel()
        for sock in (*self._sockets, *(waiting for _, waiting in self._waiting.clear())):
            sock.close()
        server = self._runner.server
        handshaken = set() if server is None else set(server.connections)
        for protocol, peer in list(self._peers.items()):
            if protocol not in handshaken:
                peer.close()
        await self._runner.cleanup()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for _ in range(_MAX_ACCEPTS):
                try:
                    accepted, address = await loop.sock_accept(listening)
                except ConnectionError:
                    continue  # the client has already disconnected
                except OSError as error:  # no file descriptors, no memory: both are temporary
                    log.error("connections can't be accepted", extra={"port": self._name, "error": str(error)})  # noqa: TRY400  # the message suffices
                    await asyncio.sleep(ACCEPT_RETRY_INTERVAL_S)
                    break
                try:
                    self._take(accepted, source_of(address[0]))
                except Exception:  # a failure of one connection must not close the port
                    log.exception("a connection could not be accepted", extra={"port": self._name})
                    accepted.close()
            await asyncio.sleep(0)

    def _take(self, accepted: socket.socket, source: str) -> None:
        """Serve a new connection, let it wait, or close it."""
        limit: Limit | None = "source"
        if not self._waiting.has(source):
            limit = self._begun(accepted, source)
        if limit is None:
            return
        if (closed := self._waiting.add(source, (limit, accepted), time.monotonic())) is not None:
            closed_source, (closed_limit, sock) = closed
            sock.close()
            self._count(closed_limit, closed_source)
        if self._check is None:
            self._check = asyncio.get_running_loop().call_later(WAITING_INTERVAL_S, self._check_waiting)

    def _check_waiting(self) -> None:
        self._begin_waiting()
        for limit, sock in self._waiting.expired(time.monotonic()):
            sock.close()
            self._closed.labels(self._name, limit).inc()
        self._check = None
        if self._waiting:
            self._check = asyncio.get_running_loop().call_later(WAITING_INTERVAL_S, self._check_waiting)

    def _begin_waiting(self) -> None:
        """Serve waiting connections, as far as the limits allow."""
        if self._waiting:
            self._waiting.begin(lambda source, waiting: self._begun(waiting[1], source) is None)

    def _begun(self, accepted: socket.socket, source: str) -> Limit | None:
        """Begin to serve a connection and return None, or return the limit that it would exceed."""
        if self._budget.wait_s(source):
            return "source"
        admitted = self.connections.admit(source, time.monotonic())
        if not isinstance(admitted, tuple):
            return admitted
        self._budget.take(source)
        connection, replaced = admitted
        if replaced is not None:
            self._by_connection[replaced].close()
            self._count("replaced", replaced.source)
        assert self._runner.server is not None  # noqa: S101  # set up by `start`
        protocol = self._runner.server()
        peer = self._peers[protocol] = self._by_connection[connection] = ClientTransport(self, connection, protocol)
        task = asyncio.create_task(self._open(peer, accepted))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return None

    async def _open(self, peer: ClientTransport, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        socket_protocol = PlainProtocol(peer) if self._tls is None else TlsProtocol(peer, loop, self._tls)
        try:
            await loop.connect_accepted_socket(lambda: socket_protocol, accepted)
        except BaseException as error:
            accepted.close()
            self.ended(peer)
            if not isinstance(error, OSError):
                raise

    def ended(self, peer: ClientTransport) -> None:
        """Record that a connection is closed."""
        if peer.connection.is_silent:
            self._refund(peer.connection)
        self.connections.end(peer.connection)
        self._peers.pop(peer.protocol, None)
        self._by_connection.pop(peer.connection, None)
        self._begin_waiting()

    def late(self, peer: ClientTransport) -> None:
        """Close a connection that timed out."""
        self._closed.labels(self._name, "late").inc()
        peer.close()

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Any) -> web.StreamResponse:
        peer = self._peers.get(request.protocol)
        if peer is None:  # the connection has been closed
            return await handler(request)  # type: ignore[no-any-return]
        self.connections.begin_request(peer.connection)
        peer.end_within(REQUEST_TIMEOUT_S)
        request.content.on_eof(peer.body_complete)
        response: web.StreamResponse | None = None
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = error
            raise
        else:
            return response
        finally:
            if caller := caller_of(request):
                self.connections.identify(peer.connection, caller)
                self._begin_waiting()
            keep_open = self.connections.end_request(peer.connection, time.monotonic())
            keep_open = self._within_budget(peer.connection, response) and keep_open
            if response is not None and not keep_open:
                response.force_close()
            peer.end_within(RESPONSE_TIMEOUT_S)

    def _within_budget(self, connection: Connection, response: web.StreamResponse | None) -> bool:
        """Count the request of an unidentified caller; return False if its source has sent too many.

        Responses with a status of 500 or more don't count, because agents receive them while the operator starts.
        """
        if connection.caller or connection.has_streamed or response is None or response.status >= 500:
            self._refund(connection)
            return True
        if not connection.is_prepaid:
            self._budget.take(connection.source)
        connection.is_prepaid = False
        return not self._budget.wait_s(connection.source)

    def _refund(self, connection: Connection) -> None:
        """Undo the count of a connection's first request, which was made when the connection was accepted."""
        if connection.is_prepaid:
            connection.is_prepaid = False
            self._budget.give_back(connection.source)

    async def _prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        peer = self._peers.get(request.protocol)
        if peer is not None and not isinstance(response, web.Response) and not request.get(PAGE):
            self.connections.begin_stream(peer.connection)
            self._refund(peer.connection)
            self._begin_waiting()

    def _count(self, reason: str, source: str) -> None:
        """Count a connection that was closed because of a limit. A log line is written at most once a minute."""
        self._closed.labels(self._name, reason).inc()
        now, limits = time.monotonic(), self.connections.limits
        if now - self._logged.get(reason, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._logged[reason] = now
            log.warning(
                "too many connections of unidentified callers; one was closed",
                extra={
                    "port": self._name,
                    "reason": reason,
                    "source": source,
                    "unidentified": self.connections.unidentified,
                    "limit": limits.unidentified,
                    "limit_per_source": limits.per_source,
                },
            )
