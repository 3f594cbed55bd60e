"""What the build asks of the machine: root, two Debian packages, room on disk; and where its results are kept."""

import os
import shutil
from pathlib import Path

from images import apt

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
        print(f"images: installing {' and '.join(missing)}", flush=True)
        try:
            apt.install(missing)
        except apt.AptError as error:
            raise ImagesError(f"images: {error}") from None
    free_gib = shutil.disk_usage(directory).free / 2**30
    if free_gib < _ROOM_GIB:
        raise ImagesError(
            f"images: {directory} has {free_gib:.1f} GiB free, and building needs {_ROOM_GIB} GiB; "
            "free some, or set HALCYON_CACHE to a place with room"
        )
