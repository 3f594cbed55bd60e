"""Files used in a measurement, with their digests.

If the measurement is repeated, the digests show which files have changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import Field

from halcyon_measure.results.figure import Part

MAX_BYTES = 256 << 20
"""Maximum total size of files that get a digest, in bytes. Above it, computing the digest would take more than a
second."""


class UsedFile(Part):
    """File or folder that was used for the load."""

    path: str = Field(description="Path as it was given.")
    sha256: str | None = Field(
        description="Digest of its bytes, or of the names and bytes of a folder's files; null above 256 MiB."
    )


def used(paths: Iterable[str]) -> tuple[UsedFile, ...]:
    """Return those of the files and folders that exist, without duplicates, with their digests."""
    return tuple(UsedFile(path=path, sha256=digest(Path(path))) for path in dict.fromkeys(paths) if Path(path).exists())


def digest(path: Path) -> str | None:
    """Return the digest of a file or folder; None if it is too large or can't be read."""
    try:
        files: Sequence[Path] = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        if sum(file.stat().st_size for file in files) > MAX_BYTES:
            return None
        hasher = hashlib.sha256()
        for file in files:
            if file != path:
                hasher.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
            with file.open("rb") as stream:
                while block := stream.read(1 << 20):
                    hasher.update(block)
        return hasher.hexdigest()
    except OSError:
        return None
