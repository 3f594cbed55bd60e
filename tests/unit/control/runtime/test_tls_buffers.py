"""Buffers of TLS connections to the API server."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

from halcyon.control.runtime.tls_buffers import TLS_BUFFER_BYTES, SmallBufferEventLoop
from tests.unit.balancer.stand_in_api import certificate

LIST = b"x" * 300_000


def test_tls_connections_receive_a_large_list_into_small_buffers(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=SmallBufferEventLoop) as runner:
        runner.run(received_list(tmp_path))


async def received_list(tmp_path: Path) -> None:
    """Receive a list over TLS, and check the size of the buffer before and after it."""
    tls, pem = certificate(tmp_path, name="api")

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(LIST)
        await writer.drain()
        writer.close()

    path = str(tmp_path / "api")
    async with await asyncio.start_unix_server(answer, path, ssl=tls):
        trust = ssl.create_default_context(cadata=pem)
        reader, writer = await asyncio.open_unix_connection(path, ssl=trust, server_hostname="api")
        protocol: Any = writer.transport.get_protocol()
        connection: Any = protocol._transport._ssl_protocol
        assert len(connection._ssl_buffer) == TLS_BUFFER_BYTES
        assert await reader.readexactly(len(LIST)) == LIST
        assert len(connection._ssl_buffer) == TLS_BUFFER_BYTES
        writer.close()
        await writer.wait_closed()
