"""The page /metrics, on a socket file."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry

from halcyon.control.runtime import http_endpoints

HEAD_AND_GET = b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def test_head_requests_of_the_metrics_page_get_no_body(tmp_path: Path) -> None:
    async def model_metrics() -> str:
        return "halcyon_model_replicas 3\n"

    app = http_endpoints.build(CollectorRegistry(), live={}, ready={}, model_metrics=model_metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(tmp_path / "socket")).start()
        reader, writer = await asyncio.open_unix_connection(tmp_path / "socket")
        writer.write(HEAD_AND_GET)
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    finally:
        await runner.cleanup()
    assert b"Content-Length: 25" in head
    assert rest.startswith(b"HTTP/1.1 200 OK")
