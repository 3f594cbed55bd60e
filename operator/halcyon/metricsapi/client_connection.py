"""One accepted connection: its transport, its timeout, and the protocols between the socket and aiohttp.

asyncio's own servers accept a connection and start TLS before their user can refuse it. So `listener` accepts sockets and attaches
these protocols to them. Out of scope: how long a connection has, and which may stay (`listener`, `connections`).
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Protocol

from aiohttp import web
from typing_extensions import override

from halcyon.metricsapi.connections import Connection

REQUEST_TIMEOUT_S = 10.0
"""Timeout of the TLS handshake and the first request head together, from accept on; and of a request's body."""
TLS_CLOSE_TIMEOUT_S = 2.0
"""Maximum time for a client to confirm the end of its TLS session."""
TLS_BUFFER_BYTES = 16 * 1024
"""Maximum content of a TLS record. asyncio's own buffers take 256 KiB per connection, even if idle."""


class Owner(Protocol):
    """The listener's interface to its connections."""

    def ended(self, peer: ClientTransport) -> None:
        """Record that a connection is closed."""

    def late(self, peer: ClientTransport) -> None:
        """Close a connection that timed out."""


class ClientTransport:
    """The transport of a connection, with its timeout."""

    def __init__(self, owner: Owner, connection: Connection, protocol: web.RequestHandler) -> None:
        self._owner, self.connection, self.protocol = owner, connection, protocol
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False

    def opened(self, transport: asyncio.BaseTransport) -> None:
        """Record that the transport is open: the socket's own, below TLS."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # of a socket
        self._transport = transport
        self.end_within(REQUEST_TIMEOUT_S)
        if self._closing:
            transport.abort()

    def end_within(self, limit_s: float) -> None:
        """Close it after this time, unless the timeout is removed or replaced before."""
        self.cancel_timeout()
        if not self.connection.closed:
            self._timer = asyncio.get_running_loop().call_later(limit_s, self._owner.late, self)

    def cancel_timeout(self) -> None:
        """Remove the timeout."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def body_complete(self) -> None:
        """Record that the request is complete. A response that was sent before has a timeout of its own."""
        if self.connection.in_request:
            self.cancel_timeout()

    def close(self) -> None:
        """Close at once, without waiting for a client that doesn't read."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def lost(self) -> None:
        """Record that it is closed."""
        self._owner.ended(self)
        self.cancel_timeout()


class PlainProtocol(asyncio.Protocol):
    """aiohttp's protocol, which also reports the connection's start and end to its `ClientTransport`."""

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
    """asyncio's TLS below aiohttp's protocol, with a small buffer, which is most of the cost of an idle connection.

    `max_size` and the constructor belong to the standard library, but are not documented; test_ports.py measures a connection.
    """

    max_size = TLS_BUFFER_BYTES

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

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._peer.opened(transport)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self._peer.lost()
        super().connection_lost(exc)
