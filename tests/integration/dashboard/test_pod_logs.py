"""Logs are read with the reader's token and nothing else. The API server is a stand-in: its paths and answers are Kubernetes' own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from halcyon.dashboard.pod_logs import MAX_BYTES, MAX_LINES, LogsUnavailable, PodLogs
from tests.ports import free_ports


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async def log(request: web.Request) -> web.Response:
        if request.headers["Authorization"] != "Bearer good":
            message = 'pods "m-a-0" is forbidden: User "u" cannot get resource "pods/log" in the namespace "team"'
            return web.json_response({"kind": "Status", "message": message}, status=403)
        query = request.query
        return web.Response(
            text=f"{request.match_info['pod']} {query['container']} {query['tailLines']} {query.get('previous')}\n"
        )

    async with serving(log) as address:
        yield address


@asynccontextmanager
async def serving(log: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """Serve the logs of pods with a handler, and yield the server's address."""
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/team/pods/{pod}/log", log)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_ports(1)[0]
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def tail(url: str, token: str, *, namespace: str = "team", previous: bool = False) -> str:
    return await PodLogs(url, None).tail(token, namespace=namespace, pod="m-a-0", container="triton", previous=previous)


async def test_the_last_lines_are_read_with_the_readers_token(url: str) -> None:
    assert await tail(url, "good") == "m-a-0 triton 100 None\n"
    assert await tail(url, "good", previous=True) == "m-a-0 triton 100 true\n"


async def test_a_refusal_is_shown_as_the_api_server_says_it(url: str) -> None:
    with pytest.raises(LogsUnavailable, match='cannot get resource "pods/log"'):
        await tail(url, "bad")


async def test_other_answers_and_a_silent_api_server_have_a_reason(url: str) -> None:
    with pytest.raises(LogsUnavailable, match="answered 404"):
        await tail(url, "good", namespace="other")
    with pytest.raises(LogsUnavailable, match="can't be reached: ClientConnectorError"):
        await tail(f"http://127.0.0.1:{free_ports(1)[0]}", "good")


@pytest.mark.parametrize("length", [20, 2000])
async def test_the_newest_lines_are_kept_whatever_the_length_and_the_parts(length: int) -> None:
    """The API server passes a log on in parts, and its limit of bytes would keep the oldest of the last lines."""
    lines = [f"{number:05} {'x' * length}" for number in range(1000)]

    async def log(request: web.Request) -> web.StreamResponse:
        text = ("\n".join(lines[-int(request.query["tailLines"]) :]) + "\n").encode()
        text = text[: int(request.query.get("limitBytes", len(text)))]
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(text), 4000):
            await response.write(text[start : start + 4000])
            await asyncio.sleep(0.001)
        return response

    async with serving(log) as address:
        shown = await tail(address, "good")
    assert len(shown) <= MAX_BYTES
    kept = shown.splitlines()
    assert kept == lines[-len(kept) :], "the newest lines, without a part of a line"
    assert len(kept) == (MAX_LINES if length < 100 else MAX_BYTES // (length + 7))
