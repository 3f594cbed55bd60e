"""Digests that a push reports, against a real registry: Debian's docker-registry, and podman, both only unpacked."""

import os
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from images import apt
from images.engine import Engine
from images.host import images_directory

REPOSITORY = "ml/halcyon-pause"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Run a registry without TLS, and yield its HOST:PORT."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    program = apt.unpacked("docker-registry", images_directory().parent) / "usr" / "bin" / "docker-registry"
    config = tmp_path / "registry.yaml"
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {tmp_path}/blobs}}}}\nhttp: {{addr: '{address}'}}\n"
    )
    with (tmp_path / "registry.log").open("w") as log:
        running = subprocess.Popen([program, "serve", config], stdout=log, stderr=subprocess.STDOUT)
    try:
        host, port = address.split(":")
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    break
            time.sleep(0.1)
        yield address
    finally:
        running.terminate()
        running.wait(10)


@pytest.fixture
def podman(tmp_path: Path, registry: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Yield podman with a storage of its own, which may push to the registry without TLS."""
    cache = images_directory().parent
    programs = {name: apt.unpacked(name, cache) / "usr" / "bin" / name for name in ("podman", "conmon")}
    settings = tmp_path / "registries.conf"
    settings.write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(settings))
    monkeypatch.setenv("BUILDAH_ISOLATION", "chroot")
    with tempfile.TemporaryDirectory() as short:  # podman accepts at most 50 characters
        storage = ("--root", f"{short}/root", "--runroot", f"{short}/run", "--storage-driver", "vfs")
        options = ("--conmon", str(programs["conmon"]), "--cgroup-manager", "cgroupfs", *storage)
        yield Engine(str(programs["podman"]), options)


@pytest.mark.skipif(os.geteuid() != 0, reason="podman without root needs user namespaces")
def test_the_digest_of_a_push_by_podman_is_that_in_the_registry(podman: Engine, registry: str, tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM scratch\nCOPY content /content\n")
    (context / "content").write_text("halcyon " * 1000)
    podman("build", "--quiet", "--tag", "localhost/halcyon-pause:dev", str(context))

    digest = podman.push("localhost/halcyon-pause:dev", f"{registry}/{REPOSITORY}:dev")

    request = urllib.request.Request(f"http://{registry}/v2/{REPOSITORY}/manifests/{digest}", method="HEAD")
    request.add_header("Accept", "application/vnd.oci.image.manifest.v1+json")
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["Docker-Content-Digest"] == digest
