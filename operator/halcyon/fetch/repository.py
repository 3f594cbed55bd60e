"""Triton's model repository: a folder per model, with the merged config.pbtxt and links to the model's files.

Files are linked instead of copied, so that a pod of a large model starts without delay. The links point to the mount
path of the source, which is the same in Triton's container. Triton follows links to version folders and to files
(checked with Triton 2.51).

The stub executable of a Python model is copied, for two reasons. ConfigMaps and buckets store no execute bit. And
Triton changes the mode of a stub that does not run on its own, for example because its libraries are in an environment
that is not active yet. In the source, which is mounted read-only, this change would fail. The copy belongs to Triton's
user, because all containers of the pod run as the same user. Source: triton-inference-server/python_backend,
src/stub_launcher.cc, Launch.

Files of labels, the library of the field `runtime`, and a library for custom batching are copied, too: a model doesn't
load if such a file is a link that leads out of the model's folder (checked with Triton 2.51 for `runtime`; labels from
Triton 26.02 on, custom batching from 26.06 on). Source: triton-inference-server/core, src/model.cc and
src/backend_model.cc, IsChildPathEscapingParentPath. Links that lead out of the source stay links, because they refer to
files of Triton's container, not of this one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from halcyon.fetch import mounted_source
from halcyon.fetch.errors import FetchError, SourceError
from halcyon.fetch.mounted_source import ModelFolder
from halcyon.model_config import config_pbtxt
from halcyon.model_config.config_pbtxt import FILE

STUB = "triton_python_backend_stub"
"""Name of the stub executable that a Python model may have in its top folder."""
_MAX_COPIED_BYTES = 256 * 1024 * 1024
"""Maximum size in bytes of a file that is copied to the node's disk."""
_BATCHING = "TRITON_BATCH_STRATEGY_PATH"
"""Parameter with the absolute path of a library for custom batching."""
_UNFINISHED = ".halcyon-unfinished"
_ADDED = ".halcyon-version"
"""Name of the empty file in a folder that this module created in a model's folder."""


def assemble(repository: Path, model_name: str, folder: ModelFolder, config: bytes | None) -> Path:
    """Create the folder `repository/model_name`, replace the results of an earlier attempt, and return its path.

    `config` is the content of its config.pbtxt; None if Triton generates the whole configuration.

    The folder appears in one step, so that Triton never loads an incomplete model if the fetcher is killed.

    Raises:
        FetchError: the folder would be outside the repository, source and repository overlap, or the repository contains files
            that this function does not create.
        SourceError: the model's stub, a file of labels or a library cannot be copied.
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
    if config is not None:
        (unfinished / FILE).write_bytes(config)
    if folder.added_version is not None:
        (unfinished / str(folder.added_version)).mkdir()
        (unfinished / str(folder.added_version) / _ADDED).touch()
    copied = _copied(config, folder, repository / model_name)
    for name in folder.names:
        if name == STUB and (folder.path / name).is_file():
            _copy(folder.path / name, unfinished / name)
            (unfinished / name).chmod(0o755)
        else:
            _bring(
                folder.path / name,
                unfinished / name,
                [path.relative_to(name) for path in copied if path.parts[:1] == (name,)],
            )
    target = repository_path / model_name
    _remove(target)
    return unfinished.rename(target)


def link_beside(repository: Path, folder: ModelFolder, name: str) -> None:
    """Link the file `name`, which is beside the model's folder in the source, to the same place in the repository.

    Triton ignores files in the top folder of its repository.

    Raises:
        SourceError: the repository has a model or another file of this name.
    """
    link = repository / name
    if link.is_symlink():
        link.unlink()
    if link.exists():
        raise SourceError(f"{name} in the model's source has the name of a model; rename the file")
    link.symlink_to(folder.path.parent / name)


def remove_others(repository: Path, names: Collection[str]) -> None:
    """Remove the models of an earlier attempt that are not among these names.

    Raises:
        FetchError: the repository contains a folder that this module did not create.
    """
    if not repository.is_dir():
        return
    for entry in repository.iterdir():
        if entry.name not in names and entry.is_dir() and not entry.name.startswith("."):
            _remove(entry)


def mark(repository: Path, name: str, *, is_set: bool, text: str = "") -> None:
    """Create the file `repository/name` with this text if `is_set` is true; otherwise remove the file."""
    repository.mkdir(parents=True, exist_ok=True)
    if is_set:
        (repository / name).write_text(text)
    else:
        (repository / name).unlink(missing_ok=True)


def _copied(config: bytes | None, folder: ModelFolder, target: Path) -> set[PurePosixPath]:
    """Return the paths in the model's folder of the files that Triton doesn't load from a link.

    `target` is the path of the folder in the repository.
    """
    parsed = config_pbtxt.parse_if_valid(config)
    libraries = [PurePosixPath(parsed.runtime)]
    if _BATCHING in parsed.parameters:
        path = PurePosixPath(parsed.parameters[_BATCHING].string_value)
        libraries += [path.relative_to(target)] if path.is_relative_to(target) else []
    copied = {PurePosixPath(output.label_filename.lstrip("/")) for output in parsed.output}
    for path in libraries:
        file = folder.path / path
        # Path.is_file would raise an error for a name of more than 255 bytes.
        if os.path.isfile(file) and file.stat().st_size <= _MAX_COPIED_BYTES:  # noqa: PTH113
            copied.add(path)
    return {path for path in copied if not mounted_source.leads_out(folder, folder.path / path)}


def _bring(source: Path, target: Path, copied: Collection[PurePosixPath]) -> None:
    """Link a file or folder, except that the files `copied` below `source`, or `source` itself, are copied."""
    if copied and source.is_file():
        _copy(source, target)
    elif copied and source.is_dir():
        target.mkdir()
        (target / _ADDED).touch()
        for entry in source.iterdir():
            below = [path.relative_to(entry.name) for path in copied if path.parts[:1] == (entry.name,)]
            _bring(entry, target / entry.name, below)
    else:
        target.symlink_to(source)


def _copy(file: Path, target: Path) -> None:
    try:
        size = file.stat().st_size
        if size > _MAX_COPIED_BYTES:
            raise SourceError(
                f"{file.name} in the model's source has {size} bytes; the limit is {_MAX_COPIED_BYTES}. Is it another file?"
            )
        shutil.copyfile(file, target)
    except PermissionError as error:
        raise SourceError(
            f"{file.name} in the model's source can't be read: {error.strerror}; Triton runs as user 1000, so give it for example the mode 0755"
        ) from error


def _remove(folder: Path) -> None:
    """Remove a folder that this module created, with its files and links.

    The targets of the links are not removed.
    """
    if not folder.is_symlink() and not folder.exists():
        return
    if folder.is_symlink() or not folder.is_dir():
        raise FetchError(f"{folder} already exists and was not created by halcyon fetch; remove it")
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            if (entry / _ADDED).is_file():
                _remove(entry)
                continue
            raise FetchError(f"{entry} already exists and was not created by halcyon fetch; remove it")
        entry.unlink()
    folder.rmdir()
