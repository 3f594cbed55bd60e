"""HTTP server of the agent, for the kubelet's probes, the drain hook, the agent's metrics and the model's other agents.

It accepts GET and HEAD, one request per connection. aiohttp's server would add 3 MiB to the process, for five short responses.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from halcyon.balancer.discovery.peers import PATH
from halcyon.balancer.telemetry.metrics_page import CONTENT_TYPE

MAX_DRAIN_S = 60.0
_REQUEST_TIMEOUT_S = 5.0
_MAX_BYTES = 8192


class Health(Protocol):
    """Interface to the agent, which the HTTP server calls for each path."""

    def healthy(self) -> str | None:
        """Return None if healthy, else the reason why not."""

    def ready(self) -> str | None:
        """Return None if ready, else the reason why not."""

    def metrics(self) -> str:
        """Return the agent's metrics in the Prometheus text format."""

    def load(self) -> str:
        """Return the balancer's load, for the other agents of the model, as JSON."""

    async def drain(self, delay_s: float) -> None:
        """Become unready, and return when HAProxy may stop: after `delay_s`, or later if requests are still held."""


async def serve(health: Health, *, host: str | None, port: int) -> asyncio.Server:
    """Start the HTTP server; the caller must close it.

    Raises:
        OSError: the port is in use.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            status, body = await _answer(health, head)
            content = body.encode()
            headers = f"Content-Type: {CONTENT_TYPE}\r\nContent-Length: {len(content)}\r\nConnection: close"
            sent = b"" if head.startswith(b"HEAD ") else content
            writer.write(f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n".encode() + sent)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client disconnected, or sent no complete request
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port, limit=_MAX_BYTES)


async def _answer(health: Health, head: bytes) -> tuple[str, str]:
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3:
        return "400 Bad Request", "the request is not HTTP\n"
    target = urlsplit(words[1])
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
        try:
            delay_s = float(parse_qs(target.query).get("delay", ["10"])[0])
        except ValueError:
            return "400 Bad Request", "delay must be a number of seconds, for example /drain?delay=10\n"
        if not 0 <= delay_s <= MAX_DRAIN_S:
            return "400 Bad Request", f"delay must be from 0 to {MAX_DRAIN_S:g} seconds\n"
        await health.drain(delay_s)
        return "200 OK", "drained\n"
    return "404 Not Found", "not found\n"


def _probe_response(why_not: str | None) -> tuple[str, str]:
    return ("200 OK", "ok\n") if why_not is None else ("503 Service Unavailable", why_not + "\n")
