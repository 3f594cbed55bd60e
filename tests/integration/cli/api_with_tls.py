"""An API server over TLS that shows each request's credentials, watches and forwards ports, on loopback."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from tests.integration.certificates import Pair, pair

POD = "/api/v1/namespaces/team/pods"


@dataclass
class TlsApi:
    """The server, and what it has received."""

    url: str = ""
    server: Pair = field(default_factory=pair)
    client: Pair = field(default_factory=pair)
    """Certificate that the server trusts, for clients that have one."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Of each request: headers by name in lower case, each with all values, and whether it came with the certificate."""
    lists: list[list[Any]] = field(default_factory=list)
    """Responses to lists of pods: objects; the last one repeats."""
    watches: list[list[Any]] = field(default_factory=list)
    """Events of each watch, after which it ends; the last watch stays open until the end."""
    revoked: list[str] = field(default_factory=list)
    """Tokens that are rejected."""
    refusal: str = ""
    """Message of a 403 to port-forwards; empty: they are forwarded to an echo."""
    pod: tuple[str, int] | None = None
    """Address to which port-forwards lead; None: to an echo."""
    end: asyncio.Event = field(default_factory=asyncio.Event)


async def _show(api: TlsApi, request: web.Request) -> web.Response:
    certificate = request.transport.get_extra_info("peercert") if request.transport else None
    headers = {name.lower(): request.headers.getall(name) for name in request.headers}
    api.requests.append({"path": request.path, "certificate": bool(certificate), **headers})
    if request.headers.get("authorization", "").removeprefix("Bearer ") in api.revoked:
        return web.json_response({"kind": "Status", "message": "Unauthorized"}, status=401)
    return web.json_response({"gitVersion": "v1.35.0"})


async def _pods(api: TlsApi, request: web.Request) -> web.StreamResponse:
    if "watch" not in request.query:
        items = api.lists.pop(0) if len(api.lists) > 1 else api.lists[0]
        return web.json_response({"metadata": {"resourceVersion": "5"}, "items": items})
    response = web.StreamResponse()
    await response.prepare(request)
    for event in api.watches.pop(0) if api.watches else ():
        await response.write(json.dumps(event).encode() + b"\n")
    if not api.watches:
        await api.end.wait()
    return response


async def _forward(api: TlsApi, request: web.Request) -> web.StreamResponse:
    if api.refusal:
        return web.json_response({"kind": "Status", "message": api.refusal}, status=403)
    socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",), max_msg_size=0)
    await socket.prepare(request)
    port = int(request.query["ports"]).to_bytes(2, "little")
    for channel in (b"\0", b"\1"):
        await socket.send_bytes(channel + port)
    if api.pod is not None:
        return await _relay(socket, *api.pod)
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            assert message.data[:1] == b"\0"
            if message.data == b"\0close":
                break
            if message.data == b"\0fail":
                await socket.send_bytes(b"\1connection refused")
            else:
                await socket.send_bytes(message.data)
    await socket.close()
    return socket


async def _relay(socket: web.WebSocketResponse, host: str, port: int) -> web.StreamResponse:
    reader, writer = await asyncio.open_connection(host, port)

    async def back() -> None:
        while data := await reader.read(65536):
            await socket.send_bytes(b"\0" + data)
        await socket.close()

    copying = asyncio.create_task(back())
    async for message in socket:
        writer.write(message.data[1:])
    writer.close()
    await copying
    return socket


@contextmanager
def serving(folder: Path) -> Iterator[TlsApi]:
    """Run the server while the context is open. The folder gets its certificates."""
    api, loop, ready = TlsApi(), asyncio.new_event_loop(), threading.Event()
    for name, text in (("s.crt", api.server.crt), ("s.key", api.server.key), ("c.crt", api.client.crt)):
        (folder / name).write_text(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "s.crt", folder / "s.key")
    context.load_verify_locations(folder / "c.crt")
    context.verify_mode = ssl.CERT_OPTIONAL

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/version", partial(_show, api))
        app.router.add_get(POD, partial(_pods, api))
        app.router.add_get(f"{POD}/{{name}}/portforward", partial(_forward, api))
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        assert runner.server is not None
        # Clients that don't read any more don't end TLS, so the server waits for them for a short time only.
        limit_s = 0.05
        listening = await loop.create_server(runner.server, "127.0.0.1", 0, ssl=context, ssl_shutdown_timeout=limit_s)
        api.url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        ready.set()
        await api.end.wait()
        listening.close()
        await runner.cleanup()
        await asyncio.sleep(2 * limit_s)

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    assert ready.wait(10)
    try:
        yield api
    finally:
        loop.call_soon_threadsafe(api.end.set)
        thread.join()
        loop.close()
