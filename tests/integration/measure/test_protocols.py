"""Other servers than Triton's plain ports: TLS with client certificates, TensorFlow Serving's REST, a plain POST, and what is none of them.

TensorFlow Serving and the plain server are stand-ins that speak the protocol; TLS over gRPC is Triton's own.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import GRPC_PORT, Work
from halcyon_measure.engine.job import PayloadSettings
from halcyon_measure.engine.pool import WarmUp
from halcyon_measure.errors import MeasureError, TargetError
from halcyon_measure.measurement import Measurement
from halcyon_measure.protocols import target
from halcyon_measure.protocols.target import Tls
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.schedule.scenario import Scenario
from tests.integration.certificates import Pair, pair
from tests.ports import free_ports

pytestmark = pytest.mark.more


@contextmanager
def serving(routes: dict[tuple[str, str], Any], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Run a web server with these handlers in a thread, and yield its host and port."""
    (port,), loop = free_ports(1), asyncio.new_event_loop()
    app = web.Application()
    for (method, path), handler in routes.items():
        app.router.add_route(method, path, handler)
    runner = web.AppRunner(app)
    started = threading.Event()

    async def start() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        started.set()

    thread = threading.Thread(target=lambda: (loop.run_until_complete(start()), loop.run_forever()), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@dataclass(frozen=True)
class WithFiles:
    """A model that answers at once, with more files in its folder, which the server sees as /mnt/m."""

    more: dict[str, str]
    name: str = "m"

    @property
    def files(self) -> dict[str, str]:
        return Work("m", max_batch=8).files | self.more


def measured(to: target.Target, **others: Any) -> BenchDocument:
    ready = Measurement(target=to, scenario=Scenario(requests=20), warm_up=WarmUp(0.0, fixed=True), **others).prepare()
    return ready.document(ready.run(), made_by="test")


def written(folder: Path, certificates: Pair, name: str) -> tuple[str, str]:
    crt, key = folder / f"{name}.crt", folder / f"{name}.key"
    crt.write_text(certificates.crt)
    key.write_text(certificates.key)
    return str(crt), str(key)


def parsed(url: str, api: Any = "kserve", **others: Any) -> target.Target:
    return target.parse(url, api=api, transport=None, encoding=None, model="m", **others)


async def _predict(request: web.Request) -> web.Response:
    inputs = json.loads(await request.read())["inputs"]
    return web.json_response({"outputs": {"y": inputs["x"]}})


async def _tf_metadata(_: web.Request) -> web.Response:
    shape = {"dim": [{"size": "-1", "name": ""}, {"size": "3", "name": ""}]}
    signature = {"serving_default": {"inputs": {"x": {"dtype": "DT_FLOAT", "tensor_shape": shape}}}}
    return web.json_response({"metadata": {"signature_def": {"signature_def": signature}}})


def test_tensorflow_serving_is_measured_by_its_signature() -> None:
    routes = {("GET", "/v1/models/m/metadata"): _tf_metadata, ("POST", "/v1/models/m:predict"): _predict}
    with serving(routes) as address:
        document = measured(parsed(f"http://{address}", api="tfserving"))
    assert document.requests.answered == 20
    assert document.target.inputs[0].shape == (-1, 3)
    assert document.target.encoding == "json"


def test_a_file_is_posted_as_it_is_with_its_type(tmp_path: Path) -> None:
    body = tmp_path / "cat.jpg"
    body.write_bytes(bytes(range(256)) * 20)
    seen: list[tuple[str, bytes]] = []

    async def predict(request: web.Request) -> web.Response:
        seen.append((request.content_type, await request.read()))
        return web.Response(text="a cat", status=200 if len(seen) % 4 else 500)

    with serving({("POST", "/predict"): predict}) as address:
        document = measured(
            parsed(f"http://{address}/predict", api="post", content_type="image/jpeg"),
            payload=PayloadSettings(samples=((("", str(body)),),)),
        )
    assert set(seen) == {("image/jpeg", body.read_bytes())}
    assert (document.requests.answered, document.requests.errors, len(seen)) == (15, 5, 20)
    assert document.failures[0].message == "500: a cat"


def test_a_redirect_to_a_login_page_counts_as_an_error() -> None:
    pages: list[str] = []

    async def predict(_: web.Request) -> web.Response:
        raise web.HTTPFound("/login")

    async def login(request: web.Request) -> web.Response:
        pages.append(request.method)
        return web.Response(text="<html>please log in</html>", content_type="text/html")

    routes = {
        ("GET", "/v1/models/m/metadata"): _tf_metadata,
        ("POST", "/v1/models/m:predict"): predict,
        ("GET", "/login"): login,
    }
    with serving(routes) as address:
        document = measured(parsed(f"http://{address}", api="tfserving"))
    assert (document.requests.answered, document.requests.errors, pages) == (0, 20, [])
    assert document.failures[0].message == "302: a redirect to /login; give the URL of the server itself"
    assert not document.run.valid


def test_headers_are_sent_with_every_request_over_both_ways() -> None:
    keys: list[str] = []

    async def note(request: web.Request) -> web.Response:
        keys.append(request.headers.get("Authorization", ""))
        return await _tf_metadata(request) if request.method == "GET" else await _predict(request)

    with serving({("GET", "/v1/models/m/metadata"): note, ("POST", "/v1/models/m:predict"): note}) as address:
        measured(parsed(f"http://{address}", api="tfserving", headers=(("Authorization", "Bearer k"),)))
    assert keys == ["Bearer k"] * 21


def test_a_server_with_a_private_authority_is_measured_with_its_certificate(tmp_path: Path) -> None:
    server, client = pair(), pair()
    server_files, client_files = written(tmp_path, server, "server"), written(tmp_path, client, "client")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_files[0])
    context.load_cert_chain(*server_files)
    context.verify_mode = ssl.CERT_REQUIRED
    routes = {("GET", "/v1/models/m/metadata"): _tf_metadata, ("POST", "/v1/models/m:predict"): _predict}
    own = Tls(ca=server_files[0], certificate=client_files[0], key=client_files[1])
    with serving(routes, context) as address:
        document = measured(parsed(f"https://{address}", api="tfserving", tls=own))
        with pytest.raises(
            TargetError, match=r"its certificate isn't valid: .*; to trust another authority: --ca FILE"
        ):
            measured(parsed(f"https://{address}", api="tfserving"))
    assert document.requests.answered == 20


def test_triton_is_measured_over_encrypted_grpc_with_a_client_certificate(tmp_path: Path) -> None:
    server, client = pair(), pair()
    (crt, _), (client_crt, client_key) = written(tmp_path, server, "server"), written(tmp_path, client, "client")
    arguments = ["--grpc-use-ssl=1", "--grpc-use-ssl-mutual=1", "--grpc-server-cert=/mnt/m/server.crt", "--grpc-server-key=/mnt/m/server.key", "--grpc-root-cert=/mnt/m/client.crt"]  # fmt: skip
    files = {"server.crt": server.crt, "server.key": server.key, "client.crt": client.crt}
    with tritons.running([WithFiles(files)], arguments=arguments) as (triton,):
        # The certificate is for 127.0.0.1; the server has another address of loopback.
        url = f"grpcs://{triton.address}:{GRPC_PORT}"
        document = measured(
            parsed(url, tls=Tls(ca=crt, certificate=client_crt, key=client_key, server_name="127.0.0.1"))
        )
        with pytest.raises(TargetError, match="UNAVAILABLE"):
            measured(parsed(url, tls=Tls(ca=crt), timeout_s=3.0))
    assert document.requests.answered == 20


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, "<html>welcome</html>", "isn't a server of the KServe v2 protocol: /v2/models/m responds with '<html>welcome</html>'"),
        (200, '{"name": "m"}', "its description of m is {'name': 'm'}; for another one: --api tfserving"),
        (404, '{"error": "no"}', "doesn't describe m: /v2/models/m responds with 404: {\"error\": \"no\"}; for a server without metadata: --api post --input FILE"),
        (401, "", "responds with 401: no message"),
    ],
)  # fmt: skip
def test_another_kind_of_server_is_named_by_what_it_answered(status: int, body: str, message: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    with serving({("GET", "/v2/models/m"): answer}) as address, pytest.raises(MeasureError) as caught:
        measured(parsed(f"http://{address}"))
    assert message in str(caught.value)


def test_unreadable_certificates_are_refused_before_a_connection(tmp_path: Path) -> None:
    broken = tmp_path / "ca.crt"
    broken.write_text("no certificate")
    for tls, message in (
        (Tls(ca=str(tmp_path / "none.crt")), "can't read it; it must be a file in PEM format"),
        (Tls(ca=str(broken)), "not a certificate and key in PEM format"),
        (Tls(certificate=str(broken)), "needs both files; for example --cert client.crt --key client.key"),
    ):
        with pytest.raises(TargetError, match=message):
            measured(parsed("https://127.0.0.1:1", tls=tls))
