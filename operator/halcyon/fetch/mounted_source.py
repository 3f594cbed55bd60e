"""Mounted source of a model: its version folders, other files, and configuration.

In a mounted ConfigMap, the visible names are links through the hidden folder `..data`. A PersistentVolumeClaim may contain anything, so
links that lead out of the volume are rejected. Only the top level is scanned, because models can be large.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from halcyon.fetch.config_pbtxt import FILE, MAX_BYTES
from halcyon.fetch.errors import ModelConfigError, SourceError

_VERSION = re.compile(r"0|[1-9][0-9]{0,17}")
"""Names of version folders that Triton accepts. It ignores names with a leading zero."""
_IGNORED = frozenset({"lost+found"})
"""Names that file systems create in the root of a volume."""
_MAX_SHOWN = 8


@dataclass(frozen=True)
class ModelFolder:
    """Model's folder in its source."""

    path: Path
    """Absolute path of the folder below the mount. Links in it are not resolved, so it is valid in every container of the pod."""
    names: tuple[str, ...]
    """Names of the files and folders at the top level, without config.pbtxt, sorted."""
    versions: tuple[int, ...]
    """Numbers of the version folders, in ascending order."""
    config: bytes | None
    """Content of config.pbtxt; None if there is none."""


def read(mount: Path, inside: str | None = None) -> ModelFolder:
    """Read the model in the folder `inside` of the source that is mounted at `mount`.

    Raises:
        SourceError: the folder does not exist, has no version folder, or contains a link without a target or out of the source.
        ModelConfigError: config.pbtxt is not a file, or is too large.
    """
    folder = _locate(mount, inside)
    root = mount.resolve()
    names = sorted(entry.name for entry in _entries(folder, inside) if _belongs(entry.name))
    if not names:
        raise SourceError(
            f"the model's source is empty: there is nothing in {_folder_name(inside)}. {_expected_content()}"
        )
    for name in names:
        _check_inside(folder / name, root)
    versions = sorted(int(name) for name in names if _VERSION.fullmatch(name) and (folder / name).is_dir())
    if not versions:
        raise SourceError(
            f"no version folder in {_folder_name(inside)}, which has {_join_names(names)}. {_hint(folder, names)}"
        )
    config = content(folder / FILE, MAX_BYTES) if FILE in names else None
    return ModelFolder(folder, tuple(name for name in names if name != FILE), tuple(versions), config)


def content(path: Path, limit_bytes: int) -> bytes:
    """Return the content of a text file.

    Raises:
        ModelConfigError: the file cannot be read, is not a regular file, or is larger than the limit.
    """
    try:
        # Open it non-blocking, because opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ModelConfigError(f"{path.name} can't be read: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ModelConfigError(f"{path.name} is not a file; it must be a text file")
        if status.st_size > limit_bytes:
            raise ModelConfigError(
                f"{path.name} has {status.st_size} bytes; the limit is {limit_bytes}. Is it another file?"
            )
        return _at_most(descriptor, limit_bytes + 1)
    finally:
        os.close(descriptor)


def _locate(mount: Path, inside: str | None) -> Path:
    if not mount.is_dir():
        raise SourceError(f"the model's source is not mounted: {mount} is not a folder")
    mount = mount.absolute()
    if inside is None:
        return mount
    parts = inside.split("/")
    if inside.startswith("/") or "\0" in inside or any(part in {"", ".", ".."} for part in parts):
        raise SourceError(
            f"spec.model.source path is {inside!r}; it must be a relative path without empty, '.' or '..' segments, for "
            "example vision/resnet50"
        )
    folder = mount / inside
    if not os.path.lexists(folder):
        raise SourceError(f"folder {inside} doesn't exist in the model's source. {_existing_folder(mount, parts)}")
    _check_inside(folder, mount.resolve())
    if not folder.is_dir():
        raise SourceError(f"{inside} in the model's source is not a folder. {_expected_content()}")
    return folder


def _entries(folder: Path, inside: str | None) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise SourceError(f"{_folder_name(inside)} can't be read: {error.strerror}") from error


def _belongs(name: str) -> bool:
    return not name.startswith(".") and name not in _IGNORED


def _check_inside(path: Path, root: Path) -> None:
    """Raise an error if the path is a link that Triton cannot follow in its container."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # pathlib raises RuntimeError for a cycle of links
        reason = "is a link without a target" if isinstance(error, FileNotFoundError) else "is a cycle of links"
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            reason = f"can't be read: {error.strerror}"
        raise SourceError(
            f"{path.name} in the model's source {reason}; replace it with the file or folder itself"
        ) from error
    if not target.is_relative_to(root):
        raise SourceError(
            f"{path.name} in the model's source is a link that leads out of the volume; put the file or folder itself there"
        )


def _at_most(descriptor: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size > 0 and (piece := os.read(descriptor, size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _folder_name(inside: str | None) -> str:
    return f"folder {inside}" if inside else "its top folder"


def _expected_content() -> str:
    return "A model's folder contains version folders and may contain a config.pbtxt, for example 1/model.onnx"


def _join_names(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return ", ".join(names[:_MAX_SHOWN]) + more


def _hint(folder: Path, names: list[str]) -> str:
    for name in names[:100]:
        child = folder / name
        if child.is_dir() and any(_VERSION.fullmatch(entry.name) for entry in _entries(child, name)):
            return f"Folder {name} has one: set it as the path of the source"
    padded = next((name for name in names if name.isdecimal() and name != FILE), None)
    if padded is not None:
        return f"Triton ignores the version {padded}; name it {int(padded)} and make it a folder"
    return _expected_content()


def _existing_folder(mount: Path, parts: list[str]) -> str:
    """Return a sentence that names the deepest existing folder of the path, and its contents."""
    reached = mount
    for depth, part in enumerate(parts):
        if not (reached / part).is_dir():
            names = sorted(entry.name for entry in _entries(reached, None) if _belongs(entry.name))
            existing = f"folder {'/'.join(parts[:depth])}" if depth else "the volume"
            return f"{existing} has {_join_names(names)}" if names else f"{existing} is empty"
        reached /= part
    return _expected_content()
