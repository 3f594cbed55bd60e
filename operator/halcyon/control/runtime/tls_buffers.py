"""Size of the buffers of TLS connections to the API server.

asyncio gives each TLS connection a buffer of 256 KiB, and receives as much at once. OpenSSL then keeps a buffer of that
size for as long as the connection is open. The operator has a connection for each watch, and up to 80 more during a
burst of requests. Out of scope: connections of the operator's own ports (`metricsapi.client_connection`).
"""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol

TLS_BUFFER_BYTES = 32 * 1024
"""Size of the buffer of a TLS connection, in bytes. A TLS record is at most 16 KiB long, so a large list is read record
by record anyway."""


def limit_buffers() -> None:
    """Limit the buffers of all TLS connections that this process opens from now on.

    `max_size` is an undocumented attribute of the standard library. If it changes, the connections need more memory,
    and a test fails.
    """
    SSLProtocol.max_size = TLS_BUFFER_BYTES
