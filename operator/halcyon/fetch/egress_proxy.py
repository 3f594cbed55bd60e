"""Proxy on the loopback interface through which a download connects, and which connects only to the servers of the model's source.

It never connects to metadata services of a cloud or a node (`allowed_addresses`).

The author of a ModelDeployment chooses the server to which a pod connects. Its name can resolve to any address, the address can change
at any time, and the server can redirect. Checking the name or its address before the download is therefore not enough. The proxy
connects to exactly the address that it has checked. For TLS it tunnels the bytes (CONNECT, RFC 9110 section 9.3.6), and the client
verifies the certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

from halcyon.fetch.allowed_addresses import Address

_MAX_HEAD_BYTES = 64 * 1024
_CHUNK_BYTES = 256 * 1024


class EgressProxy:
    """Proxy for one download, which runs in a separate thread."""

    def __init__(self, urls: Sequence[str], allows: Callable[[Address], bool]) -> None:
        """Create a proxy that connects only to the hosts and ports in `urls`, at addresses for which `allows` returns True.

        The first URL is the model's, which errors name.
        """
        self._servers = [_server(url) for url in urls]
        self._allows = allows
        self.denied_reason = ""
        """Reason why the proxy rejected a connection; empty if it rejected none."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[str]:
        """Return a context manager that runs the proxy and yields its URL."""
        ready: threading.Event = threading.Event()
        loop = asyncio.new_event_loop()
        listener = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=self._run, args=(loop, listener, ready), name="egress-proxy", daemon=True)
        thread.start()
        ready.wait()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _run(self, loop: asyncio.AbstractEventLoop, listener: socket.socket, ready: threading.Event) -> None:
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(asyncio.start_server(self._serve, sock=listener, limit=_MAX_HEAD_BYTES))
        loop.call_soon(ready.set)
        loop.run_forever()
        server.close()
        under_way = asyncio.all_tasks(loop)
        for task in under_way:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*under_way, return_exceptions=True))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_: list[asyncio.StreamWriter] = [writer]
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, target = head.split(b" ", 2)[:2]
            tunnel = method == b"CONNECT"
            parts = urlsplit("//" + target.decode() if tunnel else target.decode())
            try:
                server_reader, server_writer = await self._connect(parts.hostname or "", parts.port or 80)
            except OSError as error:
                self.denied_reason = self.denied_reason or str(error)
                writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                await writer.drain()
                return
            open_.append(server_writer)
            # Pass the head on unchanged: servers also accept the absolute form of a request target (RFC 9112, section 3.2.2).
            (writer if tunnel else server_writer).write(b"HTTP/1.1 200 OK\r\n\r\n" if tunnel else head)
            await asyncio.gather(_copy(reader, server_writer), _copy(server_reader, writer))
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client detects the closed connection and reports the error
        finally:
            for one in open_:
                one.close()
            for one in open_:
                with contextlib.suppress(OSError):
                    await one.wait_closed()

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if (host, port) not in self._servers:
            own_host, own_port = self._servers[0]
            raise OSError(
                f"{own_host}:{own_port} redirects to {host}:{port}, and a download may connect only to the host in the URI; use that host in the URI"
            )
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise OSError(f"{host} can't be resolved: {error.strerror}") from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in infos))
        allowed = [text for text in addresses if self._allows(ipaddress.ip_address(text.partition("%")[0]))]
        if not allowed:
            raise OSError(
                f"{host} is {', '.join(addresses)}, and models can't be downloaded from this machine, a cloud's metadata service, or a private network that the "
                "site policy doesn't list (sitePolicy.models.endpoints for the endpoint of a bucket, else sitePolicy.models.urls)"
            )
        last_error: OSError | None = None
        for text in allowed:
            try:
                return await asyncio.open_connection(text, port, limit=_CHUNK_BYTES)
            except OSError as error:
                last_error = error
        raise OSError(f"{host}:{port} can't be reached: {last_error.strerror if last_error else ''}") from last_error


def _server(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(_CHUNK_BYTES):
            writer.write(piece)
            await writer.drain()
    finally:
        with contextlib.suppress(OSError):
            writer.write_eof()
