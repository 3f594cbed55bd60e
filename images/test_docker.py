"""The Dockerfiles under a real docker daemon: each image is built, is what buildah made of the same file, and runs.

The base is buildah's own, since Docker's slim images come from a registry; the host's CAs are laid into it, for apt and pip.
"""

import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images.build import Workshop, build_images
from images.docker import Docker, daemon
from images.engine import Engine
from images.host import images_directory
from images.recipes import RECIPES, Base, Recipe

BUILT = ("operator", "bench", "balancer", "tritonserver-cpu")
EXPECTED_OUTPUT = {
    "operator": ("halcyon --help", "operator"),
    "bench": ("halcyon bench --help", "--url URL"),
    "balancer": ("haproxy -v", "HAProxy version 3.0"),
    "tritonserver-cpu": (
        "(tritonserver --help || test $? = 1) 2>&1",
        "--model-repository",
    ),  # its help is an error to it
}
"""Command by image, and a part of its output without a network and with a read-only root file system."""
COMPARED = ("User", "Entrypoint", "Cmd", "Env", "ExposedPorts", "StopSignal", "Volumes", "WorkingDir")


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    with daemon(images_directory().parent) as running:
        yield running


@pytest.fixture(scope="module")
def archives() -> dict[str, Path]:
    return build_images(BUILT)


@pytest.fixture(scope="module")
def bases(docker: Docker, archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[Base, str]:
    """Docker's name of the base of each suite."""
    assert archives
    scratch = tmp_path_factory.mktemp("bases")
    shutil.copytree("/etc/ssl/certs", scratch / "certificates")
    workshop, names = Workshop(images_directory()), {}
    for base in dict.fromkeys(RECIPES[name].base for name in BUILT):
        archive = scratch / f"{base.suite}.tar"
        with workshop.locked():
            workshop.buildah("push", "-q", base.reference, f"docker-archive:{archive}:base:{base.suite}", log="docker")
        docker("load", "--quiet", "--input", str(archive))
        archive.unlink()
        names[base] = f"trusting:{base.suite}"
        file = scratch / f"{base.suite}.Dockerfile"
        file.write_text(f"FROM base:{base.suite}\nCOPY . /etc/ssl/certs/\n")
        docker("build", "--quiet", "--tag", names[base], "--file", str(file), str(scratch / "certificates"))
    return names


def configuration(archive: Path) -> dict[str, Any]:
    """Return the image's configuration in an OCI archive."""
    with tarfile.open(archive) as tar:

        def blob(name: str) -> Any:
            member = tar.extractfile(name)
            assert member is not None
            return json.load(member)

        def path(descriptor: dict[str, str]) -> str:
            return "blobs/" + descriptor["digest"].replace(":", "/")

        manifest = blob(path(blob("index.json")["manifests"][0]))
        return dict(blob(path(manifest["config"]))["config"])


def build(docker: Docker, recipe: Recipe, base: str) -> str:
    """Build as `make kind` and `make push WITH=docker` do, except for the base, and return the image's name."""
    engine = Engine(str(docker.program), ("--host", f"unix://{docker.socket}"))
    certificates = ("--build-arg=PIP_CERT",) if "PIP_CERT" in os.environ else ()
    return engine.build(recipe, base=base, options=("--network=host", *certificates))


@pytest.mark.parametrize("name", BUILT)
def test_docker_builds_what_buildah_builds(
    docker: Docker, archives: dict[str, Path], bases: dict[Base, str], name: str
) -> None:
    recipe = RECIPES[name]
    image = build(docker, recipe, bases[recipe.base])
    (inspected,) = json.loads(docker("image", "inspect", image))
    expected_config = configuration(archives[name])
    for key in COMPARED:
        assert (inspected["Config"].get(key) or None) == (expected_config.get(key) or None), key

    command, expected = EXPECTED_OUTPUT[name]
    alone = ("run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--entrypoint=/bin/sh")
    assert expected in docker(*alone, image, "-c", command)
