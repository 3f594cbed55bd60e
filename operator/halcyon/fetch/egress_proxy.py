"""Loopback proxy for a model's download, which connects only to the servers of the model's source.

It never connects to this machine, to link-local addresses, or to metadata services of a cloud or a node.
`sitePolicy.models` lists the private networks that the site allows.

The author of a ModelDeployment chooses the server to which a pod connects. Its name can resolve to any address, the
address can change at any time, and the server can redirect. Checking the name or its address before the download is
therefore not enough. Instead, the proxy connects to exactly the address that it has checked. For TLS it tunnels the
bytes (CONNECT, RFC 9110 section 9.3.6), and the client verifies the certificate. If the site has an HTTP proxy for its
egress, this proxy connects to the site's proxy, which resolves the name. Names that this machine can't resolve are then
not checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from halcyon.api.policy.metadata_addresses import METADATA

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_METADATA = frozenset(map(ipaddress.ip_address, METADATA))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""NAT64 network, in which the last 32 bits of an address are an IPv4 address (RFC 6052)."""
_MAX_HEAD_BYTES = 64 * 1024
_CHUNK_BYTES = 256 * 1024
_CONNECT_TIMEOUT_S = 5.0
"""Maximum time for connecting to one address, in seconds. A host may have IPv4 and IPv6 addresses, and the cluster may
have no route for one of the two."""


def is_open(address: Address, *, private: bool) -> bool:
    """Return True if a download may connect to the address.

    This machine, link-local addresses and metadata services are never allowed. Private networks are allowed only if
    `private` is true.
    """
    address = _ipv4_of(address)
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return False
    if address in _METADATA or address.is_reserved:
        return False
    return private or address.is_global


def _ipv4_of(address: Address) -> Address:
    """Return the IPv4 address embedded in an IPv6 address, or the address itself if there is none."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


@dataclass(frozen=True)
class SiteProxy:
    """HTTP proxy through which the site's pods reach other networks."""

    url: str
    """URL of the proxy, for example `http://proxy.example.com:3128`."""
    direct: tuple[str, ...] = ()
    """Hosts that are reached without the proxy: names, suffixes that begin with a dot, addresses, and networks in CIDR
    notation. A name may have a port (`minio.example.com:9000`), and then stands for this port only.
    """

    def serves(self, host: str, port: int) -> bool:
        """Return whether connections to the host and port go through the proxy."""
        return not any(_matches(host, port, entry.lower()) for entry in self.direct)


class EgressProxy:
    """Proxy for one download, which runs in a separate thread."""

    def __init__(
        self,
        urls: Sequence[str],
        allows: Callable[[Address], bool],
        site: SiteProxy | None = None,
        domains: tuple[str, ...] = (),
    ) -> None:
        """Create a proxy that connects only to the hosts and ports in `urls`, at addresses for which `allows` returns True.

        The first URL is that of the model, and appears in error messages. `site` is the proxy of the site; None if pods
        connect directly. `domains` are domain names with a leading dot; their hosts are allowed on the port of the
        first URL.
        """
        self._site = site
        self._domains = domains
        self._servers = [_server(url) for url in urls]
        self._allows = allows
        self._denied: dict[tuple[str, int], str] = {}
        """Reason why the last connection to a host and port was rejected or failed. A successful connection removes the
        entry."""

    @property
    def denied_reason(self) -> str:
        """Reason why the proxy rejected a connection; empty if none, or if a later one to the same server succeeded."""
        return next(iter(self._denied.values()), "")

    def forget_denials(self) -> None:
        """Forget the reasons of earlier rejections, so that `denied_reason` applies only to later requests."""
        self._denied.clear()

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
            host, port = parts.hostname or "", parts.port or 80
            try:
                server_reader, server_writer = await self._connect(host, port)
            except OSError as error:
                self._denied[host, port] = str(error)
                writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                await writer.drain()
                return
            open_.append(server_writer)
            respond = _copy
            through_site = self._site is not None and self._site.serves(host, port)
            if tunnel and through_site:
                if denied := await self._open_tunnel(head, server_reader, server_writer):
                    self._denied[host, port] = denied
                    return
            elif not tunnel and not through_site:
                head, respond = _for_origin(head, parts), _last_response
            self._denied.pop((host, port), None)
            (writer if tunnel else server_writer).write(b"HTTP/1.1 200 OK\r\n\r\n" if tunnel else head)
            await asyncio.gather(_copy(reader, server_writer), respond(server_reader, writer))
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client detects the closed connection and reports the error
        finally:
            for stream in open_:
                stream.close()
            for stream in open_:
                with contextlib.suppress(OSError):
                    await stream.wait_closed()

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        is_below = host.endswith(self._domains) and port == self._servers[0][1]
        if (host, port) not in self._servers and not is_below:
            own_host, own_port = self._servers[0]
            raise OSError(
                f"{own_host}:{own_port} redirects to {host}:{port}, and a download may connect only to the host in the URI; use that host in the URI"
            )
        through = self._site if self._site is not None and self._site.serves(host, port) else None
        addresses = await _resolved(host, port, may_fail=through is not None)
        allowed = [text for text in addresses if self._allows(ipaddress.ip_address(text.partition("%")[0]))]
        if not allowed and (addresses or through is None):
            raise OSError(
                f"{host} is {', '.join(addresses)}, and models can't be downloaded from this machine, a cloud's metadata service, or a private network that the "
                "site policy doesn't list (sitePolicy.models.endpoints for the endpoint of a bucket, else sitePolicy.models.urls)"
            )
        if through is not None:
            host, port = _server(through.url)
            allowed = await _resolved(host, port)
        last_error: OSError | None = None
        for text in allowed:
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                    return await asyncio.open_connection(text, port, limit=_CHUNK_BYTES)
            except OSError as error:  # TimeoutError is one
                last_error = error
        reason = (last_error and last_error.strerror) or f"no connection within {_CONNECT_TIMEOUT_S:.0f} s"
        kind = "the site's proxy " if through is not None else ""
        raise OSError(f"{kind}{host}:{port} can't be reached: {reason}") from last_error

    async def _open_tunnel(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Request a tunnel from the site's proxy, and return the reason if it is denied; empty if it is not."""
        writer.write(head)
        status = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0].decode(errors="replace")
        if status.split(" ")[1:2] == ["200"]:
            return ""
        site = self._site.url if self._site is not None else ""
        return f"the site's proxy {site} denied the connection: {status[:200]}"


def _for_origin(head: bytes, url: SplitResult) -> bytes:
    """Return the head of a proxy request, rewritten for a server that is not a proxy.

    The rewritten head contains only the path of the URL, because some servers (such as Python's) don't support the
    absolute URL that clients send to a proxy. The connection closes after the response, because only the first request
    on a connection is rewritten.
    """
    method, _, version = head.partition(b"\r\n")[0].split(b" ", 2)
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    return _closing(head, b" ".join([method, path.encode(), version]))


def _closing(head: bytes, line: bytes) -> bytes:
    """Return the head with this first line, and with a header that closes the connection after the response."""
    names = {b"connection", b"proxy-connection", b"keep-alive"}
    headers = [header for header in head.split(b"\r\n")[1:] if header.partition(b":")[0].lower() not in names]
    return b"\r\n".join([line, b"Connection: close", *headers])


async def _last_response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy the response of a server that closes the connection after it, and add a header that announces this.

    Not all servers send this header. Without it, the client would send its next request, for example after a redirect,
    on a connection that is about to close.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(_closing(head, head.partition(b"\r\n")[0]))
    except asyncio.IncompleteReadError as error:
        writer.write(error.partial)
    await _copy(reader, writer)


async def _resolved(host: str, port: int, *, may_fail: bool = False) -> list[str]:
    """Return the addresses of a host. If `may_fail` is true and the host can't be resolved, return no addresses.

    Raises:
        OSError: the host can't be resolved.
    """
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        if may_fail:
            return []
        raise OSError(f"{host} can't be resolved: {error.strerror}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in infos))


def _matches(host: str, port: int, entry: str) -> bool:
    """Return whether a host and port match an entry, in lower case, of a list as in the environment variable NO_PROXY."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    name, _, entry_port = entry.removeprefix(".").partition(":")
    return entry_port in {"", str(port)} and (host == name or host.endswith("." + name))


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
