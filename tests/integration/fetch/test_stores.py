"""`halcyon fetch` from Google Cloud Storage and Azure Blob Storage: what arrives, and what each fault leads to."""

from __future__ import annotations

import http.client
import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from e2e import azure, gcs
from e2e.cluster import binaries
from halcyon.api.documents.model_overlay import Overlay
from halcyon.fetch import download as module
from halcyon.fetch.download import Remote, download
from halcyon.fetch.errors import FetchError, SourceError, StoreError
from halcyon.fetch.main import Request, fetch
from tests.ports import free_ports

MIB = 2**20
CONFIG = b'backend: "python"\nmax_batch_size: 8\n'
WEIGHTS = bytes(range(256)) * 4096 * 10  # 10 MiB: two parts


def google_key() -> str:
    """A key file, as Google issues it, of an account that doesn't exist."""
    pem = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return json.dumps(
        {
            "type": "service_account",
            "private_key": pem.decode(),
            "private_key_id": "1",
            "client_email": "models@p.iam.gserviceaccount.com",
            "token_uri": "https://oauth2.googleapis.com/token",
        }
    )


@dataclass
class Front:
    """A proxy in front of a store, which adds a fault to its answers."""

    port: int
    fault: str = ""
    """Name of the fault; it applies to objects only, not to listings."""
    authorizations: list[str] = field(default_factory=list)
    """Header `Authorization` of each request."""


@contextmanager
def fronting(upstream: int) -> Iterator[Front]:
    front = Front(0)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            target = f"{url.path}?{url.query}" if url.query else url.path
            front.authorizations.append(self.headers.get("authorization", ""))
            upstream_connection = http.client.HTTPConnection("127.0.0.1", upstream, timeout=20)
            host = f"{self.headers['host'].partition(':')[0]}:{upstream}"
            upstream_connection.request(
                "GET", target, headers={k: v for k, v in self.headers.items() if k.lower() != "host"} | {"Host": host}
            )
            answer = upstream_connection.getresponse()
            content = answer.read()
            upstream_connection.close()
            status, headers = answer.status, {k: v for k, v in answer.getheaders() if k.lower() != "transfer-encoding"}
            headers["Content-Length"] = str(len(content))
            is_object = unquote(url.path).endswith((".py", ".bin"))
            fault = front.fault if is_object else ""
            if fault in {"denied", "expired", "gone", "changed"}:
                status = {"denied": 403, "expired": 401, "gone": 404, "changed": 412}[fault]
                content = b"<Error><Code>X</Code><Message>said by the store</Message></Error>"
                headers = {"Content-Length": str(len(content))}
            elif fault == "redirect":
                status, content = 307, b""
                headers = {"Location": "http://169.254.169.254/latest/meta-data/", "Content-Length": "0"}
            elif fault == "slow":
                time.sleep(3)
            elif fault == "truncated":
                content = content[: len(content) // 2]
                self.close_connection = True
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    front.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield front
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Case:
    """A store with a model, directly and behind a proxy."""

    url: str
    endpoint: str
    front: Front
    fronted: str
    """Endpoint of the proxy."""
    keys: dict[str, str]
    """Content of a Secret that may read the model."""
    store: gcs.Store | azure.Store


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Case]]:
    folder = tmp_path_factory.mktemp("stores")
    ports = free_ports(2)
    with ExitStack() as running:
        google = running.enter_context(gcs.running(binaries.extra_program("fake-gcs-server"), ports[0], folder / "log"))
        microsoft = running.enter_context(azure.running(ports[1], folder))
        cases = {}
        for scheme, store, keys, host in (
            ("gs", google, {"GOOGLE_SERVICE_ACCOUNT_KEY": google_key()}, "127.0.0.1"),
            ("az", microsoft, {"AZURE_STORAGE_ACCOUNT_KEY": azure.KEY}, azure.HOST),
        ):
            store.put("vision/digits/config.pbtxt", CONFIG)
            store.put("vision/digits/1/model.py", b"code")
            store.put("vision/digits/1/weights.bin", WEIGHTS)
            store.put("vision/digits-2/1/model.py", b"another's")
            front = running.enter_context(fronting(urlsplit(store.url).port or 0))
            cases[scheme] = Case(
                f"{scheme}://models/vision/digits", store.url, front, f"http://{host}:{front.port}", keys, store
            )
        yield cases


@pytest.fixture(params=["gs", "az"])
def case(request: pytest.FixtureRequest, stores: dict[str, Case], monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Every store, at names and addresses of this machine, and with short retries."""
    resolve = socket.getaddrinfo

    def resolved(host: Any, *arguments: Any, **more: Any) -> Any:
        return resolve("127.0.0.1" if host == azure.HOST else host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(module, "is_open", lambda address, **_: address.is_loopback)
    monkeypatch.setattr(module, "_RETRIES", {"max_retries": 1, "retry_timeout": timedelta(seconds=5)})
    options = module.client_options
    monkeypatch.setattr(module, "client_options", lambda *arguments: {**options(*arguments), "read_timeout": "1s"})
    selected = stores[request.param]
    yield selected
    selected.front.fault = ""


def secret(folder: Path, keys: dict[str, str]) -> Path:
    folder.mkdir()
    for name, value in keys.items():
        (folder / name).write_text(f"{value}\n")
    return folder


@pytest.fixture
def to(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


def files(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def test_a_model_arrives_whole_and_without_its_neighbours(case: Case, to: Path, tmp_path: Path) -> None:
    remote = Remote(case.url, endpoint=case.endpoint, credentials=secret(tmp_path / "keys", case.keys))
    assert download(remote, to, lambda _: None) == len(WEIGHTS) + len(CONFIG) + 4
    assert files(to) == {"config.pbtxt": len(CONFIG), "1/model.py": 4, "1/weights.bin": len(WEIGHTS)}
    assert (to / "1/weights.bin").read_bytes() == WEIGHTS


def test_requests_are_signed_only_with_a_secret(case: Case, to: Path, tmp_path: Path) -> None:
    case.front.authorizations.clear()
    if case.url.startswith("gs"):
        download(Remote(case.url, endpoint=case.fronted), to, lambda _: None)
        assert set(case.front.authorizations) == {""}
        case.front.authorizations.clear()
    download(Remote(case.url, endpoint=case.fronted, credentials=secret(tmp_path / "keys", case.keys)), to, print)
    kind = "Bearer ey" if case.url.startswith("gs") else f"SharedKey {azure.ACCOUNT}:"
    assert all(header.startswith(kind) for header in case.front.authorizations)


@pytest.mark.parametrize("case", ["az"], indirect=True)
def test_a_shared_access_signature_reads_until_it_expires(case: Case, to: Path, tmp_path: Path) -> None:
    valid = {"AZURE_STORAGE_SAS_TOKEN": "?" + azure.sas(valid_for=timedelta(hours=1))}
    assert download(Remote(case.url, endpoint=case.endpoint, credentials=secret(tmp_path / "a", valid)), to, print)
    expired = {"AZURE_STORAGE_SAS_TOKEN": azure.sas(valid_for=timedelta(hours=-1))}
    with pytest.raises(StoreError, match=r"denied access; set .* AZURE_STORAGE_ACCOUNT_KEY or") as error:
        download(Remote(case.url, endpoint=case.endpoint, credentials=secret(tmp_path / "b", expired)), to, print)
    assert expired["AZURE_STORAGE_SAS_TOKEN"].rpartition("sig=")[2] not in str(error.value)


def test_an_invalid_key_is_reported_without_its_value(case: Case, to: Path, tmp_path: Path) -> None:
    (name,) = case.keys
    bad = [
        '{"private_key": "canary"}',
        "canary",
        json.dumps({"private_key": "canary", "private_key_id": "1", "client_email": "a"}),
    ]
    for number, value in enumerate(bad if case.url.startswith("gs") else ["canary$"]):
        keys = secret(tmp_path / f"keys{number}", {name: value})
        with pytest.raises(StoreError, match=name) as error:
            download(Remote(case.url, endpoint=case.endpoint, credentials=keys), to, print)
        assert "canary" not in str(error.value)


FAULTS: dict[str, tuple[type[FetchError], str]] = {
    "denied": (StoreError, "the store denied access; set spec.model.source.credentials.secretName to a Secret with"),
    "expired": (StoreError, "the store denied access; set spec.model.source.credentials.secretName to a Secret with"),
    "gone": (SourceError, "does not exist"),
    "changed": (StoreError, "changed during the download; put each version into its own folder"),
    "redirect": (StoreError, "redirects to 169.254.169.254:80, and a download may connect only to the host in the URI"),
    "slow": (StoreError, ""),
    "truncated": (StoreError, ""),
    "too large": (SourceError, "sizeLimit is 0.0 GiB; raise it"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_reported_and_leaves_no_model(case: Case, fault: str, to: Path, tmp_path: Path) -> None:
    (tmp_path / "overlay.json").write_text(Overlay("m").to_json())
    case.front.fault = fault
    limit = 9 * MIB if fault == "too large" else 20 * MIB
    keys = secret(tmp_path / "keys", case.keys)
    remote = Remote(case.url, endpoint=case.fronted, credentials=keys, limit_bytes=limit)
    kind, message = FAULTS[fault]
    with pytest.raises(kind) as error:
        fetch(Request(to, None, tmp_path / "overlay.json", tmp_path / "models", remote=remote))
    assert str(error.value).startswith(case.url) or fault == "too large"
    assert message in str(error.value)
    assert not (tmp_path / "models").exists()
    for value in case.keys.values():
        assert value not in str(error.value)


def test_a_missing_folder_is_reported_by_its_url(case: Case, to: Path, tmp_path: Path) -> None:
    keys = secret(tmp_path / "keys", case.keys)
    with pytest.raises(SourceError, match=f"{case.url}s is empty; a model's folder contains"):
        download(Remote(f"{case.url}s", endpoint=case.endpoint, credentials=keys), to, print)
