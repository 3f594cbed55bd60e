"""Contents of an OCI archive: the files of an image as a container sees them, and the image's configuration.

Specification: github.com/opencontainers/image-spec, layer.md (whiteouts) and config.md.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_CHUNK = 2**20


@dataclass(frozen=True)
class File:
    """A regular file."""

    size: int
    """Size in bytes."""
    sha256: str
    content: bytes | None = None
    """Content; None unless it was requested."""


@dataclass
class Image:
    """An image, with its layers merged."""

    identity: str
    """Digest of the image's configuration, which docker calls the image ID. It doesn't depend on the compression."""
    created: str
    """Creation time in RFC 3339 format."""
    config: dict[str, Any]
    files: dict[str, File] = field(default_factory=dict)
    """Path without leading slash -> file. Directories, devices and symbolic links are left out."""


def read(archive: Path, wanted: Callable[[str], bool]) -> Image:
    """Read an OCI archive with one manifest. Contents are kept for files whose path is `wanted`.

    Raises:
        KeyError, ValueError, tarfile.TarError: the file is not such an archive.
    """
    with tarfile.open(archive) as outer:

        def blob(digest: str) -> IO[bytes]:
            found = outer.extractfile(f"blobs/{digest.replace(':', '/')}")
            if found is None:
                raise ValueError(f"{archive}: {digest} is no file")
            return found

        index = outer.extractfile("index.json")
        if index is None:
            raise ValueError(f"{archive}: index.json is no file")
        (manifest,) = json.load(index)["manifests"]
        described = json.load(blob(manifest["digest"]))
        config = json.load(blob(described["config"]["digest"]))
        image = Image(described["config"]["digest"], config["created"], config.get("config") or {})
        for layer in described["layers"]:
            with tarfile.open(fileobj=blob(layer["digest"])) as members:
                _lay_over(image.files, members, wanted)
    return image


def _lay_over(files: dict[str, File], members: tarfile.TarFile, wanted: Callable[[str], bool]) -> None:
    mine: dict[str, File] = {}
    hidden: list[str] = []
    for member in members:
        path = posixpath.normpath(member.name).lstrip("/")
        folder, name = posixpath.split(path)
        if name == _OPAQUE:
            hidden.append(f"{folder}/")
        elif name.startswith(_WHITEOUT):
            hidden.append(posixpath.join(folder, name.removeprefix(_WHITEOUT)))
        elif member.islnk():
            mine[path] = mine[posixpath.normpath(member.linkname).lstrip("/")]
        elif member.isreg():
            mine[path] = _file(members, member, keep=wanted(path))
        elif not member.isdir():
            hidden.append(path)
    # The whiteouts of a layer remove files of lower layers, never of the layer itself.
    for path in [p for p in files if any(p == h or p.startswith(h if h.endswith("/") else f"{h}/") for h in hidden)]:
        del files[path]
    files |= mine


def _file(members: tarfile.TarFile, member: tarfile.TarInfo, *, keep: bool) -> File:
    stream = members.extractfile(member)
    if stream is None:
        raise ValueError(f"{member.name} has no content")
    digest, kept = hashlib.sha256(), bytearray()
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
        if keep:
            kept += chunk
    return File(member.size, digest.hexdigest(), bytes(kept) if keep else None)
