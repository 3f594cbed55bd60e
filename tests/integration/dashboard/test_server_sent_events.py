"""Streams of the dashboard over real sockets: what a client that has gone leaves behind, and what open pages share."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from halcyon.dashboard.authorization import ALLOWED_TTL_S, Authorizer
from halcyon.dashboard.history import ChartHistory
from halcyon.dashboard.ports import UNKNOWN, ModelNumbers, Name
from halcyon.dashboard.server import Dashboard
from halcyon.kube.auth.callers import User
from halcyon.kube.errors import Unreachable
from tests.integration.waiting import PATIENCE
from tests.unit.dashboard.objects import Object, model, name


class _NoModels:
    synced, changes = True, 0

    def names(self) -> tuple[()]:
        return ()

    def model(self, name: object) -> None:
        del name

    version = reading = model


class _Reviews:
    """Knows the token until it is revoked."""

    covers_all = True

    def __init__(self) -> None:
        self.revoked, self.reviewed = False, asyncio.Event()

    async def user(self, token: str) -> User | None:
        if not self.revoked:
            return User(token)
        self.reviewed.set()
        return None

    async def may_see(self, user: User, *, namespace: str, name: str = "") -> bool:
        del user, namespace, name
        return True


@pytest.mark.parametrize("has_left", [False, True], ids=["open", "gone"])
async def test_a_streams_error_is_no_fault_if_its_client_has_gone(
    has_left: bool, caplog: pytest.LogCaptureFixture
) -> None:
    source: Any = _NoModels()
    reviews, now = _Reviews(), 0.0
    access = Authorizer(reviews, clock=lambda: now, namespaces=list)
    runner = web.AppRunner(Dashboard(source, access, ChartHistory(), steps=int).app())
    await runner.setup()
    try:
        await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer ada"}) as session:
            answer = await session.get(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/api/stream/models")  # type: ignore[union-attr]
            assert b"event: models" in await answer.content.readuntil(b'"rows":[]')
            if has_left:
                answer.close()
            reviews.revoked, now = True, ALLOWED_TTL_S + 1
            async with asyncio.timeout(10 * PATIENCE):
                await reviews.reviewed.wait()
                if not has_left:
                    assert b"event: over" in await answer.read()
    finally:
        await runner.cleanup()  # waits for the handler
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_stream_ends_with_a_reason_if_the_api_server_fails(caplog: pytest.LogCaptureFixture) -> None:
    class Reviews(_Reviews):
        """Reviews of an API server that no longer responds after the first review."""

        async def user(self, token: str) -> User | None:
            if self.revoked:
                raise Unreachable("POST tokenreviews: no answer")
            return User(token)

    source: Any = _NoModels()
    reviews, now = Reviews(), 0.0
    access = Authorizer(reviews, clock=lambda: now, namespaces=list)
    runner = web.AppRunner(Dashboard(source, access, ChartHistory(), steps=int).app())
    await runner.setup()
    try:
        await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer ada"}) as session:
            answer = await session.get(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/api/stream/models")  # type: ignore[union-attr]
            await answer.content.readuntil(b'"rows":[]')
            reviews.revoked, now = True, ALLOWED_TTL_S + 1
            async with asyncio.timeout(10 * PATIENCE):
                rest = await answer.read()
    finally:
        await runner.cleanup()
    assert rest.endswith(b'event: over\ndata: {"error":"the request could not be answered now; try again"}\n\n')
    assert "request failed" in caplog.text


async def test_a_session_has_a_sign_out_only_with_a_cookie() -> None:
    source: Any = _NoModels()
    runner = web.AppRunner(
        Dashboard(source, Authorizer(_Reviews(), clock=float, namespaces=list), ChartHistory(), steps=int).app()
    )
    await runner.setup()
    try:
        await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
        url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/api/session"  # type: ignore[union-attr]
        async with aiohttp.ClientSession() as session:
            by_header = await (await session.get(url, headers={"Authorization": "Bearer ada"})).json()
            by_cookie = await (await session.get(url, headers={"Cookie": "halcyon-token=ada"})).json()
            pasted = await session.post(url, json={"token": " ada\n  lovelace\n"})
            user = (await pasted.json())["user"]
    finally:
        await runner.cleanup()
    assert (by_header["open"], by_cookie["open"]) == (True, False)
    assert user == "adalovelace", "a terminal breaks a long token into lines"


async def test_open_pages_share_the_numbers_of_a_second() -> None:
    read: list[Name] = []

    class Source(_NoModels):
        """One model, whose numbers are counted as they are read."""

        def names(self) -> list[Name]:  # type: ignore[override]
            return [name(1)]

        def model(self, name: object) -> Object:  # type: ignore[override]
            del name
            return model(1)

        def reading(self, name: Name) -> ModelNumbers:  # type: ignore[override]
            read.append(name)
            return UNKNOWN

    source: Any = Source()
    source.changes = 1
    runner = web.AppRunner(
        Dashboard(source, Authorizer(None, clock=float, namespaces=list), ChartHistory(), steps=int).app()
    )
    await runner.setup()
    try:
        await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
        url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/api/models"  # type: ignore[union-attr]
        async with aiohttp.ClientSession() as session:
            began = time.monotonic()
            texts = [await (await session.get(url)).text() for _ in range(50)]
            seconds = math.ceil(time.monotonic() - began) + 1
    finally:
        await runner.cleanup()
    assert all('"name":"model-0001"' in text for text in texts)
    assert 1 <= len(read) <= seconds < 50
