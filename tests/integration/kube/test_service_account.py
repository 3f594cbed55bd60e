"""The client of a process in a pod: the CA of its API server is replaced, and the site has a proxy."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from halcyon.kube import errors
from halcyon.kube.client import KubeClient, connect
from halcyon.metricsapi.certificates import Pair, issue, make_ca


@asynccontextmanager
async def api_server(ca: Pair, folder: Path, port: int = 0) -> AsyncGenerator[int]:
    """Serve one document over TLS, with a certificate from this CA, and yield the port."""

    async def version(request: web.Request) -> web.Response:
        return web.json_response({"token": request.headers["Authorization"]})

    serving, file = issue(ca, ["127.0.0.1"], datetime.now(UTC)), folder / "serving.pem"
    file.write_text(serving.cert_pem + serving.key_pem)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file)
    app = web.Application()
    app.router.add_get("/version", version)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def in_pod(port: int, folder: Path, patch: pytest.MonkeyPatch) -> KubeClient:
    """Return the client of a process in a pod, whose service account is in the folder."""
    patch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    patch.setenv("KUBERNETES_SERVICE_PORT", str(port))
    return await connect(account=folder)


def test_a_new_ca_of_the_api_server_is_trusted_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now, account = datetime.now(UTC), tmp_path / "account"
    old, new = make_ca(now), make_ca(now)
    account.mkdir()
    (account / "token").write_text("mine")
    (account / "ca.crt").write_text(old.cert_pem)

    async def scenario() -> None:
        async with api_server(old, tmp_path) as port:
            client = await in_pod(port, account, monkeypatch)
            assert await client.read("/version") == {"token": "Bearer mine"}
        async with api_server(new, tmp_path, port):
            with pytest.raises(errors.Unreachable, match="certificate verify failed"):
                await client.read("/version")
            (account / "ca.crt").write_text("")
            with pytest.raises(errors.Unreachable, match="certificate verify failed"):
                await client.read("/version")
            assert [record.message for record in caplog.records] == ["cannot read the CA of the API server"]
            (account / "ca.crt").write_text(old.cert_pem + new.cert_pem)
            assert await client.read("/version") == {"token": "Bearer mine"}
        await client.close()

    asyncio.run(scenario())


def test_the_api_server_of_a_pod_is_reached_without_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = make_ca(datetime.now(UTC))
    (tmp_path / "token").write_text("mine")
    (tmp_path / "ca.crt").write_text(ca.cert_pem)
    # Nothing listens on port 1.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")

    async def scenario() -> None:
        async with api_server(ca, tmp_path) as port:
            client = await in_pod(port, tmp_path, monkeypatch)
            assert await client.read("/version") == {"token": "Bearer mine"}
            await client.close()

    asyncio.run(scenario())
