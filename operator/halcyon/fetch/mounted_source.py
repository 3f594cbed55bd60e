"""Mounted source of a model: its version folders, other files, and configuration.

In a mounted ConfigMap, the visible names are links through the hidden folder `..data`. A PersistentVolumeClaim may
contain anything, so links that lead out of the volume are rejected. Below the top level, at most `MAX_EXAMINED` files
are examined, because models can be large.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from halcyon.api.thread_parameters import MODEL_FILES
from halcyon.fetch.errors import SourceError
from halcyon.model_config import ensemble
from halcyon.model_config.config_pbtxt import FILE, MAX_BYTES, as_triton_reads
from halcyon.model_config.errors import ModelConfigError

_VERSION = re.compile(r"0|[1-9][0-9]{0,17}")
"""Names of version folders that Triton accepts. It ignores names with a leading zero."""
_NUMBER = re.compile(r"0$|[+-]?[1-9][0-9]*")
"""Number at the beginning of a folder's name. Triton mistakes `2_old` for version 2, and then loads from a folder
`2`."""
_IGNORED = frozenset({"lost+found"})
"""Names that file systems create in the root of a volume."""
_MAX_SHOWN = 8
MAX_EXAMINED = 5000
"""Maximum number of files and folders that are examined, which takes less than a second on most network file systems."""
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""Beginning of a pointer file, which git checks out in place of a file in Git LFS."""
_MAX_POINTER_BYTES = 1024


@dataclass(frozen=True)
class ModelFolder:
    """Folder of a model in its mounted source, with a list of its contents."""

    path: Path
    """Absolute path of the folder below the mount. Links in it are not resolved, so it is valid in all containers of
    the pod."""
    names: tuple[str, ...]
    """Sorted names of the files and folders at the top level, except config.pbtxt."""
    versions: tuple[int, ...]
    """Version numbers that have a folder, in ascending order."""
    config: bytes | None
    """Content of config.pbtxt; None if there is none."""
    left_out: tuple[str, ...] = ()
    """Names of the folders that are left out: version folders without files, and folders such as `2_old` that Triton
    would mistake for versions."""
    added_version: int | None = None
    """Number of the empty version folder to add for an ensemble without version folders; None for any other model.
    `versions` includes it."""
    mount: Path = Path("/")
    """Path at which the source is mounted, without links. It contains `path`."""


def read(mount: Path, inside: str | None = None) -> ModelFolder:
    """Read the model in the folder `inside` of the source that is mounted at `mount`.

    If this folder has no version folder, but a single folder in it has one, the inner folder is used. `tar` and `git
    clone` create such inner folders.

    Raises:
        SourceError: the folder does not exist, has no version folder, or contains a file or link that can't be used.
        ModelConfigError: config.pbtxt is not a file, or is too large.
    """
    folder, root = locate(mount, inside), mount.resolve()
    names = _checked_names(folder, inside, root)
    config = as_triton_reads(content(folder / FILE, MAX_BYTES)) if FILE in names else None
    versions = tuple(sorted(int(name) for name in names if is_version(name) and (folder / name).is_dir()))
    if versions:
        return _versioned_model(folder, names, versions, config, root)
    if config is not None and ensemble.describes_ensemble(config):
        # ConfigMaps, buckets and git have no empty folders, and Triton loads no model without a version folder.
        return ModelFolder(folder, tuple(n for n in names if n != FILE), (1,), config, added_version=1, mount=root)
    inner = _inner_model(folder, inside, names)
    return read(mount, f"{inside}/{inner}" if inside else inner)


def _checked_names(folder: Path, inside: str | None, root: Path) -> list[str]:
    """Return the names in a folder, and check that there are any and that none leads out of the volume.

    Raises:
        SourceError: there are no names, or one is a link that Triton can't follow.
    """
    names = visible_names(folder, inside)
    if not names:
        raise SourceError(
            f"the model's source is empty: there is nothing in {folder_name(inside)}. {_expected_content()}"
        )
    for name in names:
        check_inside(folder / name, root)
    return names


def _inner_model(folder: Path, inside: str | None, names: list[str]) -> str:
    """Return the name of the only model in a folder that has no version folder itself.

    Raises:
        SourceError: there is none, there are several, or a config.pbtxt shows that the folder is the model's own.
    """
    models = [] if FILE in names else [name for name in names[:MAX_EXAMINED] if is_model(folder / name)]
    if len(models) == 1:
        return models[0]
    raise SourceError(
        f"no version folder in {folder_name(inside)}, which has {join_names(names)}. {_hint(folder, names, models)}"
    )


def _versioned_model(
    folder: Path, names: list[str], versions: tuple[int, ...], config: bytes | None, root: Path
) -> ModelFolder:
    """Return the model in a folder with version folders, after a check of their files.

    Raises:
        SourceError: a version folder contains a file or link that can't be used.
    """
    # An ensemble needs no files, so empty version folders count if all are empty.
    used = tuple(version for version in versions if not _is_empty(folder / str(version))) or versions
    left_out = tuple(name for name in names if _is_mistaken(name, used) and (folder / name).is_dir())
    _examine(folder, map(str, used), root)
    others = tuple(name for name in names if name != FILE and name not in left_out)
    return ModelFolder(folder, others, used, config, left_out, mount=root)


def _is_empty(folder: Path) -> bool:
    return not any(_belongs(entry.name) for entry in _entries(folder, None))


def _is_mistaken(name: str, used: tuple[int, ...]) -> bool:
    """Return whether Triton would take a folder of this name for a version that isn't used."""
    number = _NUMBER.match(name)
    return number is not None and int(number[0]) not in used


def backend_of_file(folder: ModelFolder) -> str:
    """Return the backend that Triton selects by the name of the model's file; empty if there is no known file."""
    places = [folder.path / str(version) for version in folder.versions]
    backends = (backend for name, backend in MODEL_FILES.items() if any((place / name).exists() for place in places))
    return next(backends, "")


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
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(limit_bytes + 1)
    finally:
        os.close(descriptor)


def locate(mount: Path, inside: str | None) -> Path:
    """Return the path of a folder in the source that is mounted at `mount`.

    Raises:
        SourceError: the source isn't mounted or has no such folder, or the folder is outside of it.
    """
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
    check_inside(folder, mount.resolve())
    if not folder.is_dir():
        raise SourceError(f"{inside} in the model's source is not a folder. {_expected_content()}")
    return folder


def _entries(folder: Path, inside: str | None) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise SourceError(f"{folder_name(inside)} can't be read: {error.strerror}") from error


def _belongs(name: str) -> bool:
    return not name.startswith(".") and name not in _IGNORED and not name.endswith("_$folder$")


def visible_names(folder: Path, inside: str | None) -> list[str]:
    """Return the sorted names in a folder, without hidden ones and those that file systems create.

    `inside` is the folder's path in the source, for messages; None for the source's top folder.
    """
    return sorted(entry.name for entry in _entries(folder, inside) if _belongs(entry.name))


def is_model(folder: Path) -> bool:
    """Return whether a folder holds a model: it has a version folder, or the config.pbtxt of an ensemble."""
    if _has_version(folder):
        return True
    try:
        return (folder / FILE).is_file() and ensemble.describes_ensemble(
            as_triton_reads(content(folder / FILE, MAX_BYTES))
        )
    except ModelConfigError:
        return False


def is_version(name: str) -> bool:
    """Return whether Triton accepts a folder of this name as a version."""
    return _VERSION.fullmatch(name) is not None


def _has_version(folder: Path) -> bool:
    return folder.is_dir() and any(is_version(entry.name) and entry.is_dir() for entry in _entries(folder, None))


def _examine(folder: Path, names: Iterable[str], root: Path) -> None:
    """Check the first `MAX_EXAMINED` files in the given version folders.

    Raise an error if one of them can't be read, is a link without a target, or is a Git LFS pointer. Files outside
    version folders are not checked, because the model may not need them.
    """
    left = [folder / name for name in reversed(tuple(names))]
    for _ in range(MAX_EXAMINED):
        if not left:
            return
        path = left.pop()
        shown = path.relative_to(folder)
        if path.is_symlink() and not path.exists():
            target = path.readlink()
            if target.is_absolute():
                continue  # it may lead to a file of Triton's image
            raise SourceError(
                f"{shown} in the model's source is a link without a target: {target} isn't in {root}. If the model is in a cache of "
                "Hugging Face, copy it with the cache's folder blobs, or as files: cp --recursive --dereference"
            )
        if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0), effective_ids=True):
            raise SourceError(
                f"{shown} in the model's source can't be read by user {os.geteuid()}, as which the pod runs; make it readable, for "
                "example chmod --recursive a+rX"
            )
        if path.is_dir():
            if not path.is_symlink() or path.parent == folder:
                left += sorted((path / entry.name for entry in _entries(path, None)), reverse=True)
        elif path.is_file() and path.stat().st_size <= _MAX_POINTER_BYTES:
            _check_pointer(path, shown)


def _check_pointer(path: Path, shown: Path) -> None:
    text = path.read_bytes()
    if text.startswith(_LFS_POINTER):
        size = re.search(rb"^size (\d+)$", text, re.MULTILINE)
        raise SourceError(
            f"{shown} in the model's source is a pointer of Git LFS and not the file itself"
            f"{f', which has {int(size[1])} bytes' if size else ''}; run git lfs pull in the clone, and copy the model again"
        )


def check_inside(path: Path, root: Path) -> None:
    """Raise an error if the path is a link that Triton cannot follow in its container.

    `root` is the resolved mount path.
    """
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        # For a cycle of links, pathlib raises RuntimeError up to Python 3.12, and ELOOP from 3.13 on.
        reason = "is a link without a target" if isinstance(error, FileNotFoundError) else "is a cycle of links"
        if isinstance(error, OSError) and error.errno not in {errno.ENOENT, errno.ELOOP}:
            reason = f"can't be read: {error.strerror}"
        raise SourceError(
            f"{path.name} in the model's source {reason}; replace it with the file or folder itself"
        ) from error
    if not target.is_relative_to(root):
        raise SourceError(
            f"{path.name} in the model's source is a link that leads out of the volume; put the file or folder itself there"
        )


def leads_out(folder: ModelFolder, path: Path) -> bool:
    """Return whether the path is, or lies behind, a link that leads out of the source, for example to a file of Triton's image."""
    return "\0" in str(path) or not Path(os.path.realpath(path)).is_relative_to(folder.mount)


def folder_name(inside: str | None) -> str:
    """Return the name of a folder in the source, for messages."""
    return f"folder {inside}" if inside else "its top folder"


def _expected_content() -> str:
    return "A model's folder contains version folders and may contain a config.pbtxt, for example 1/model.onnx"


def join_names(names: list[str]) -> str:
    """Return the first names of a list and the number of remaining names, for messages."""
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return ", ".join(names[:_MAX_SHOWN]) + more


def _hint(folder: Path, names: list[str], below: list[str]) -> str:
    if below:
        return (
            f"Folders {join_names(below)} have one: set one of them as the path of the source, or append it to the URI of "
            "a bucket. To load all of them, set spec.model.name to the one that clients use, for example "
            f"spec.model.name: {below[0]}"
        )
    if FILE in names and (candidates := [name for name in names[:100] if _has_version(folder / name)]):
        return f"Folder {candidates[0]} has one: set it as the path of the source"
    padded = next((name for name in names if name.isdecimal() and name != FILE), None)
    if padded is not None:
        return f"Triton ignores the version {padded}; name it {int(padded)} and make it a folder"
    return _expected_content()


def _existing_folder(mount: Path, parts: list[str]) -> str:
    """Return a sentence that names the deepest existing folder of the path, and its contents."""
    reached = mount
    for depth, part in enumerate(parts):
        if not (reached / part).is_dir():
            names = visible_names(reached, None)
            existing = f"folder {'/'.join(parts[:depth])}" if depth else "the volume"
            return f"{existing} has {join_names(names)}" if names else f"{existing} is empty"
        reached /= part
    return _expected_content()
