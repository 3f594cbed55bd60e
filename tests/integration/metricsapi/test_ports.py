"""The operator's ports over real sockets: time-outs, limits of connections, memory, and both families of addresses."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from halcyon.api.documents.observation_report import STREAM_PATH
from halcyon.metricsapi.auth import CALLER
from halcyon.metricsapi.certificates import renewed
from halcyon.metricsapi.connections import DEFAULT_LIMITS, PortLimits
from halcyon.metricsapi.listener import Listener, ListeningPorts
from halcyon.metricsapi.sockets import FAMILIES, listen_on_all
from halcyon.metricsapi.tls import ServingTLS
from tests.integration.served_ports import Served, allow_open_files, client, served, unverified
from tests.integration.waiting import PATIENCE

CLOSED_WITHIN_S = 30.0
KNOWN = 30
"""Connections that a caller who is identified leaves idle."""
LARGE_MIB = 15
"""Memory that the operator takes at least for a page of 20 MB. It is rendered once for all readers."""
SOURCES = [f"127.0.{third}.{fourth}" for third in (7, 8) for fourth in range(1, 16)]
HALF = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Half"
COMPLETE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
IDENTIFIED = b"GET /apis HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\n\r\n"
HALF_BODY = (
    b"POST /api/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
)
TLS = unverified()
LIMITS = PortLimits(unidentified=8, per_source=2, idle=4, idle_per_caller=2)


async def silent(port: int, source: str, *, tls: bool, sent: bytes = b"") -> float | None:
    """Connect, send this, and no more: the seconds until the operator closes; None where it did so before anything was sent."""
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=(source, 0), ssl=TLS if tls else None
        )
    except OSError:
        return None
    return await rest(reader, writer, sent)


async def ask_once(port: int, source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect and get an answer, as a caller that is known."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0), ssl=TLS)
    writer.write(IDENTIFIED)
    assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def rest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes = b"") -> float:
    """Send this, and no more: the seconds until the operator closes."""
    began = time.monotonic()
    try:
        writer.write(sent)
        with contextlib.suppress(OSError):
            while await reader.read(65536):
                pass
        return time.monotonic() - began
    finally:
        writer.transport.abort()


async def unread(site: Served) -> float:
    """Ask three times for a page that the kernel's buffers don't hold, and read none: the seconds until all are closed."""
    loop = asyncio.get_running_loop()
    before, sockets = site.resident_mib(), site.sockets()
    opened = [socket.socket() for _ in range(3)]
    for connection in opened:
        connection.setblocking(False)
        await loop.sock_connect(connection, ("127.0.0.1", site.http))
        await loop.sock_sendall(connection, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(10 * PATIENCE):
        while site.sockets() < sockets + 3 or site.resident_mib() < before + LARGE_MIB:  # noqa: ASYNC110  # of another process
            await asyncio.sleep(0.1)
    assert site.resident_mib() < before + 3 * LARGE_MIB, "each reader has a page of its own"
    began = time.monotonic()
    async with asyncio.timeout(CLOSED_WITHIN_S * PATIENCE):
        while site.sockets() > sockets:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    for connection in opened:
        connection.close()
    return time.monotonic() - began


async def most_resident(site: Served) -> float:
    """Watch its memory until cancelled; the largest."""
    most = site.resident_mib()
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(0.2)
            most = max(most, site.resident_mib())
    return most


async def test_600_idle_connections_are_closed_and_cost_little() -> None:
    """Of each kind, from many addresses, while a client, an agent's stream and a page's stream go on undisturbed."""
    allow_open_files()
    kinds = [(False, b"")] * 200 + [(True, b"")] * 140 + [(True, HALF)] * 130 + [(True, COMPLETE)] * 130
    random.Random(1).shuffle(kinds)
    with served() as site, served() as other, client(site.https) as took:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=TLS)) as session:
            reads = asyncio.create_task(unread(other))
            agent = await session.ws_connect(
                f"https://127.0.0.1:{site.https}{STREAM_PATH}", headers={"Authorization": "Bearer digits"}
            )
            receives = asyncio.create_task(agent.receive())  # and answers pings
            page = await session.get(f"https://localhost:{site.dashboard}/api/stream/models")
            await asyncio.sleep(0.5)  # what the first requests load is no cost of a connection
            before = site.resident_mib()
            watch = asyncio.create_task(most_resident(site))
            known = [await ask_once(site.https, SOURCES[0]) for _ in range(KNOWN)]
            crowd = zip(kinds, itertools.cycle(SOURCES), strict=False)
            async with asyncio.timeout(CLOSED_WITHIN_S * PATIENCE):
                lasted = await asyncio.gather(
                    *(silent(site.https, source, tls=tls, sent=sent) for (tls, sent), source in crowd),
                    *(silent(site.dashboard, SOURCES[0], tls=True, sent=HALF_BODY) for _ in range(5)),
                    *(rest(*connection) for connection in known),
                )
            watch.cancel()
            grown_mib = await watch - before
            unidentified = [seconds for seconds in lasted[:-KNOWN] if seconds is not None]
            identified = [seconds for seconds in lasted[-KNOWN:] if seconds is not None]
            assert len(unidentified) > DEFAULT_LIMITS.unidentified // 2, "most were refused at once"
            assert max(unidentified) < CLOSED_WITHIN_S / 2
            assert CLOSED_WITHIN_S / 2 < min(identified) <= max(identified) < CLOSED_WITHIN_S
            assert await reads < CLOSED_WITHIN_S
            assert grown_mib < 30
            assert not receives.done()
            assert (await asyncio.wait_for(page.content.readline(), 10)).startswith(b"retry")
            assert not page.content.at_eof()
            page.close()
            receives.cancel()
            await asyncio.wait([receives])
            await agent.close()
    assert len(took) > 40
    assert max(took) < 1.0 * PATIENCE, sorted(took)[-5:]


async def test_a_tls_connection_costs_less_than_asyncios_own_buffer() -> None:
    """asyncio's is 256 KiB. Fails if a Python no longer takes our buffer's size."""
    with served() as site:
        opened = [await asyncio.open_connection("127.0.0.1", site.https, ssl=TLS) for _ in range(50)]
        await asyncio.sleep(0.2)
        before = site.resident_mib()
        opened += [
            await asyncio.open_connection("127.0.0.1", site.https, ssl=TLS, local_addr=(SOURCES[number % 20], 0))
            for number in range(200)
        ]
        each_kib = (site.resident_mib() - before) * 1024 / 200
        for _, writer in opened:
            writer.transport.abort()
        assert each_kib < 90


async def hello(request: web.Request) -> web.Response:
    """Identify the caller by a header."""
    if name := request.headers.get("X-Name"):
        request[CALLER] = name
    return web.Response(text="hello")


async def stream(request: web.Request) -> web.StreamResponse:
    """Stream until the client goes."""
    await asyncio.sleep(0.05)  # a review
    response = web.WebSocketResponse()
    await response.prepare(request)
    async for _ in response:
        pass
    return response


@asynccontextmanager
async def listening(
    *, limits: PortLimits = LIMITS, tls: bool = False, host: str | None = "127.0.0.1"
) -> AsyncIterator[tuple[Listener, int, CollectorRegistry]]:
    """Open a port: the listener, its number, the metrics."""
    app = web.Application()
    app.add_routes([web.get("/", hello), web.get("/stream", stream)])
    registry = CollectorRegistry()
    certificate = renewed(None, ("localhost",), datetime.now(UTC)).serving if tls else None
    context = (
        None if certificate is None else ServingTLS(cert_pem=certificate.cert_pem, key_pem=certificate.key_pem).context
    )
    listener = await ListeningPorts(registry).open(
        app, name="http", host=host, port=0, tls=context, limits=limits, shutdown_s=0.2
    )
    try:
        yield listener, listener.addresses[0][1], registry
    finally:
        await listener.cleanup()


def closed_for(registry: CollectorRegistry, reason: str) -> float | None:
    return registry.get_sample_value("halcyon_connections_closed_total", {"port": "http", "reason": reason})


async def connect(port: int, source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5 * PATIENCE):
        while not true():  # noqa: ASYNC110 - a count of the other side has no event
            await asyncio.sleep(0.01)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = "") -> bytes:
    """Ask once; the head of the answer, empty if the connection was closed."""
    named = f"X-Name: {name}\r\n" if name else ""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        writer.write(f"GET / HTTP/1.1\r\nHost: localhost\r\n{named}\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(5)
        return head
    return b""


async def answer_once(host: str, port: int, source: str | None = None) -> bytes:
    """Connect, ask, close; the head of the answer."""
    reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0) if source else None)
    try:
        return await answer(reader, writer)
    finally:
        writer.transport.abort()


async def test_a_source_over_its_limit_is_closed_before_tls(caplog: pytest.LogCaptureFixture) -> None:
    limits = replace(LIMITS, waiting=0)
    async with listening(limits=limits, tls=True) as (listener, port, registry):
        idle = [await connect(port, "127.0.9.1") for _ in range(LIMITS.pressure)]
        for _, writer in idle:
            writer.write(b"\x16")  # a connection on which nothing was received would soon be replaced
        await until(lambda: listener.connections.unidentified == LIMITS.pressure)
        reader, writer = await connect(port, "127.0.9.1")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert closed_for(registry, "source") == 1
        other = aiohttp.TCPConnector(ssl=TLS, local_addr=("127.0.9.2", 0))
        async with (
            aiohttp.ClientSession(connector=other) as session,
            session.get(f"https://127.0.0.1:{port}/") as response,
        ):
            assert response.status == 200
        for open_writer in (writer, *(writer for _, writer in idle)):
            open_writer.transport.abort()
    (line,) = [record for record in caplog.records if "too many connections" in record.message]
    assert vars(line).items() >= {"reason": "source", "source": "127.0.9.1", "limit": 8, "limit_per_source": 2}.items()


async def test_idle_connections_of_one_address_are_bounded_and_agents_get_in() -> None:
    """Beyond the limits of connections and of waiting sockets, they are closed at once."""
    limits = replace(LIMITS, waiting=5)
    async with listening(limits=limits) as (listener, port, registry):
        flood = [await connect(port, "127.0.9.1") for _ in range(40)]
        await until(lambda: closed_for(registry, "source") is not None)
        assert listener.connections.unidentified <= limits.unidentified
        async with aiohttp.ClientSession() as session, asyncio.timeout(20 * PATIENCE):
            while True:
                try:
                    agent = await session.ws_connect(f"http://127.0.0.1:{port}/stream")
                    break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.02)
            is_open = [not reader.at_eof() and reader.exception() is None for reader, _ in flood]
            assert sum(is_open) <= limits.unidentified + limits.waiting
            await agent.close()
        for _, writer in flood:
            writer.transport.abort()


async def test_a_full_port_makes_room_for_a_source_that_has_none() -> None:
    async with listening() as (listener, port, registry):
        crowd = [await connect(port, f"127.0.9.{1 + number % 4}") for number in range(8)]
        await until(lambda: listener.connections.unidentified == LIMITS.unidentified)
        assert await answer_once("127.0.0.1", port, "127.0.9.10")
        assert closed_for(registry, "replaced") == 1
        for _, writer in crowd:
            writer.transport.abort()


async def test_agents_behind_one_address_all_get_their_streams() -> None:
    """Sixty connect at once, though an address may have two unidentified connections."""
    async with listening() as (listener, port, _), aiohttp.ClientSession() as session:

        async def come() -> aiohttp.ClientWebSocketResponse:
            while True:
                try:
                    return await session.ws_connect(f"http://127.0.0.1:{port}/stream")
                except aiohttp.ClientError:
                    await asyncio.sleep(0.02)

        async with asyncio.timeout(20 * PATIENCE):
            streams = await asyncio.gather(*(come() for _ in range(60)))
        assert listener.connections.unidentified == 0
        assert [stream.closed for stream in streams] == [False] * 60
        await asyncio.gather(*(stream.close() for stream in streams))


async def test_a_caller_over_the_limit_is_answered_and_then_closed() -> None:
    async with listening() as (_, port, _):
        opened = [await connect(port, "127.0.0.1") for _ in range(4)]
        heads = [await answer(*connection, name="one") for connection in opened]
        assert [b"200 OK" in head for head in heads] == [True] * 4
        assert [b"Connection: close" in head for head in heads] == [False, False, True, True]
        assert [bool(await answer(*connection, name="one")) for connection in opened] == [True, True, False, False]
        for _, writer in opened:
            writer.transport.abort()


async def test_ipv4_and_ipv6_are_served_if_no_host_is_given() -> None:
    async with listening(host=None) as (listener, port, _):
        assert [address[1] for address in listener.addresses] == [port, port]
        for host in ("127.0.0.1", "::1"):
            assert await answer_once(host, port)


def test_a_family_that_the_node_lacks_is_left_out() -> None:
    lacking = (socket.AF_APPLETALK, "")
    opened = listen_on_all(0, [FAMILIES[0], lacking])
    assert [sock.family for sock in opened] == [socket.AF_INET]
    with pytest.raises(OSError, match="ddress already in use"):
        listen_on_all(opened[0].getsockname()[1], [lacking, FAMILIES[0]])
    opened[0].close()
    with pytest.raises(OSError, match="not supported"):
        listen_on_all(0, [lacking])
