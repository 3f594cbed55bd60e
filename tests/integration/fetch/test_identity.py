"""`halcyon fetch` with the identity of a service account: real stores, and a stand-in for the clouds' token services."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from e2e import azure, gcs, s3, token_services
from e2e.cluster import binaries
from halcyon.api.documents.store_identity import StoreIdentity
from halcyon.fetch import download as module
from halcyon.fetch.download import Remote, download
from halcyon.fetch.errors import StoreError
from halcyon.metricsapi.certificates import renewed
from tests.ports import free_ports

CONFIG = b'backend: "python"\nmax_batch_size: 8\n'
SUBJECT = "system:serviceaccount:team-a:models"
ISSUER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
Cloud = Literal["aws", "azure", "google"]
NAMES: dict[Cloud, tuple[str, str]] = {
    "aws": (token_services.ROLE, ""),
    "azure": (token_services.CLIENT, token_services.TENANT),
    "google": (token_services.PROVIDER, ""),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Cloud, tuple[str, str]]]:
    """URI of a model in each store, and the store's endpoint."""
    folder = tmp_path_factory.mktemp("stores")
    ports = free_ports(3)
    (folder / "s3").mkdir()
    with ExitStack() as running:
        google = running.enter_context(gcs.running(binaries.extra_program("fake-gcs-server"), ports[0], folder / "log"))
        microsoft = running.enter_context(azure.running(ports[1], folder))
        amazon = running.enter_context(s3.running(binaries.extra_program("versitygw"), ports[2], folder / "s3"))
        google.put("digits/config.pbtxt", CONFIG)
        microsoft.put("digits/config.pbtxt", CONFIG)
        amazon.put("models/digits/config.pbtxt", CONFIG)
        yield {
            "aws": ("s3://models/digits", amazon.url),
            "azure": ("az://models/digits", microsoft.url),
            "google": ("gs://models/digits", google.url),
        }


@pytest.fixture(autouse=True)
def this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and addresses of this machine, and short retries."""
    resolve = socket.getaddrinfo

    def resolved(host: Any, *arguments: Any, **more: Any) -> Any:
        return resolve("127.0.0.1" if host == azure.HOST else host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(module, "is_open", lambda address, **_: address.is_loopback)
    monkeypatch.setattr(module, "_RETRIES", {"max_retries": 1, "retry_timeout": timedelta(seconds=5)})


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate of a private CA, its key, and a Secret that has the CA."""
    folder = tmp_path_factory.mktemp("tls")
    tls = renewed(None, ("localhost",), datetime.now(UTC))
    (folder / "secret").mkdir()
    for name, text in (
        ("tls.crt", tls.serving.cert_pem),
        ("tls.key", tls.serving.key_pem),
        ("secret/ca.crt", tls.bundle_pem),
    ):
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def service(certificates: Path) -> Iterator[token_services.Service]:
    tls = certificates / "tls.crt", certificates / "tls.key"
    with token_services.running(ISSUER.public_key(), SUBJECT, *tls) as running:
        yield running


Fetch = Callable[..., Remote]


@pytest.fixture
def remote(
    stores: dict[Cloud, tuple[str, str]], service: token_services.Service, certificates: Path, tmp_path: Path
) -> Fetch:
    """A function that returns the model of a cloud, with a token that has these claims in place of the valid ones."""

    def model_of(cloud: Cloud, *, name: str | None = None, endpoint: str | None = None, **claims: Any) -> Remote:
        own, also = NAMES[cloud]
        identity = StoreIdentity(cloud, name or own, also, endpoint or service.url)
        now = int(time.time())
        valid = {"iss": "https://cluster", "sub": SUBJECT, "aud": [identity.audience], "iat": now, "exp": now + 3600}
        (tmp_path / "token").write_text(jwt.encode(valid | claims, ISSUER, algorithm="RS256"))
        url, store = stores[cloud]
        return Remote(url, store, credentials=certificates / "secret", identity=identity, token=tmp_path / "token")

    return model_of


@pytest.fixture
def to(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


@pytest.mark.parametrize("cloud", NAMES)
def test_a_model_is_read_with_a_service_accounts_token_and_no_secret(
    cloud: Cloud, remote: Fetch, service: token_services.Service, to: Path
) -> None:
    download(remote(cloud), to, lambda _: None)
    assert (to / "config.pbtxt").read_bytes() == CONFIG
    assert len(service.paths) == 1


DENIALS: dict[str, dict[str, Any]] = {
    "expired": {"exp": 1},
    "another service account": {"sub": "system:serviceaccount:team-b:models"},
    "another audience": {"aud": ["https://kubernetes.default.svc"]},
}


@pytest.mark.parametrize("cloud", NAMES)
@pytest.mark.parametrize("denial", DENIALS)
def test_a_denied_exchange_names_identity_and_service_account(
    cloud: Cloud, denial: str, remote: Fetch, to: Path
) -> None:
    model = remote(cloud, **DENIALS[denial])
    with pytest.raises(StoreError) as error:
        download(model, to, lambda _: None)
    message = str(error.value)
    named = f"{model.url}: access was denied for spec.model.source.credentials.identity, {NAMES[cloud][0]}: "
    assert message.startswith(named)
    assert "spec.runtime.serviceAccountName" in message
    assert (model.token or Path()).read_text() not in message
    assert list(to.iterdir()) == []


def test_an_exchange_for_another_role_is_denied(remote: Fetch, to: Path) -> None:
    with pytest.raises(StoreError, match=r"denied for .*, arn:aws:iam::1:role/other: not authorized: RoleArn"):
        download(remote("aws", name="arn:aws:iam::1:role/other"), to, lambda _: None)


@pytest.mark.parametrize("cloud", NAMES)
def test_a_token_service_that_does_not_answer_is_named(cloud: Cloud, remote: Fetch, to: Path) -> None:
    (closed,) = free_ports(1)
    with pytest.raises(StoreError, match=rf"localhost:{closed} can't be reached"):
        download(remote(cloud, endpoint=f"https://localhost:{closed}"), to, lambda _: None)


@pytest.mark.parametrize("cloud", NAMES)
def test_a_missing_token_is_named(cloud: Cloud, remote: Fetch, to: Path) -> None:
    model = remote(cloud)
    assert model.token is not None
    model.token.unlink()
    with pytest.raises(StoreError, match=r"there is no service account token at .*/token"):
        download(model, to, lambda _: None)
