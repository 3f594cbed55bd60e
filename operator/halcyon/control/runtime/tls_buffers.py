"""Size of the buffers of TLS connections to the API server.

asyncio gives each TLS connection a buffer of 256 KiB, and receives as much at once. OpenSSL then keeps a buffer of that
size for as long as the connection is open. The operator has a connection for each watch, and up to 80 more during a
burst of requests. Out of scope: connections of the operator's own ports (`metricsapi.client_connection`).
"""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
from typing import Any

TLS_BUFFER_BYTES = 32 * 1024
"""Size of the buffer of a TLS connection, in bytes. A TLS record is at most 16 KiB long, so a large list is read record
by record anyway."""


class _TlsProtocol(SSLProtocol):
    max_size = TLS_BUFFER_BYTES


class SmallBufferEventLoop(asyncio.SelectorEventLoop):
    """Event loop whose TLS connections have small buffers.

    The overridden method, and `max_size` of the protocol, are undocumented parts of the standard library. If they
    change, the connections need more memory, and a test fails.
    """

    def _make_ssl_transport(
        self,
        rawsock: Any,
        protocol: Any,
        sslcontext: Any,
        waiter: Any = None,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        extra: Any = None,
        server: Any = None,
        **timeouts: Any,
    ) -> Any:
        tls = _TlsProtocol(self, protocol, sslcontext, waiter, server_side, server_hostname, **timeouts)
        self._make_socket_transport(rawsock, tls, extra=extra, server=server)  # type: ignore[attr-defined]  # not in typeshed
        return tls._app_transport  # noqa: SLF001  # as the overridden method does
