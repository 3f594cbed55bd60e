"""The progress of a runner over HTTP, as its pod sends it."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from halcyon.api.documents.batch_documents import MAX_BYTES, PATH, PORT, BatchProgress
from halcyon.batch import runner_pod

HOST = "127.0.0.87"


@pytest.mark.parametrize("padding", [0, MAX_BYTES])
async def test_a_progress_is_read_whole_and_not_beyond_its_limit(padding: int) -> None:
    sent = BatchProgress(total=1000, done=300, message="x" * 500)

    async def answer(request: web.Request) -> web.StreamResponse:
        body = sent.to_json().encode() + b" " * padding
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(body), 1 + len(body) // 3):
            await response.write(body[start : start + 1 + len(body) // 3])
            await asyncio.sleep(0.01)
        return response

    app = web.Application()
    app.router.add_get(PATH, answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, HOST, PORT).start()
    try:
        async with aiohttp.ClientSession() as session:
            assert await runner_pod.poll(session, HOST) == (None if padding else sent)
    finally:
        await runner.cleanup()
