"""Requirements of the image builds on the machine (root, two Debian packages, disk space), and the cache folder."""

import os
import shutil
from pathlib import Path

from images import apt

PACKAGES = ("buildah", "mmdebstrap")
_ROOM_GIB = 4


class ImagesError(Exception):
    """An image can't be built or pushed. The message gives its name, the reason and the next step."""


def images_directory() -> Path:
    """Return the folder for archives, storage and logs: `images` in $HALCYON_CACHE (default ~/.cache/halcyon)."""
    cache = os.environ.get("HALCYON_CACHE")
    if not cache:
        cache = str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halcyon")
    directory = Path(cache).resolve() / "images"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def prepare(directory: Path) -> None:
    """Check the machine, and install missing packages if possible.

    Raises:
        ImagesError: the user isn't root, packages can't be installed, or `directory` has too little free space.
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
