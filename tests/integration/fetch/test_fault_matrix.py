"""Each kind of store, with identity and with keys, against eight faults: the right condition, and nothing half loaded."""

from __future__ import annotations

import functools
import http.server
import io
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest

from e2e import azure, gcs, hub, s3, token_services
from e2e.cluster import binaries
from e2e.registries import mlflow_server
from e2e.store_faults import FAULTS, FaultyProxy, fronting
from halcyon.api.documents.model_overlay import Overlay
from halcyon.api.documents.store_identity import StoreIdentity
from halcyon.fetch import download as module
from halcyon.fetch.download import Remote
from halcyon.fetch.errors import FetchError, SourceError, StoreError
from halcyon.fetch.main import Request, fetch
from halcyon.fetch.registry import client, hugging_face
from halcyon.metricsapi.certificates import renewed
from tests.integration.fetch.test_identity import ISSUER, NAMES, SUBJECT, Cloud
from tests.integration.fetch.test_stores import google_key
from tests.ports import free_ports

pytestmark = pytest.mark.more

WEIGHTS = bytes(range(256)) * 4096 * 3
FILES = {"config.pbtxt": b'backend: "python"\n', "1/model.py": b"code", "1/weights.bin": WEIGHTS}
KEYS = ("s3", "gs", "az", "https", "hf", "mlflow")
IDENTITIES: dict[str, Cloud] = {"s3": "aws", "gs": "google", "az": "azure"}
CELLS = [
    *((scheme, "keys", fault) for scheme in KEYS for fault in FAULTS),
    *((scheme, "identity", fault) for scheme in IDENTITIES for fault in FAULTS),
]
BEARER = "Bearer halcyon-archive-canary"
REPORTED: dict[str, tuple[type[FetchError], tuple[str, ...]]] = {
    "denied": (StoreError, ("denied access; set spec.model.source.credentials.secretName", "access was denied for")),
    "expired": (StoreError, ("denied access; set spec.model.source.credentials.secretName", "access was denied for")),
    "slow": (StoreError, ("timed out", "error decoding response body", "error sending request", "operation timed out")),
    "truncated": (StoreError, ("ended after", "error decoding response body", "body error", "retries")),
    "wrong checksum": (
        FetchError,
        ("changed during the download", "has the SHA-256", "damaged or replaced", "ended after"),
    ),
    "gone": (SourceError, ("does not exist",)),
    "too large": (SourceError, ("and spec.model.source.sizeLimit is 0.0 GiB; raise it",)),
    "redirect": (
        StoreError,
        ("redirects to 169.254.169.254:80, and a download may connect only to the host in the URI",),
    ),
}
"""Kind of the error, whose `reason` is that of the condition, and what its message may have."""


@dataclass(frozen=True)
class Store:
    """A store with a model, behind a proxy with faults."""

    remote: Remote
    set_fault: Callable[[str], None]
    secrets: tuple[str, ...]
    """Values that no message may have."""


def archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


class Guarded(http.server.SimpleHTTPRequestHandler):
    """Files for clients with the right header."""

    def do_GET(self) -> None:
        if self.headers.get("authorization") == BEARER:
            super().do_GET()
        else:
            self.send_error(401)

    def log_message(self, *_: Any) -> None:
        pass


def is_content(path: str) -> bool:
    return path.endswith((".py", ".bin", ".tar.gz")) and not path.startswith("/api/2.0/mlflow/")


def secret(folder: Path, **keys: str) -> Path:
    folder.mkdir()
    for key, value in keys.items():
        (folder / key).write_text(value)
    return folder


@contextmanager
def web_server(folder: Path) -> Iterator[int]:
    """Port of a web server with an archive of the model."""
    folder.mkdir()
    (folder / "digits.tar.gz").write_bytes(archive())
    handler = functools.partial(Guarded, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def token_service(folder: Path) -> Iterator[tuple[str, Path]]:
    """URL of a service that exchanges tokens, and a Secret with its authority."""
    certificates = renewed(None, ("localhost",), datetime.now(UTC))
    (folder / "tls.crt").write_text(certificates.serving.cert_pem)
    (folder / "tls.key").write_text(certificates.serving.key_pem)
    with token_services.running(ISSUER.public_key(), SUBJECT, folder / "tls.crt", folder / "tls.key") as running:
        yield running.url, secret(folder / "ca", **{"ca.crt": certificates.bundle_pem})


@contextmanager
def behind_proxies(folder: Path, origins: dict[str, tuple[int, str, dict[str, str]]]) -> Iterator[dict[str, Store]]:
    """The stores at these ports, with the model's URI and the content of a Secret, each behind a proxy."""
    proxied: dict[str, Store] = {}
    with ExitStack() as running:
        for scheme, (port, uri, keys) in origins.items():
            proxy = FaultyProxy(port, is_content, keeps_host=scheme == "s3", has_conditions=scheme in IDENTITIES)
            running.enter_context(fronting(proxy))
            endpoint = f"http://{azure.HOST if scheme == 'az' else '127.0.0.1'}:{proxy.port}"
            credentials = secret(folder / f"{scheme}-keys", **keys)
            remote = Remote(uri, endpoint, credentials=credentials)
            if scheme == "https":
                remote = Remote(f"{endpoint}{uri}", credentials=credentials)
            proxied[scheme] = Store(remote, functools.partial(setattr, proxy, "fault"), tuple(keys.values()))
        yield proxied


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Store]]:
    """Each store, by scheme and kind of credentials."""
    folder = tmp_path_factory.mktemp("stores")
    ports = free_ports(4)
    for name in ("s3", "mlflow"):
        (folder / name).mkdir()
    with ExitStack() as running:
        enter = running.enter_context
        google = enter(gcs.running(binaries.extra_program("fake-gcs-server"), ports[0], folder / "log"))
        microsoft = enter(azure.running(ports[1], folder))
        amazon = enter(s3.running(binaries.extra_program("versitygw"), ports[2], folder / "s3"))
        mlflow = enter(mlflow_server.running(ports[3], folder / "mlflow"))
        for name, content in FILES.items():
            google.put(f"digits/{name}", content)
            microsoft.put(f"digits/{name}", content)
            amazon.put(f"models/digits/{name}", content)
        amazon_keys = {"AWS_ACCESS_KEY_ID": s3.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": s3.SECRET_KEY}
        origins = {
            "s3": (ports[2], "s3://models/digits", amazon_keys),
            "gs": (ports[0], "gs://models/digits", {"GOOGLE_SERVICE_ACCOUNT_KEY": google_key()}),
            "az": (ports[1], "az://models/digits", {"AZURE_STORAGE_ACCOUNT_KEY": azure.KEY}),
            "https": (enter(web_server(folder / "site")), "/digits.tar.gz", {"authorization": BEARER}),
            "mlflow": (ports[3], mlflow.register("digits", FILES), {"authorization": mlflow_server.AUTHORIZATION}),
        }
        by_keys = enter(behind_proxies(folder, origins))
        all_stores = {(scheme, "keys"): store for scheme, store in by_keys.items()}
        url, authority = enter(token_service(folder))
        for scheme, cloud in IDENTITIES.items():
            name, also = NAMES[cloud]
            remote = replace(
                by_keys[scheme].remote,
                credentials=authority,
                identity=StoreIdentity(cloud, name, also, url),
                token=folder / f"{scheme}-token",
            )
            all_stores[scheme, "identity"] = replace(by_keys[scheme], remote=remote)
        hugging = enter(hub.running())
        uri = hugging.put("acme/digits", FILES, "private")
        all_stores["hf", "keys"] = Store(
            Remote(uri, credentials=secret(folder / "hf-keys", HF_TOKEN=hub.TOKEN)),
            lambda fault: setattr(hugging, "fault", "damaged" if fault == "wrong checksum" else fault),
            (hub.TOKEN,),
        )
        patch = enter(pytest.MonkeyPatch.context())
        patch.setattr(hugging_face, "SERVER", hugging.url)
        patch.setattr(hugging_face, "DOMAINS", (f".{hub.HOST}",))
        yield all_stores


@pytest.fixture(autouse=True)
def this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and addresses of this machine, and short times."""
    resolve = socket.getaddrinfo

    def resolved(host: Any, *arguments: Any, **more: Any) -> Any:
        return resolve("127.0.0.1" if str(host).endswith((azure.HOST, hub.HOST)) else host, *arguments, **more)

    options = module.client_options
    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(module, "is_open", lambda address, **_: address.is_loopback)
    monkeypatch.setattr(module, "_RETRIES", {"max_retries": 1, "retry_timeout": timedelta(seconds=5)})
    monkeypatch.setattr(module, "client_options", lambda *arguments: {**options(*arguments), "read_timeout": "3s"})
    monkeypatch.setattr(client, "RETRY_WAIT_S", 0.01)
    monkeypatch.setattr(client, "MAX_RETRIES", 1)
    monkeypatch.setattr(client, "_TIMEOUT_S", 5.0)


def write_token(remote: Remote, fault: str) -> None:
    """Write the token of the service account, which is expired or another's with the fault of this name."""
    if remote.identity is None or remote.token is None:
        return
    now = int(time.time())
    subject = "system:serviceaccount:team-b:models" if fault == "denied" else SUBJECT
    claims = {
        "iss": "https://cluster",
        "sub": subject,
        "aud": [remote.identity.audience],
        "iat": now,
        "exp": now + 3600,
    }
    claims["exp"] = 1 if fault == "expired" else now + 3600
    remote.token.write_text(jwt.encode(claims, ISSUER, algorithm="RS256"))


def fetched(remote: Remote, folder: Path) -> Path:
    """Fetch the model; return the path of Triton's repository."""
    (folder / "source").mkdir()
    (folder / "overlay.json").write_text(Overlay("m").to_json())
    fetch(Request(folder / "source", None, folder / "overlay.json", folder / "models", remote=remote))
    return folder / "models"


@pytest.mark.parametrize(("scheme", "credentials"), sorted({cell[:2] for cell in CELLS}))
def test_a_store_without_faults_serves_the_model(
    scheme: str, credentials: str, stores: dict[tuple[str, str], Store], tmp_path: Path
) -> None:
    store = stores[scheme, credentials]
    store.set_fault("")
    write_token(store.remote, "")
    assert (fetched(store.remote, tmp_path) / "m" / "1" / "weights.bin").read_bytes() == WEIGHTS


@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_a_fault_has_its_condition_and_leaves_no_model(
    cell: tuple[str, str, str], stores: dict[tuple[str, str], Store], tmp_path: Path
) -> None:
    scheme, credentials, fault = cell
    store = stores[scheme, credentials]
    write_token(store.remote, fault)
    store.set_fault("" if credentials == "identity" and fault in {"denied", "expired"} else fault)
    remote = replace(store.remote, limit_bytes=2**20 if fault == "too large" else 2**30)
    if scheme == "https" and fault == "wrong checksum":
        remote = replace(remote, sha256="0" * 64)
        store.set_fault("")
    kind, messages = REPORTED[fault]
    with pytest.raises(kind) as error:
        fetched(remote, tmp_path)
    message = str(error.value)
    assert any(words in message for words in messages), message
    assert not (tmp_path / "models").exists()
    assert not any(value.split()[-1] in message for value in (*store.secrets, azure.ACCESS_TOKEN))
