"""Accepted connection: its transport, its timeout, and the protocols between the socket and aiohttp.

A server of asyncio accepts a connection and starts TLS before the application can reject it. Therefore `listener`
accepts sockets itself, and attaches these protocols to them. Out of scope: the choice of timeouts (`listener`) and
connection limits (`connections`).
"""

from __future__ import annotations

import asyncio
import ssl
import time
from asyncio.sslproto import SSLProtocol
from typing import Protocol

from aiohttp import web
from typing_extensions import override

from halcyon.metricsapi.connections import Connection

REQUEST_TIMEOUT_S = 10.0
"""Timeout, in seconds, for the TLS handshake and the head of the first request together. It begins when a connection is
accepted. The same timeout applies to the body of each request."""
TLS_CLOSE_TIMEOUT_S = 2.0
"""Maximum time until a client confirms the end of its TLS session, in seconds."""
TLS_BUFFER_BYTES = 4 * 1024
"""Size of the TLS buffer of a connection. The default of asyncio takes 256 KiB, even for an idle connection. A TLS
record that is larger than the buffer takes several reads."""


class Owner(Protocol):
    """Interface through which a connection reports its end and its timeout to the listener."""

    def ended(self, peer: ClientTransport) -> None:
        """Record that a connection is closed."""

    def late(self, peer: ClientTransport) -> None:
        """Close a connection that timed out."""


class ClientTransport:
    """Transport of a client's connection, with its timeout."""

    __slots__ = ("_closing", "_owner", "_timer", "_transport", "connection", "protocol")

    def __init__(self, owner: Owner, connection: Connection, protocol: web.RequestHandler) -> None:
        self._owner, self.connection, self.protocol = owner, connection, protocol
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False

    def opened(self, transport: asyncio.BaseTransport) -> None:
        """Record that the socket's own transport, which is below TLS, is open."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # of a socket
        self._transport = transport
        self.end_within(REQUEST_TIMEOUT_S)
        if self._closing:
            transport.abort()

    def received(self) -> None:
        """Record that bytes were received on the connection."""
        self.connection.begin_input(time.monotonic())

    def end_within(self, limit_s: float) -> None:
        """Close the connection after this time, in seconds, unless the timeout is removed or replaced before."""
        self.cancel_timeout()
        if not self.connection.closed:
            self._timer = asyncio.get_running_loop().call_later(limit_s, self._owner.late, self)

    def cancel_timeout(self) -> None:
        """Remove the timeout of the connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def body_complete(self) -> None:
        """Record that the request is complete, and remove the timeout.

        The timeout stays if the response has been sent already, because it is then that of the next request.
        """
        if self.connection.in_request:
            self.cancel_timeout()

    def close(self) -> None:
        """Close the connection at once, even if the client has not read all data."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def lost(self) -> None:
        """Record that the connection is closed."""
        self._owner.ended(self)
        self.cancel_timeout()


class PlainProtocol(asyncio.Protocol):
    """Protocol that passes events to aiohttp's protocol, and the start and the end to its `ClientTransport`."""

    def __init__(self, peer: ClientTransport) -> None:
        self._peer, self._inner = peer, peer.protocol

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)
        self._peer.opened(transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.lost()
        self._inner.connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        self._peer.received()
        self._inner.data_received(data)

    @override
    def eof_received(self) -> None:
        self._inner.eof_received()

    @override
    def pause_writing(self) -> None:
        self._inner.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._inner.resume_writing()


class TlsProtocol(SSLProtocol):
    """TLS protocol of asyncio with a small buffer. The buffer takes most of the memory of an idle connection.

    `max_size` and the constructor are undocumented parts of the standard library; test_ports.py measures the memory of
    a connection.
    """

    max_size = TLS_BUFFER_BYTES
    _received = bytearray(TLS_BUFFER_BYTES)
    """Buffer into which the event loop receives, which all connections share. The data in it is processed, and so
    copied, before the event loop receives anything else."""
    _received_view = memoryview(_received)

    def __init__(self, peer: ClientTransport, loop: asyncio.AbstractEventLoop, context: ssl.SSLContext) -> None:
        self._peer = peer
        super().__init__(
            loop,
            peer.protocol,
            context,
            None,  # type: ignore[arg-type]  # no waiter: the handshake has a time-out
            server_side=True,
            ssl_shutdown_timeout=TLS_CLOSE_TIMEOUT_S,
        )
        self._ssl_buffer, self._ssl_buffer_view = self._received, self._received_view

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._peer.opened(transport)

    @override
    def buffer_updated(self, nbytes: int) -> None:
        self._peer.received()
        super().buffer_updated(nbytes)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self._peer.lost()
        super().connection_lost(exc)
