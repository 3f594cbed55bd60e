"""HTTP server of the agent: kubelet probes, the drain hook, metrics, and the load for other agents of the model.

The server accepts only GET and HEAD, and one request per connection. It is used because aiohttp's server would need 3
MiB more memory.

Every pod of the cluster can connect, so `MAX_CONNECTIONS` limits connections. Beyond it, the server closes the oldest
connection of the source with the most connections. The kubelet sends each probe immediately after connecting, so it
gets a response before its connection becomes the oldest.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from halcyon.api.documents.balancer_plan import DRAIN_HEADER
from halcyon.balancer.discovery.peers import PATH
from halcyon.balancer.telemetry.metrics_page import CONTENT_TYPE

MAX_DRAIN_S = 60.0
MAX_CONNECTIONS = 128
_REQUEST_TIMEOUT_S = 5.0
"""Maximum time to receive a request, and maximum time to send a response, in seconds."""
_MAX_BYTES = 8192


class Health(Protocol):
    """Interface between the HTTP server and the agent, with one method for each path."""

    def healthy(self) -> str | None:
        """Return the reason why the agent isn't healthy; None if it is healthy."""

    def ready(self) -> str | None:
        """Return the reason why the balancer isn't ready; None if it is ready."""

    def metrics(self) -> str:
        """Return the agent's metrics in the Prometheus text format."""

    def load(self) -> str:
        """Return the balancer's load as JSON, for the other agents of the model."""

    async def drain(self, delay_s: float) -> None:
        """Make the balancer unready, and wait until HAProxy may stop.

        The wait takes `delay_s`, or longer if requests are held.
        """


async def serve(health: Health, *, host: str | None, port: int, drain_key: str = "") -> asyncio.Server:
    """Start the HTTP server; the caller must close it.

    Args:
        health: the agent.
        host: address to listen on; None for all.
        port: port to listen on.
        drain_key: value of `DRAIN_HEADER` that a request to `/drain` must have. If empty, all requests to `/drain` are
            rejected.

    Raises:
        OSError: the port is in use.
    """
    sources: dict[asyncio.StreamWriter, str] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sources[writer] = str((writer.get_extra_info("peername") or ("",))[0])
        if len(sources) > MAX_CONNECTIONS:
            _close_oldest(sources)
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            may_drain = _has_key(head, drain_key)
            if may_drain:
                # A drain takes long, and no flood of other connections may end it.
                sources.pop(writer, None)
            status, body = await _answer(health, head, may_drain=may_drain)
            content = body.encode()
            headers = f"Content-Type: {CONTENT_TYPE}\r\nContent-Length: {len(content)}\r\nConnection: close"
            sent = b"" if head.startswith(b"HEAD ") else content
            writer.write(f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n".encode() + sent)
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # The client disconnected, sent no complete request in time, or did not read the response.
            writer.transport.abort()
        finally:
            sources.pop(writer, None)
            writer.close()

    return await asyncio.start_server(answer, host, port, limit=_MAX_BYTES)


def _close_oldest(sources: dict[asyncio.StreamWriter, str]) -> None:
    [(most, _)] = Counter(sources.values()).most_common(1)
    oldest = next(writer for writer, source in sources.items() if source == most)
    del sources[oldest]
    oldest.transport.abort()


def _has_key(head: bytes, key: str) -> bool:
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    header = next((value.strip() for name, _, value in lines if name.lower() == DRAIN_HEADER), "")
    return bool(key) and hmac.compare_digest(header.encode("latin-1"), key.encode("latin-1"))


async def _answer(health: Health, head: bytes, *, may_drain: bool) -> tuple[str, str]:
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3:
        return "400 Bad Request", "the request is not HTTP\n"
    try:
        target = urlsplit(words[1])
    except ValueError:
        return "400 Bad Request", "the path is not valid\n"
    # HEAD is allowed only for paths without side effects.
    if words[0] not in ({"GET"} if target.path == "/drain" else {"GET", "HEAD"}):
        return "405 Method Not Allowed", "use GET\n"
    if target.path == "/healthz":
        return _probe_response(health.healthy())
    if target.path == "/readyz":
        return _probe_response(health.ready())
    if target.path in {"/metrics", PATH}:
        return "200 OK", health.metrics() if target.path == "/metrics" else health.load()
    if target.path == "/drain":
        return (
            await _drain(health, target.query)
            if may_drain
            else ("403 Forbidden", "only the kubelet may drain this pod\n")
        )
    return "404 Not Found", "not found\n"


async def _drain(health: Health, query: str) -> tuple[str, str]:
    try:
        delay_s = float(parse_qs(query).get("delay", ["10"])[0])
    except ValueError:
        return "400 Bad Request", "delay must be a number of seconds, for example /drain?delay=10\n"
    if not 0 <= delay_s <= MAX_DRAIN_S:
        return "400 Bad Request", f"delay must be from 0 to {MAX_DRAIN_S:g} seconds\n"
    await health.drain(delay_s)
    return "200 OK", "drained\n"


def _probe_response(why_not: str | None) -> tuple[str, str]:
    return ("200 OK", "ok\n") if why_not is None else ("503 Service Unavailable", why_not + "\n")
