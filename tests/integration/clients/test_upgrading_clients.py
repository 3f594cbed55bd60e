"""Clients that offer to upgrade an HTTP/1.1 connection, as Java's HttpClient does by default, at a real HAProxy 3.0."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.integration.balanced import PLAN, Balanced, new_balanced, raw, until
from tests.integration.waiting import PATIENCE

pytestmark = pytest.mark.more

JAVA = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
OTHERS = ("Connection: Upgrade\r\n", "Upgrade: foo\r\nConnection: keep-alive, upgrade\r\n")


async def response(balanced: Balanced, offer: str) -> tuple[int, dict[str, str]]:
    head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n{offer}\r\n"
    status, headers, _ = await raw(balanced.haproxy.ports.http, f"{head}{{}}".encode())
    return status, headers


@pytest.mark.parametrize("offer", [JAVA, *OTHERS])
async def test_a_held_request_that_offers_an_upgrade_waits_as_others(offer: str) -> None:
    async with new_balanced() as balanced:
        await balanced.begin(PLAN)
        waiting = asyncio.ensure_future(response(balanced, offer))

        async def is_held() -> bool:
            return waiting.done() or (await balanced.haproxy.runtime.held_requests()).held == 1

        await until(is_held)
        assert not waiting.done(), waiting
        await balanced.start(1)
        await balanced.turn()
        await balanced.turn()
        assert (await waiting)[0] == 200


async def test_a_queued_request_that_offers_an_upgrade_moves_to_the_next_pod() -> None:
    async with new_balanced() as balanced:
        await balanced.start(1, delay_s=3.0 * PATIENCE)
        await balanced.begin(replace(PLAN, max_connections=1))
        first = asyncio.ensure_future(response(balanced, ""))

        async def is_full() -> bool:
            return (await balanced.haproxy.runtime.read()).inflight == 1

        await until(is_full)
        second = asyncio.ensure_future(response(balanced, JAVA))

        async def is_queued() -> bool:
            return (await balanced.haproxy.runtime.read()).queued == 1

        await until(is_queued)
        await balanced.turn(())
        await balanced.start(1)
        await balanced.turn(balanced.pods[1:])
        await balanced.turn(balanced.pods[1:])
        assert (await second)[0] == 200
        first.cancel()


async def test_a_client_that_offers_an_upgrade_and_a_close_is_disconnected() -> None:
    async with new_balanced() as balanced:
        await balanced.start(1)
        await balanced.begin(PLAN)
        status, headers = await response(balanced, "Connection: close, Upgrade\r\nUpgrade: h2c\r\n")
        assert (status, headers["connection"]) == (200, "close")
