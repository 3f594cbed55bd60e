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
    """Regular file in an image."""

    size: int
    """Size of the file in bytes."""
    sha256: str
    content: bytes | None = None
    """Content of the file; None unless it was requested."""


@dataclass
class Image:
    """Image with merged layers."""

    identity: str
    """Digest of the image's configuration, which docker calls the image ID. It doesn't depend on the compression."""
    created: str
    """Creation time in RFC 3339 format."""
    config: dict[str, Any]
    files: dict[str, File] = field(default_factory=dict)
    """Files by path without a leading slash. Directories, devices and symbolic links are not included."""


def read(archive: Path, keep_content: Callable[[str], bool]) -> Image:
    """Read an OCI archive with one manifest. `keep_content` selects the paths whose content is kept.

    Raises:
        KeyError, ValueError, tarfile.TarError: the file is not such an archive.
    """
    with tarfile.open(archive) as outer:

        def blob(digest: str) -> IO[bytes]:
            stream = outer.extractfile(f"blobs/{digest.replace(':', '/')}")
            if stream is None:
                raise ValueError(f"{archive}: {digest} is no file")
            return stream

        index = outer.extractfile("index.json")
        if index is None:
            raise ValueError(f"{archive}: index.json is no file")
        (manifest,) = json.load(index)["manifests"]
        description = json.load(blob(manifest["digest"]))
        config = json.load(blob(description["config"]["digest"]))
        image = Image(description["config"]["digest"], config["created"], config.get("config") or {})
        for layer in description["layers"]:
            with tarfile.open(fileobj=blob(layer["digest"])) as members:
                _apply_layer(image.files, members, keep_content)
    return image


def _apply_layer(files: dict[str, File], members: tarfile.TarFile, keep_content: Callable[[str], bool]) -> None:
    layer_files: dict[str, File] = {}
    hidden: list[str] = []
    for member in members:
        path = posixpath.normpath(member.name).lstrip("/")
        folder, name = posixpath.split(path)
        if name == _OPAQUE:
            hidden.append(f"{folder}/")
        elif name.startswith(_WHITEOUT):
            hidden.append(posixpath.join(folder, name.removeprefix(_WHITEOUT)))
        elif member.islnk():
            layer_files[path] = layer_files[posixpath.normpath(member.linkname).lstrip("/")]
        elif member.isreg():
            layer_files[path] = _file(members, member, keep=keep_content(path))
        elif not member.isdir():
            hidden.append(path)
    # The whiteouts of a layer remove files of lower layers, never of the layer itself.
    for path in [p for p in files if any(p == h or p.startswith(h if h.endswith("/") else f"{h}/") for h in hidden)]:
        del files[path]
    files |= layer_files


def _file(members: tarfile.TarFile, member: tarfile.TarInfo, *, keep: bool) -> File:
    stream = members.extractfile(member)
    if stream is None:
        raise ValueError(f"{member.name} has no content")
    digest, content = hashlib.sha256(), bytearray()
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
        if keep:
            content += chunk
    return File(member.size, digest.hexdigest(), bytes(content) if keep else None)
