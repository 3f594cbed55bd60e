"""Authorities without the extensions that Python requires from 3.13 on, as many clusters have them (EKS, microk8s, kubeadm's older ones).

The operator's image has Python 3.13. kubectl and other clients of the API server accept such authorities.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest
import urllib3.connection
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from urllib3.util import ssl_

from halcyon.balancer.discovery.kube_watch import ApiServerAccess
from halcyon.control.runtime import kopf_watch
from halcyon.dashboard.pod_logs import PodLogs
from halcyon.fetch.egress_proxy import EgressProxy
from halcyon.fetch.registry.client import RegistryClient
from halcyon.kube.client import connect
from halcyon.signals.prometheus.client import PrometheusSite, query_prometheus

DOCUMENT = {"status": "success", "data": {"resultType": "vector", "result": []}}


@pytest.fixture(autouse=True)
def python_3_13(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let contexts be as strict as in Python 3.13, in the versions before it, too."""
    make = ssl.create_default_context

    def strict(*arguments: Any, **more: Any) -> ssl.SSLContext:
        context = make(*arguments, **more)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    make_pooled = ssl_.create_urllib3_context

    def strict_pooled(*arguments: Any, **more: Any) -> ssl.SSLContext:
        context = make_pooled(*arguments, **more)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(urllib3.connection, "create_urllib3_context", strict_pooled)
    monkeypatch.setattr(ssl_, "create_urllib3_context", strict_pooled)


def certificate(
    name: str, issuer: str, signer: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    """Return a certificate without key identifiers. It is a CA if it is its own issuer."""
    now = dt.datetime.now(dt.UTC)
    subject, signed_by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, issuer))
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(signed_by).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
    if name == issuer:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    else:
        addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
    return builder.sign(signer, hashes.SHA256())


def authority() -> tuple[ec.EllipticCurvePrivateKey, str]:
    """Return the key and the certificate of a CA, as EKS makes them."""
    key = ec.generate_private_key(ec.SECP256R1())
    root = certificate("kubernetes", "kubernetes", key, key)
    return key, root.public_bytes(serialization.Encoding.PEM).decode()


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """Serve one document over TLS, and yield the URL. The folder is that of a service account which trusts the server."""
    (signer, ca), key = authority(), ec.generate_private_key(ec.SECP256R1())
    plain = serialization.NoEncryption()
    serving = certificate("kube-apiserver", "kubernetes", signer, key).public_bytes(serialization.Encoding.PEM)
    serving += key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "ca.crt").write_text(ca)
    (folder / "token").write_text("mine")
    (folder / "serving.pem").write_bytes(serving)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "serving.pem")

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(DOCUMENT)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _get(url: str, tls: ssl.SSLContext | bool) -> int:
    async with aiohttp.ClientSession() as session, session.get(url, ssl=tls) as response:
        return response.status


async def operator(url: str, folder: Path) -> object:
    client = await connect(account=folder)
    document, (reached, _) = await client.read("/version"), client.endpoint
    await client.close()
    return (document, reached) == (DOCUMENT, url)


async def agent(url: str, folder: Path) -> object:
    return await _get(url, ApiServerAccess(url, folder / "token", folder / "ca.crt").tls()) == 200


async def kopfs_watch(url: str, folder: Path) -> object:
    info = kopf_watch.lenient(kopf.ConnectionInfo(server=url, ca_path=folder / "ca.crt"))
    assert info is not None
    return await _get(url, info.as_ssl_context()) == 200


async def logs(url: str, folder: Path) -> object:
    reader = PodLogs(url, str(folder / "ca.crt"))
    return "success" in await reader.tail("token", namespace="team", pod="m", container="triton", previous=False)


async def registry(url: str, folder: Path) -> object:
    ca = (folder / "ca.crt").read_text()
    with EgressProxy([url], lambda _: True).opened() as proxy:
        client = RegistryClient(url, None, proxy, ca)
        return (await asyncio.to_thread(client.document, "/models"))[0] == DOCUMENT


async def prometheus(url: str, folder: Path) -> object:
    site = PrometheusSite(url, ca_file=folder / "ca.crt")
    return await asyncio.to_thread(query_prometheus, site, "up", None, 5.0) == []


@pytest.mark.parametrize(
    "ask", [operator, agent, kopfs_watch, logs, registry, prometheus], ids=lambda ask: ask.__name__
)
async def test_an_authority_without_extensions_is_trusted(
    ask: Callable[[str, Path], Awaitable[object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path) as url:
        host, _, port = url.removeprefix("https://").partition(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        assert await ask(url, tmp_path)


async def test_an_unknown_authority_is_not_trusted(tmp_path: Path) -> None:
    async with server(tmp_path) as url:
        (tmp_path / "ca.crt").write_text(authority()[1])
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await agent(url, tmp_path)
