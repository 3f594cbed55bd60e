"""Triton's model repository: one folder per model, with the merged configuration and links to the rest.

Links instead of copies let a pod start at once whatever the model's size. They point to the source's mount path, which is the
same in Triton's container. Triton follows links to version folders and to files (checked on 2.51).

One file is copied, a Python model's own stub. ConfigMaps and buckets store no execute bit. Triton also changes the mode of every stub
that doesn't run by itself (its libraries are in an environment that isn't active yet), whatever the mode is. That is impossible in the
source, which is mounted read-only.
The copy belongs to Triton's user, because all containers of the pod run as the same one.
Source: triton-inference-server/python_backend, src/stub_launcher.cc, Launch.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from halcyon.fetch.config_pbtxt import FILE
from halcyon.fetch.errors import FetchError, SourceError
from halcyon.fetch.mounted_source import ModelFolder

STUB = "triton_python_backend_stub"
"""Name of a model's own stub, at the top of its folder."""
_MAX_STUB_BYTES = 256 * 1024 * 1024
"""Maximum size that is copied to the node's disk."""
_UNFINISHED = ".halcyon-unfinished"


def assemble(repository: Path, model_name: str, folder: ModelFolder, config: bytes) -> Path:
    """Create `repository/model_name`, and replace the remains of an earlier attempt.

    The folder appears in one step: a fetcher that is killed half-way leaves nothing that Triton would take for a model of
    that name.

    Raises:
        FetchError: the folder would be outside the repository, source and repository overlap, or there is something that
            this function never creates.
        SourceError: the model's own stub can't be copied.
    """
    if "/" in model_name or model_name.startswith(".") or not model_name:
        raise FetchError(f"model name {model_name!r} is not a valid folder name; for example digits")
    repository.mkdir(parents=True, exist_ok=True)
    repository_path, source_path = repository.resolve(), folder.path.resolve()
    if repository_path.is_relative_to(source_path) or source_path.is_relative_to(repository_path):
        raise FetchError(f"repository {repository} and source {folder.path} overlap; mount them separately")
    unfinished = repository_path / _UNFINISHED
    _remove(unfinished)
    unfinished.mkdir()
    (unfinished / FILE).write_bytes(config)
    for name in folder.names:
        if name == STUB and (folder.path / name).is_file():
            _copy(folder.path / name, unfinished / name)
        else:
            (unfinished / name).symlink_to(folder.path / name)
    target = repository_path / model_name
    _remove(target)
    return unfinished.rename(target)


def mark(repository: Path, name: str, *, is_set: bool) -> None:
    """Create the empty file `repository/name`, or remove it."""
    repository.mkdir(parents=True, exist_ok=True)
    if is_set:
        (repository / name).touch()
    else:
        (repository / name).unlink(missing_ok=True)


def _copy(stub: Path, target: Path) -> None:
    try:
        size = stub.stat().st_size
        if size > _MAX_STUB_BYTES:
            raise SourceError(
                f"{STUB} in the model's source has {size} bytes; the limit is {_MAX_STUB_BYTES}. Is it another file?"
            )
        shutil.copyfile(stub, target)
    except PermissionError as error:
        raise SourceError(
            f"{STUB} in the model's source can't be read: {error.strerror}; Triton runs it as user 1000, so give it for example the mode 0755"
        ) from error
    target.chmod(0o755)


def _remove(folder: Path) -> None:
    """Remove a folder made by this module, with links and files but no folder in it. Links are removed, never followed."""
    if not folder.is_symlink() and not folder.exists():
        return
    if folder.is_symlink() or not folder.is_dir():
        raise FetchError(f"{folder} is in the way: it is not a folder made by this program; remove it")
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            raise FetchError(f"{entry} is in the way: it was not made by this program; remove it")
        entry.unlink()
    folder.rmdir()
