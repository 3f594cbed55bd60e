"""Responses that a server does not complete, behind the real HAProxy 3.0: what HTTP clients get, and that they are counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.integration.balanced import TIMEOUT, Balanced, new_balanced, until
from tests.unit.balancer.stand_ins import Pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.more

LARGE = b"x" * 30_000
"""A body that HAProxy can't send a second time."""
EVENT = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata:\r\n"


class Failing(Pod):
    """A pod whose process ends in the middle of a request to `generate_stream`, and without any response to a large request."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0"
                )
                body = await reader.readexactly(int(length.partition(b":")[2]))
                is_stream = b"/generate_stream" in head
                writer.write(
                    EVENT
                    if is_stream
                    else b""
                    if len(body) >= len(LARGE)
                    else b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
                )
                await writer.drain()
                if is_stream or len(body) >= len(LARGE):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as instance:
        ports = instance.haproxy.ports
        instance.pods = [await Failing(instance.pod().address, ports.server_http, ports.server_grpc).start()]
        await instance.begin()
        yield instance


async def outcome(balanced: Balanced, path: str, body: bytes) -> str:
    """Status of a request, or the name of the client's error if the connection ended before or in the response."""
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        try:
            async with session.post(f"{balanced.url}/v2/models/m/{path}", data=body) as response:
                await response.read()
                return str(response.status)
        except aiohttp.ClientError as error:
            return type(error).__name__


async def errors_are(balanced: Balanced, count: int) -> bool:
    return (await balanced.haproxy.runtime.read()).errors == count


async def test_lost_request_counts_with_and_without_an_error_response(balanced: Balanced) -> None:
    # The first on a connection to the pod gets an error. HAProxy closes the client's connection if the connection to the pod had
    # served other requests before.
    assert await outcome(balanced, "infer", LARGE) == "502"
    await until(lambda: errors_are(balanced, 1))
    assert await outcome(balanced, "infer", b"{}") == "200"
    assert await outcome(balanced, "infer", LARGE) == "ServerDisconnectedError"
    await until(lambda: errors_are(balanced, 2))


async def test_event_stream_that_breaks_off_counts_as_lost(balanced: Balanced) -> None:
    assert await outcome(balanced, "generate_stream", b"{}") == "ClientPayloadError"
    await until(lambda: errors_are(balanced, 1))
    assert await outcome(balanced, "infer", b"{}") == "200"
    assert await errors_are(balanced, 1)
