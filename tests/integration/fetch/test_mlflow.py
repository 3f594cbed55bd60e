"""`halcyon fetch` from MLflow's own server, with its registry, artifacts and authentication."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.registries import mlflow_server
from e2e.registries.mlflow_server import MlflowServer
from halcyon.fetch import download as module
from halcyon.fetch.download import Remote, download
from halcyon.fetch.errors import SourceError, StoreError
from tests.ports import free_ports

pytestmark = pytest.mark.more

FILES = {"config.pbtxt": b'backend: "python"\n', "1/model.py": b"code", "1/a b/weights.bin": bytes(2**20)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with mlflow_server.running(free_ports(1)[0], tmp_path_factory.mktemp("mlflow")) as running:
        yield running


@pytest.fixture
def to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "is_open", lambda address, **_: address.is_loopback)
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


def keys(folder: Path, authorization: str = mlflow_server.AUTHORIZATION) -> Path:
    (folder / "keys").mkdir()
    (folder / "keys" / "authorization").write_text(authorization)
    return folder / "keys"


def below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_each_version_of_a_model_has_its_own_files(server: MlflowServer, to: Path, tmp_path: Path) -> None:
    first = server.register("digits", FILES)
    second = server.register("digits", {"1/model.py": b"newer"})
    assert (first, second) == ("mlflow://digits/1", "mlflow://digits/2")
    credentials = keys(tmp_path)
    assert download(Remote(first, server.url, credentials=credentials), to, print) == sum(map(len, FILES.values()))
    assert below(to) == FILES
    download(Remote(second, server.url, credentials=credentials), to, print)
    assert below(to) == {"1/model.py": b"newer"}


def test_a_folder_of_a_version_is_a_model(server: MlflowServer, to: Path, tmp_path: Path) -> None:
    uri = server.register("zoo", {"a/1/model.py": b"a", "b/1/model.py": b"b", "MLmodel": b"flavors: {}"})
    download(Remote(f"{uri}/b", server.url, credentials=keys(tmp_path)), to, print)
    assert below(to) == {"1/model.py": b"b"}


def test_a_flavor_without_a_layout_of_triton_is_rejected(server: MlflowServer, to: Path, tmp_path: Path) -> None:
    uri = server.register("bert", {"MLmodel": b"flavors: {}", "data/model.pth": b"weights"})
    with pytest.raises(SourceError, match="no version folder; it has MLmodel, data") as error:
        download(Remote(uri, server.url, credentials=keys(tmp_path)), to, print)
    assert f"with the URI {uri}/triton" in str(error.value)


def test_a_missing_version_is_named_with_the_registry(server: MlflowServer, to: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"mlflow://nothing/3 does not exist at 127\.0\.0\.1"):
        download(Remote("mlflow://nothing/3", server.url, credentials=keys(tmp_path)), to, print)


def test_credentials_are_required_and_never_shown(server: MlflowServer, to: Path, tmp_path: Path) -> None:
    uri = server.register("closed", FILES)
    with pytest.raises(
        StoreError, match=r"the registry denied access; set .*secretName to a Secret with authorization"
    ):
        download(Remote(uri, server.url), to, print)
    wrong = base64.b64encode(b"models:canary-of-a-password").decode()
    with pytest.raises(StoreError, match="denied access") as error:
        download(Remote(uri, server.url, credentials=keys(tmp_path, f"Basic {wrong}")), to, print)
    assert wrong not in str(error.value)


def test_artifacts_in_another_store_are_named(server: MlflowServer, to: Path, tmp_path: Path) -> None:
    uri = server.register_at("elsewhere", "s3://models/elsewhere")
    with pytest.raises(
        SourceError, match="keeps this version at s3://models/elsewhere and does not serve it; name that"
    ):
        download(Remote(uri, server.url, credentials=keys(tmp_path)), to, print)
