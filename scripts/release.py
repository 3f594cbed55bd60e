"""Builds everything that a release consists of into build/release: `make release DRY=1`, or `scripts/release.py --values FILE`.

    wheels/          halcyon_core, halcyon_operator, halcyon_cli, halcyon_sidecars, halcyon_simulator
    charts/          halcyon and halcyon-crds as Helm packages; halcyon's values have the images by digest
    install.yaml     the chart's objects for a cluster without Helm
    cli/             the command line as one file for this platform, by pex, and as an archive for krew
    krew/            the plug-in's manifest, with the archive's checksum
    sbom/            bills of materials of the images
    SHA256SUMS       of all of these

Nothing is pushed. With `--dry-run` nothing needs to have been pushed: the digests are those of the archives in the image
cache, and a registry may give others, because a push compresses layers again. Out of scope: pushing, signatures and
provenance, which .github/workflows/release.yaml adds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from images.host import images_directory  # noqa: E402  # after the path
from images.recipes import RECIPES  # noqa: E402

OUT = ROOT / "build" / "release"
DISTRIBUTIONS = (".", "core", "cli", "sidecars", "simulator")
DRY_REGISTRY = "registry.example.com/halcyon"
PEX = "pex==2.105.2"
_UV = "uv-0.13.9"
_IMAGES = ("operator", "balancer", "bench")


class ReleaseError(Exception):
    """A part of the release that can't be built. The message has its name and the reason."""


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a program with these variables in addition, and return its output.

    Raises:
        ReleaseError: it failed; the message ends with its last lines.
    """
    variables = os.environ | environment
    completed = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False, env=variables
    )
    if completed.returncode:
        tail = "\n".join((completed.stderr or completed.stdout).splitlines()[-15:])
        raise ReleaseError(f"release: {Path(command[0]).name}: exit status {completed.returncode}\n{tail}")
    return completed.stdout


def version() -> str:
    """Return the version of the distributions."""
    match = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def wheels(folder: Path) -> list[Path]:
    """Build the wheel of each distribution. They require each other's version, not each other's folder."""
    for source in DISTRIBUTIONS:
        command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
        run(*command, cwd=ROOT / source, HALCYON_RELEASE="1")
    return sorted(folder.glob("*.whl"))


def archived_images() -> dict[str, dict[str, str]]:
    """Return the images of the cache's archives, as a values file has them.

    Raises:
        ReleaseError: an image has not been built.
    """
    images = {}
    host, _, path = DRY_REGISTRY.partition("/")
    for key in _IMAGES:
        recipe = RECIPES[key]
        archive = images_directory() / f"{recipe.name}.tar"
        if not archive.is_file():
            raise ReleaseError(f"release: {archive} is missing; build the images first: make images")
        with tarfile.open(archive) as tar:
            index = tar.extractfile("index.json")
            assert index is not None
            digest = json.load(index)["manifests"][0]["digest"]
        name = recipe.reference.removeprefix("localhost/").partition(":")[0]
        images[key] = {"registry": host, "repository": f"{path}/{name}", "digest": digest}
    return images


def pinned(values: str, images: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text of values.yaml with the images by digest; all comments stay.

    Raises:
        ReleaseError: the text has no such image.
    """
    lines, key = values.splitlines(keepends=True), ""
    missing = {(name, field) for name, image in images.items() for field in image}
    for number, line in enumerate(lines):
        if match := re.match(r"  (\w+):$", line):
            key = match[1]
        elif (match := re.match(r"    (\w+): ", line)) and (key, match[1]) in missing:
            missing.remove((key, match[1]))
            lines[number] = f"    {match[1]}: {images[key][match[1]]}\n"
    if missing:
        raise ReleaseError(
            f"release: values.yaml lacks {', '.join(f'images.{name}.{field}' for name, field in sorted(missing))}"
        )
    return "".join(lines)


def described(text: str, images: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text of Chart.yaml with the images by digest, in the annotation that Artifact Hub reads."""
    entries = [
        {"name": key, "image": "{registry}/{repository}@{digest}".format(**image)} for key, image in images.items()
    ]
    document = yaml.safe_load(text)
    document["annotations"]["artifacthub.io/images"] = yaml.safe_dump(entries)
    return yaml.safe_dump(document, sort_keys=False)


def chart(name: str, folder: Path, helm: Path, images: Mapping[str, Mapping[str, str]]) -> Path:
    """Package a chart of this version, and return the package."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / name
        shutil.copytree(ROOT / "charts" / name, copy)
        if name == "halcyon":
            values = copy / "values.yaml"
            values.write_text(pinned(values.read_text(), images))
            (copy / "Chart.yaml").write_text(described((copy / "Chart.yaml").read_text(), images))
        run(helm, "lint", "--strict", copy)
        run(helm, "package", copy, "--version", version(), "--app-version", version(), "--destination", folder)
    return folder / f"{name}-{version()}.tgz"


def manifest(package: Path, helm: Path) -> str:
    """Return the objects of the packaged chart for a cluster without Helm, with their namespace."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "halcyon-system"}}
    objects = run(helm, "template", "halcyon", package, "--namespace", "halcyon-system", "--no-hooks")
    return (
        f"# Halcyon {version()}. kubectl apply --server-side -f install.yaml\n"
        "# If another server provides external.metrics.k8s.io, delete the APIService: models then scale with the actuator Direct.\n"
        f"---\n{yaml.safe_dump(namespace)}{objects}"
    )


def single_file(folder: Path, wheel_paths: list[Path]) -> Path:
    """Build the command line as one file, from these wheels and from those that an index has for their dependencies."""
    uv = images_directory().parent / _UV / "bin" / "uv"
    requirements = [path for path in wheel_paths if path.name.startswith(("halcyon_core", "halcyon_cli"))]
    file = (
        folder
        / f"halcyon-{platform.system().lower()}-{platform.machine()}-py{sys.version_info.major}{sys.version_info.minor}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        run(uv, "venv", "--quiet", "--python", sys.executable, Path(scratch) / "venv")
        python = Path(scratch) / "venv" / "bin" / "python"
        run(uv, "pip", "install", "--quiet", "--python", python, *requirements)
        run(
            uv,
            "tool",
            "run",
            "--python",
            sys.executable,
            PEX,
            "--venv-repository",
            python,
            "halcyon-cli",
            "--venv",
            "-c",
            "halcyon",
            "-o",
            file,
        )
    return file


def krew(file: Path, folder: Path) -> Path:
    """Make an archive of the one file as krew installs it, and the plug-in's manifest for this platform."""
    archive = folder / f"kubectl-{file.name}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(file, "kubectl-halcyon")
        tar.add(ROOT / "LICENSE", "LICENSE")
    template = yaml.safe_load((ROOT / "manifests" / "krew" / "halcyon.yaml").read_text())
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    template["spec"] |= {
        "version": f"v{version()}",
        "homepage": "https://halcyon.dev",
        "platforms": [
            {
                "selector": {"matchLabels": {"os": platform.system().lower(), "arch": machine}},
                "uri": f"https://halcyon.dev/releases/v{version()}/{archive.name}",
                "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                "bin": "kubectl-halcyon",
                "files": [{"from": "*", "to": "."}],
            }
        ],
    }
    plugin_manifest = folder.parent / "krew" / "halcyon.yaml"
    plugin_manifest.parent.mkdir(exist_ok=True)
    plugin_manifest.write_text(yaml.safe_dump(template, sort_keys=False))
    return plugin_manifest


def checksums(folder: Path) -> str:
    """Return the checksums of all files in a folder, in the format of sha256sum."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n" for path in files)


def images_of(values: Path) -> dict[str, dict[str, str]]:
    """Return the operator's and the balancer's image from the file that a push has written.

    Raises:
        ReleaseError: the file is missing, or names an image without a digest.
    """
    if not values.is_file():
        raise ReleaseError(
            f"release: {values} is missing; push the images first: make images push REGISTRY=..., or use --dry-run"
        )
    images = {key: yaml.safe_load(values.read_text())["images"][key] for key in _IMAGES}
    for key, image in images.items():
        if not image.get("digest"):
            raise ReleaseError(f"release: images.{key} in {values} has no digest; make images push writes one")
    return images


def build(out: Path, images: Mapping[str, Mapping[str, str]], helm: Path, *, with_sbom: bool) -> None:
    """Build all parts into an empty folder.

    Raises:
        ReleaseError: a part can't be built.
    """
    shutil.rmtree(out, ignore_errors=True)
    for name in ("wheels", "charts", "cli"):
        (out / name).mkdir(parents=True)
    wheel_paths = wheels(out / "wheels")
    package = chart("halcyon", out / "charts", helm, images)
    chart("halcyon-crds", out / "charts", helm, {})
    (out / "install.yaml").write_text(manifest(package, helm))
    krew(single_file(out / "cli", wheel_paths), out / "cli")
    if with_sbom:
        run(sys.executable, "-m", "images", "sbom", "--to", out / "sbom")
    (out / "SHA256SUMS").write_text(checksums(out))


def _helm() -> Path:
    configured = os.environ.get("HALCYON_HELM") or shutil.which("helm")
    cached = sorted(images_directory().parent.glob("bin/*/helm"), key=lambda path: path.stat().st_mtime)
    if not (configured or cached):
        raise ReleaseError("release: helm not found; install it, or set HALCYON_HELM to its path")
    return Path(configured) if configured else cached[-1]


def main(arguments: list[str]) -> int:
    """Build the release, and print its files."""
    parser = argparse.ArgumentParser(prog="scripts/release.py", description=__doc__)
    parser.add_argument(
        "--dry-run", action="store_true", help="take the digests from the image cache: nothing is pushed"
    )
    parser.add_argument(
        "--values", type=Path, default=ROOT / "build" / "images-values.yaml", help="what a push has written"
    )
    parser.add_argument("--without-sbom", action="store_true", help="leave out the bills of materials, which need root")
    options = parser.parse_args(arguments)
    try:
        images = archived_images() if options.dry_run else images_of(options.values)
        build(OUT, images, _helm(), with_sbom=not options.without_sbom)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    print((OUT / "SHA256SUMS").read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
