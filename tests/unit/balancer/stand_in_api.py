"""A stand-in for the API server and for the operator's collector: real TLS, real aiohttp, recorded messages.

It implements list and watch for ConfigMaps and EndpointSlices like the real API server (bookmarks, 410, ERROR events),
and receives reports on the collector's WebSocket. The scenarios on the cluster test the real components.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import json
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from halcyon.api.documents.observation_report import STREAM_PATH, AgentReport
from tests.unit.balancer.stand_ins import close

if TYPE_CHECKING:
    from pathlib import Path

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def certificate(directory: Path, *, name: str = "halcyon", address: str = "127.0.0.1") -> tuple[ssl.SSLContext, str]:
    """Return a server's TLS context with a new self-signed certificate, and this certificate as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ipaddress.ip_address(address))])
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = signed.public_bytes(serialization.Encoding.PEM).decode()
    both = directory / f"{name}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both.write_text(private.decode() + pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, pem


@dataclass
class StandIn:
    """One server with both APIs."""

    version: int = 1
    objects: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Objects as collection path -> name -> object."""
    watchers: dict[str, list[asyncio.Queue[bytes | None]]] = field(default_factory=dict)
    past: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    """Changes of each collection with their versions. A watch starts with the changes after its own version."""
    requests: list[tuple[str, dict[str, str], str]] = field(default_factory=list)
    """Path, query and Authorization of each list and watch request."""
    fail_with: list[int] = field(default_factory=list)
    """Status codes of the next responses, used before anything else."""
    records: list[tuple[float, AgentReport]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    sockets: list[web.WebSocketResponse] = field(default_factory=list)

    async def start(self, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> StandIn:
        app = web.Application()
        app.router.add_get(STREAM_PATH, self._stream)
        app.router.add_get("/{tail:.*}", self._collection)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, 0, ssl_context=tls)
        await site.start()
        server = site._server
        assert isinstance(server, asyncio.Server)
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        self.end_watches()
        for ws in self.sockets:
            await ws.close()
        await close(self._server)
        await self._runner.cleanup()

    def put(self, path: str, name: str, content: dict[str, Any]) -> None:
        self.version += 1
        kind = "MODIFIED" if name in self.objects.setdefault(path, {}) else "ADDED"
        labels = content.pop("labels", {})
        obj = {"metadata": {"name": name, "resourceVersion": str(self.version), "labels": labels}, **content}
        self.objects[path][name] = obj
        self._change(path, {"type": kind, "object": obj})

    def delete(self, path: str, name: str) -> None:
        self.version += 1
        deleted = self.objects[path].pop(name)
        deleted["metadata"]["resourceVersion"] = str(self.version)
        self._change(path, {"type": "DELETED", "object": deleted})

    def _change(self, path: str, event: dict[str, Any]) -> None:
        self.past.setdefault(path, []).append((self.version, json.dumps(event).encode() + b"\n"))
        self.send(path, event)

    def send(self, path: str, event: dict[str, Any]) -> None:
        for queue in self.watchers.get(path, []):
            queue.put_nowait(json.dumps(event).encode() + b"\n")

    def end_watches(self) -> None:
        for queues in self.watchers.values():
            for queue in queues:
                queue.put_nowait(None)

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.requests.append((request.path, query, request.headers.get("Authorization", "")))
        if self.fail_with:
            return web.json_response({"kind": "Status", "message": "no"}, status=self.fail_with.pop(0))
        if query.get("watch") != "1":
            items = list(self.objects.get(request.path, {}).values())
            return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})
        response = web.StreamResponse()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        queues = self.watchers.setdefault(request.path, [])
        queues.append(queue)
        for version, change in self.past.get(request.path, []):
            if version > int(query["resourceVersion"]):
                queue.put_nowait(change)
        try:
            await response.prepare(request)
            while (line := await queue.get()) is not None:
                await response.write(line)
        finally:
            queues.remove(queue)
        return response

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization", ""))
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        self.sockets.append(ws)
        async for message in ws:
            self.records.append((asyncio.get_running_loop().time(), AgentReport.from_json(message.data)))
        self.sockets.remove(ws)
        return ws


def slice_of(service: str, pods: dict[str, str], **conditions: bool) -> dict[str, Any]:
    """Return an EndpointSlice with these pods (name -> address), as the API server writes it."""
    state = {"ready": True, "serving": True, "terminating": False, **conditions}
    return {
        "labels": {"kubernetes.io/service-name": service},
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [at], "conditions": state, "targetRef": {"kind": "Pod", "name": pod}, "nodeName": "n"}
            for pod, at in pods.items()
        ],
    }
