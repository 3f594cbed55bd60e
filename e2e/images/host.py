"""What the build asks of the machine: root, two Debian packages, room on disk; and where its results are kept."""

import os
import shutil
import subprocess
from pathlib import Path

PACKAGES = ("buildah", "mmdebstrap")
_ROOM_GIB = 4


class ImagesError(Exception):
    """An image can't be built or pushed; the message says which, why, and what to do."""


def images_directory() -> Path:
    """Where archives, buildah's storage and logs are kept: `images` in $HALCYON_CACHE (default ~/.cache/halcyon)."""
    cache = os.environ.get("HALCYON_CACHE")
    if not cache:
        cache = str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halcyon")
    directory = Path(cache).resolve() / "images"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def prepare(directory: Path) -> None:
    """Check the machine, and install what lacks where that is possible.

    Raises:
        ImagesError: not root, packages that can't be installed, or too little room for `directory`.
    """
    if os.geteuid() != 0:
        raise ImagesError(
            "images: building needs root (mmdebstrap and chroot); run it with sudo, or build with docker: docs/images.md"
        )
    missing = [package for package in PACKAGES if shutil.which(package) is None]
    if missing:
        _install(missing)
    free_gib = shutil.disk_usage(directory).free / 2**30
    if free_gib < _ROOM_GIB:
        raise ImagesError(
            f"images: {directory} has {free_gib:.1f} GiB free, and building needs {_ROOM_GIB} GiB; "
            "free some, or set HALCYON_CACHE to a place with room"
        )


def _install(missing: list[str]) -> None:
    command = f"apt-get install --no-install-recommends {' '.join(missing)}"
    if shutil.which("apt-get") is None:
        raise ImagesError(f"images: {' and '.join(missing)} not found, and there is no apt-get; on Debian: {command}")
    print(f"images: installing {' and '.join(missing)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *missing]):
        done = subprocess.run(
            ["apt-get", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise ImagesError(
                f"images: {command} failed ({' '.join(arguments[:1])}): {done.stderr.strip()[-500:]}; install it by hand"
            )
