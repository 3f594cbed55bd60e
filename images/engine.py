"""Builds with docker or podman, by any user who may run them, for the nodes of a kind cluster or for a registry."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from images.build import progress
from images.host import ImagesError
from images.recipes import RECIPES, REPOSITORY, Recipe

ENGINES = ("docker", "podman")
_PIP_SETTINGS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
_CPU_BUILD = "tritonserver-cpu"
_HUB = re.compile(r"^(index\.)?docker\.io/(library/)?")
"""Prefix that docker omits in the names of images on Docker Hub."""
_HEAD_OF_KIND = """\
# Written by `make kind`; give it to helm with --values. The images are in the nodes. Models without an image of their own run
# on Halcyon's CPU build of Triton, which has the Python backend only: NVIDIA's image takes about 16 GB on a node.
"""


@dataclass(frozen=True)
class Engine:
    """Program that builds and pushes images: docker or podman."""

    program: str
    arguments: tuple[str, ...] = ()
    """Arguments before each command, for example the address of a daemon."""

    def __call__(self, *arguments: str) -> str:
        """Run the engine, and return its output.

        Raises:
            ImagesError: the program is missing or fails; the message ends with the last lines of its output.
        """
        return _run(self.program, *self.arguments, *arguments)

    def build(self, recipe: Recipe, *, base: str = "", options: tuple[str, ...] = ()) -> str:
        """Build an image from its Dockerfile, and return its name. `base` replaces the Dockerfile's base image."""
        bases = [f"--build-arg=BASE={base}"] if base else []
        self("build", "--quiet", *options, *bases, "--tag", recipe.reference, *_build_arguments(recipe))
        return recipe.reference

    def push(self, reference: str, target: str) -> str:
        """Push an image under another name, HOST/REPOSITORY:TAG, and return its digest in the registry."""
        self("tag", reference, target)
        # The program `docker` may be podman, too (Debian's and Fedora's package podman-docker).
        if "podman" in _run(self.program, "--version"):
            with tempfile.TemporaryDirectory() as scratch:
                # RepoDigests of podman has the digest of the image in its own storage. A push compresses the layers, so
                # the digest in the registry is another.
                digest = Path(scratch) / "digest"
                self("push", "--quiet", "--digestfile", str(digest), target)
                return digest.read_text().strip()
        self("push", "--quiet", target)
        repository = _HUB.sub("", target.rpartition(":")[0])
        for name in self("image", "inspect", "--format", "{{range .RepoDigests}}{{println .}}{{end}}", target).split():
            if _HUB.sub("", name).startswith(f"{repository}@"):
                return name.partition("@")[2]
        raise ImagesError(f"images: {self.program} names no digest of {target} after its push")

    def push_for(self, recipe: Recipe, target: str, platforms: str) -> str:
        """Build an image for several platforms with docker buildx, push it, and return the digest of its index."""
        with tempfile.TemporaryDirectory() as scratch:
            metadata = Path(scratch) / "metadata.json"
            self(
                *("buildx", "build", "--quiet", "--platform", platforms, "--push", "--tag", target),
                *("--provenance", "false", "--metadata-file", str(metadata), *_build_arguments(recipe)),
            )
            return str(json.loads(metadata.read_text())["containerimage.digest"])


def find_engine(program: str = "") -> Engine:
    """Return the engine with this name; by default, the first engine on the path.

    Raises:
        ImagesError: there is no such engine.
    """
    for name in (program,) if program else ENGINES:
        if shutil.which(name):
            return Engine(name)
    raise ImagesError(
        f"images: {program or ' and '.join(ENGINES)} not found; install docker or podman, or build on Debian as root "
        "with make images: docs/images.md"
    )


def load_into_kind(engine: Engine, *, cluster: str, values: Path) -> None:
    """Build the images, load them into each node of a kind cluster, and write `values` for helm.

    Raises:
        ImagesError: kind is missing, or a build or a load fails. `values` is written only after all loads have
            succeeded.
    """
    if cluster not in _run("kind", "get", "clusters").split():
        raise ImagesError(
            f"images: there is no kind cluster {cluster}; create it: kind create cluster --name {cluster}"
        )
    with tempfile.TemporaryDirectory() as scratch:
        for recipe in _in_charts():
            progress(recipe.name, f"building with {engine.program}")
            archive = Path(scratch) / f"{recipe.name}.tar"
            engine("save", "--output", str(archive), engine.build(recipe))
            progress(recipe.name, f"loading into the nodes of {cluster}")
            _run("kind", "load", "image-archive", str(archive), "--name", cluster)
            archive.unlink()
    _write(values, _HEAD_OF_KIND, kind_values())


def kind_values() -> dict[str, Any]:
    """Return the Helm values for images that are already on the nodes."""
    values: dict[str, Any] = {}
    for recipe in _in_charts():
        registry, _, repository_tag = recipe.reference.partition("/")
        repository, tag = repository_tag.split(":")
        section, _, key = recipe.values_key.partition(".")
        image = {"registry": registry, "repository": repository, "tag": tag}
        values.setdefault(section, {})[key] = image
        if recipe.name == _CPU_BUILD:
            values.setdefault("images", {})["triton"] = dict(image)
    return values


def push_with(engine: Engine, *, registry: str, values: Path, platforms: str = "") -> None:
    """Build the images and push them to `registry`, a host with an optional path; write `values` as `push_images` does.

    With `platforms`, such as `linux/amd64,linux/arm64`, docker's buildx builds the images for each platform. The CPU
    build of Triton is for tests, and is built only for the machine's own platform.

    Raises:
        ImagesError: a build or a push fails. `values` is written only after all pushes have succeeded.
    """
    image_values: dict[str, Any] = {}
    for recipe in _in_charts():
        name, tag = recipe.reference.removeprefix("localhost/").split(":")
        target = f"{registry.rstrip('/')}/{name}:{tag}"
        progress(recipe.name, f"building with {engine.program}, pushing to {target}")
        if platforms and recipe.name != _CPU_BUILD:
            digest = engine.push_for(recipe, target, platforms)
        else:
            digest = engine.push(engine.build(recipe), target)
        host, _, path = target.rpartition(":")[0].partition("/")
        section, _, key = recipe.values_key.partition(".")
        image_values.setdefault(section, {})[key] = {"registry": host, "repository": path, "digest": digest}
    _write(values, "# Written by `make push`; give it to helm with --values.\n", image_values)


def _build_arguments(recipe: Recipe) -> list[str]:
    """Return the last arguments of a build: settings for pip, the Dockerfile and the context."""
    settings = [f"--build-arg={name}" for name in _PIP_SETTINGS if name in os.environ]
    return [*settings, "--file", str(REPOSITORY / recipe.dockerfile), str(REPOSITORY / recipe.context)]


def _in_charts() -> list[Recipe]:
    return [recipe for recipe in RECIPES.values() if recipe.values_key]


def _write(values: Path, head: str, content: dict[str, Any]) -> None:
    values.parent.mkdir(parents=True, exist_ok=True)
    values.write_text(head + yaml.safe_dump(content))
    print(f"images: wrote {values}", flush=True)


def _run(*command: str) -> str:
    environment = {**os.environ, "DOCKER_BUILDKIT": "1"}
    try:
        completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ImagesError(
            f"images: {command[0]} not found; install it, or build on Debian as root: docs/images.md"
        ) from None
    if completed.returncode:
        tail = "\n".join((completed.stderr or completed.stdout).splitlines()[-15:])
        raise ImagesError(f"{command[0]} {command[1]}: failed with status {completed.returncode}:\n{tail}")
    return completed.stdout.strip()
