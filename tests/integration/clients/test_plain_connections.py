"""Connections of a load whose requests are repeated after a rejection, against a server that counts their attempts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from e2e.load.plain_connections import PlainConnections, plain_request


@asynccontextmanager
async def rejecting(attempts: list[tuple[int, bytes]], statuses: list[int]) -> AsyncIterator[str]:
    """Serve these statuses one after the other, and record the client's port and the body of each attempt."""

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        attempts.append((request.transport.get_extra_info("peername")[1], await request.read()))
        status = statuses[min(len(attempts), len(statuses)) - 1]
        # As Triton's responses: the JSON part is shorter than the body, whose binary part may contain spaces.
        return web.Response(
            status=status, body=b"x" * 96 + b" \r\n ", headers={"Inference-Header-Content-Length": "96"}
        )

    app = web.Application()
    app.router.add_post("/v2/models/m/infer", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("is_shared", [False, True])
async def test_rejected_request_is_repeated_until_an_answer(is_shared: bool) -> None:
    attempts: list[tuple[int, bytes]] = []
    async with rejecting(attempts, [429, 429, 200]) as address:
        connections = PlainConnections(address, is_shared=is_shared)
        request = plain_request("/v2/models/m/infer", address, b"body", None)
        assert await connections.send(request, 3, 0.01) == 200
        connections.close()
    assert [body for _, body in attempts] == [b"body"] * 3


async def test_next_response_on_a_connection_begins_after_the_whole_body() -> None:
    attempts: list[tuple[int, bytes]] = []
    async with rejecting(attempts, [200]) as address:
        connections = PlainConnections(address, is_shared=False)
        request = plain_request("/v2/models/m/infer", address, b"", None)
        assert [await connections.send(request, 0, 0.0) for _ in range(3)] == [200] * 3
        connections.close()
    assert len({port for port, _ in attempts}) == 1


async def test_last_rejection_is_the_status_of_a_request() -> None:
    attempts: list[tuple[int, bytes]] = []
    async with rejecting(attempts, [429]) as address:
        connections = PlainConnections(address, is_shared=False)
        assert await connections.send(plain_request("/v2/models/m/infer", address, b"", 0), 2, 0.01) == 429
        connections.close()
    assert len(attempts) == 3


@pytest.mark.parametrize(("is_shared", "count"), [(False, 2), (True, 1)])
async def test_request_that_waits_for_its_repetition_keeps_its_own_connection(is_shared: bool, count: int) -> None:
    attempts: list[tuple[int, bytes]] = []
    async with rejecting(attempts, [429, 200]) as address:
        connections = PlainConnections(address, is_shared=is_shared)
        first = asyncio.create_task(
            connections.send(plain_request("/v2/models/m/infer", address, b"first", None), 1, 0.3)
        )
        await asyncio.sleep(0.1)
        assert await connections.send(plain_request("/v2/models/m/infer", address, b"second", None), 1, 0.3) == 200
        assert await first == 200
        connections.close()
    first_ports = [port for port, body in attempts if body == b"first"]
    assert len({port for port, _ in attempts}) == count
    assert first_ports == first_ports[:1] * 2
