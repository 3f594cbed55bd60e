"""`halcyon fetch` from the Hugging Face Hub, served by a stand-in: what arrives, where credentials go, what each fault leads to."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import hub as stand_in
from e2e.hub import Hub, commit
from e2e.registries.mlflow_server import site
from halcyon.api.documents.model_overlay import Overlay
from halcyon.fetch import download as module
from halcyon.fetch.download import Remote, download
from halcyon.fetch.errors import FetchError, SourceError, StoreError
from halcyon.fetch.main import Request, fetch
from halcyon.fetch.registry import client as client_module
from halcyon.fetch.registry import files as files_module
from halcyon.fetch.registry import hugging_face
from halcyon.fetch.registry.errors import TransientError

CONFIG = b'backend: "python"\n'
WEIGHTS = bytes(range(256)) * 4096 * 3
FILES = {
    ".gitattributes": b"*.bin filter=lfs",
    "README.md": b"# Digits",
    "config.pbtxt": CONFIG,
    "1/model.py": b"code",
    "1/weights.bin": WEIGHTS,
    "1/run.py": b"#!/bin/sh",
    "1/name with spaces+#.py": b"x",
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub at names of this machine, as the default one, and with short retries."""
    resolve = socket.getaddrinfo

    def resolved(host: Any, *arguments: Any, **more: Any) -> Any:
        return resolve("127.0.0.1" if str(host).endswith(stand_in.HOST) else host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(module, "is_open", lambda address, **_: address.is_loopback)
    monkeypatch.setattr(client_module, "RETRY_WAIT_S", 0.01)
    monkeypatch.setattr(client_module, "_TIMEOUT_S", 1.0)
    with stand_in.running() as running:
        monkeypatch.setattr(hugging_face, "SERVER", running.url)
        monkeypatch.setattr(hugging_face, "DOMAINS", (f".{stand_in.HOST}",))
        yield running


@pytest.fixture
def to(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


def token(folder: Path, value: str = stand_in.TOKEN) -> Path:
    secret = folder / "secret"
    secret.mkdir()
    (secret / "HF_TOKEN").write_text(f"{value}\n")
    return secret


def below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_repository_arrives_whole_from_the_hub_and_its_store(hub: Hub, to: Path) -> None:
    uri = hub.put("acme/digits", FILES)
    expected = {name: content for name, content in FILES.items() if not name.startswith(".")}
    assert download(Remote(uri), to, print) == sum(map(len, expected.values()))
    assert below(to) == expected
    assert (to / "1/run.py").stat().st_mode & 0o111
    assert {host for host, _, _ in hub.requests} == {stand_in.HOST, stand_in.CONTENT_HOST}


def test_a_folder_of_a_repository_is_a_model(hub: Hub, to: Path) -> None:
    uri = hub.put("acme/zoo", {"vision/a/1/model.onnx": b"a", "vision/ab/1/model.onnx": b"ab", "README.md": b""})
    download(Remote(f"{uri}/vision/a"), to, print)
    assert below(to) == {"1/model.onnx": b"a"}


def test_the_token_goes_to_the_hub_and_never_to_its_store(hub: Hub, to: Path, tmp_path: Path) -> None:
    uri = hub.put("acme/secret", FILES, access="private")
    download(Remote(uri, credentials=token(tmp_path)), to, print)
    assert {header for host, _, header in hub.requests if host == stand_in.HOST} == {f"Bearer {stand_in.TOKEN}"}
    assert {header for host, _, header in hub.requests if host == stand_in.CONTENT_HOST} == {""}


def test_an_interrupted_file_continues_with_the_first_missing_byte(hub: Hub, to: Path) -> None:
    uri = hub.put("acme/digits", {"1/weights.bin": WEIGHTS})
    hub.fault = "interrupted"
    assert download(Remote(uri), to, print) == len(WEIGHTS)
    assert below(to) == {"1/weights.bin": WEIGHTS}
    assert len([path for host, path, _ in hub.requests if host == stand_in.CONTENT_HOST]) > 1


def test_the_hubs_rate_limit_is_waited_for(hub: Hub, to: Path) -> None:
    uri = hub.put("acme/digits", {"1/weights.bin": WEIGHTS, "1/model.py": b"code"})
    hub.busy_until = time.monotonic() + 1.5
    download(Remote(uri), to, print)
    assert below(to) == {"1/weights.bin": WEIGHTS, "1/model.py": b"code"}
    # One request was denied, and not one after the other until the time was over.
    assert len([path for _, path, _ in hub.requests if path.startswith("/api/")]) == 2


def test_requests_left_in_the_rate_limit_delay_no_retry(hub: Hub, to: Path) -> None:
    uri = hub.put("acme/digits", {"1/model.py": b"code"})
    hub.unavailable = 1
    began = time.monotonic()
    download(Remote(uri), to, print)
    assert below(to) == {"1/model.py": b"code"}
    assert hub.unavailable == 0
    assert time.monotonic() - began < 10


def test_a_file_that_fails_ends_the_waits_of_the_others(hub: Hub, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread waits for the hub's rate limit by itself."""
    uri = hub.put("acme/digits", {"1/weights.bin": WEIGHTS, "1/model.py": b"code"})
    hub.fault = "damaged"
    received = files_module._Transfer.receive

    def receive(transfer: Any, client: Any) -> bool:
        if transfer._file.path == "1/model.py":
            raise TransientError("status 429: too many requests", wait_s=300.0)
        return received(transfer, client)

    monkeypatch.setattr(files_module._Transfer, "receive", receive)
    began = time.monotonic()
    with pytest.raises(StoreError, match="damaged"):
        download(Remote(uri), to, print)
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join(10)
            assert not thread.is_alive()
    assert time.monotonic() - began < 10


def test_a_listing_that_ends_early_is_requested_again(hub: Hub, to: Path) -> None:
    uri = hub.put("acme/digits", {"1/model.py": b"code"})
    hub.cut_listings = 1
    download(Remote(uri), to, print)
    assert below(to) == {"1/model.py": b"code"}


FAULTS: dict[str, tuple[type[FetchError], str]] = {
    "denied": (
        StoreError,
        "the hub denied access; set spec.model.source.credentials.secretName to a Secret with an HF_TOKEN",
    ),
    "expired": (
        StoreError,
        "the hub denied access; set spec.model.source.credentials.secretName to a Secret with an HF_TOKEN",
    ),
    "gone": (SourceError, "does not exist"),
    "damaged": (StoreError, "the file was damaged or replaced on its way"),
    "redirect": (StoreError, "redirects to 169.254.169.254:80"),
    "slow": (StoreError, "timed out"),
    "truncated": (StoreError, "ended after"),
    "too large": (SourceError, "sizeLimit is 0.0 GiB; raise it"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_reported_and_leaves_no_model(hub: Hub, fault: str, to: Path, tmp_path: Path) -> None:
    (tmp_path / "overlay.json").write_text(Overlay("m").to_json())
    uri = hub.put("acme/digits", FILES)
    hub.fault = fault
    limit = 2**20 if fault == "too large" else 20 * 2**20
    remote = Remote(uri, credentials=token(tmp_path), limit_bytes=limit)
    kind, message = FAULTS[fault]
    with pytest.raises(kind) as error:
        fetch(Request(to, None, tmp_path / "overlay.json", tmp_path / "models", remote=remote))
    assert message in str(error.value)
    assert not (tmp_path / "models").exists()
    assert stand_in.TOKEN not in str(error.value)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            ("gated", False),
            "is gated: accept its terms at {hub}/acme/m, then set spec.model.source.credentials.secretName",
        ),
        (("gated", True), "is gated: accept its terms at {hub}/acme/m with the account of the HF_TOKEN"),
        (("private", False), "there is no acme/m at {host}, or it is private; then set"),
        (("denied", True), "the hub denied access; set"),
    ],
)
def test_closed_repositories_say_how_to_get_access(
    hub: Hub, case: tuple[str, bool], message: str, to: Path, tmp_path: Path
) -> None:
    access, has_token = case
    uri = hub.put("acme/m", FILES, access)
    remote = Remote(uri, credentials=token(tmp_path) if has_token else None)
    with pytest.raises(FetchError) as error:
        download(remote, to, print)
    assert str(error.value).startswith(uri)
    assert message.format(hub=hub.url, host=f"{stand_in.HOST}:{hub.port}") in str(error.value)


def test_an_expired_token_is_masked_in_the_error(hub: Hub, to: Path, tmp_path: Path) -> None:
    uri = hub.put("acme/m", FILES, "private")
    with pytest.raises(StoreError, match=r"User Access Token \*\*\* is expired") as error:
        download(Remote(uri, credentials=token(tmp_path, stand_in.EXPIRED)), to, print)
    assert stand_in.EXPIRED not in str(error.value)


def test_missing_places_are_named(hub: Hub, to: Path) -> None:
    uri = hub.put("acme/digits", FILES)
    other = f"hf://acme/digits@{commit('acme/other')}"
    with pytest.raises(SourceError, match=f"acme/digits has no commit {commit('acme/other')}"):
        download(Remote(other), to, print)
    with pytest.raises(SourceError, match="there is no folder triton at"):
        download(Remote(f"{uri}/triton"), to, print)


def test_weights_alone_are_rejected_before_they_are_downloaded(hub: Hub, to: Path) -> None:
    uri = hub.put("acme/bert", {"config.json": b"{}", "model.safetensors.bin": WEIGHTS, "README.md": b""})
    with pytest.raises(
        SourceError, match=r"no version folder; it has README.md, config.json, model.safetensors.bin"
    ) as error:
        download(Remote(uri), to, print)
    assert f"triton/1/model.onnx, with the URI {uri}/triton" in str(error.value)
    assert not any("/resolve/" in path for _, path, _ in hub.requests)
    assert below(to) == {}


def test_a_mirror_serves_the_files_itself(hub: Hub, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = hub.put("acme/digits", FILES)
    monkeypatch.setattr(hugging_face, "SERVER", "https://hub.example.com")
    with pytest.raises(StoreError, match=f"redirects to {stand_in.CONTENT_HOST}"):
        download(Remote(uri, endpoint=hub.url), to, print)
    small = hub.put("acme/small", {"1/model.py": b"code"})
    assert download(Remote(small, endpoint=hub.url), to, print) == 4


CLIENT = """
import json, socket, sys
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *given, **more: resolve("127.0.0.1", *given, **more)
from huggingface_hub import HfApi
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
endpoint, token, commit = sys.argv[1:]
api = HfApi(endpoint=endpoint)
found = {}
for name, given in (("acme/gated", token), ("acme/none", token), ("acme/secret", False)):
    try:
        list(api.list_repo_tree(name, recursive=True, token=given, revision=commit))
    except (GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError) as error:
        found[name] = type(error).__name__
found["tree"] = sorted(entry.path for entry in api.list_repo_tree("acme/secret", recursive=True, token=token, revision=commit))
print(json.dumps(found))
"""


def test_the_hubs_own_client_reads_the_stand_in_as_we_do(hub: Hub, tmp_path: Path) -> None:
    hub.put("acme/secret", FILES, "private")
    hub.put("acme/gated", FILES, "gated")
    command = [sys.executable, "-c", CLIENT, hub.url, stand_in.TOKEN, commit("acme/secret")]
    environment = {"PYTHONPATH": str(site()), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert {"1/weights.bin", "1/model.py", "README.md", ".gitattributes"} <= set(output.pop("tree"))
    assert output == {
        "acme/gated": "GatedRepoError",
        "acme/none": "RepositoryNotFoundError",
        "acme/secret": "RepositoryNotFoundError",
    }
