"""A plain server with the operator's ports: a TLS port with streams that are read and dropped, and a port with a metrics page.

`python -m tests.adversary.tenant.plain_server` prints the two ports, and serves until it is killed.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from halcyon.api.documents.observation_report import STREAM_PATH
from halcyon.metricsapi.certificates import renewed
from halcyon.metricsapi.tls import ServingTLS
from tests.integration import crowd

PAGE: Final = "halcyon_metric 1\n" * 6000


async def _ok(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _page(_: web.Request) -> web.Response:
    return web.Response(text=PAGE)


async def _stream(request: web.Request) -> web.StreamResponse:
    if "garbage" in request.headers.get("Authorization", ""):
        return web.Response(status=401)
    stream = web.WebSocketResponse(max_msg_size=512 * 1024, compress=False)
    await stream.prepare(request)
    async for _ in stream:
        pass
    return stream


async def _serve() -> None:
    certificates = renewed(None, ("localhost",), datetime.now(UTC)).serving
    tls = ServingTLS(cert_pem=certificates.cert_pem, key_pem=certificates.key_pem).context
    app = web.Application()
    app.add_routes([web.get("/healthz", _ok), web.get("/metrics", _page), web.get(STREAM_PATH, _stream)])
    runner = web.AppRunner(app)
    await runner.setup()
    ports = []
    for context in (tls, None):
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        assert isinstance(site._server, asyncio.Server)
        ports.append(site._server.sockets[0].getsockname()[1])
    print(json.dumps(ports), flush=True)  # noqa: T201  # its parent waits for it
    await asyncio.Event().wait()


if __name__ == "__main__":
    with crowd.files(8_000):
        asyncio.run(_serve())
