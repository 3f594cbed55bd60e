"""The model repository that Triton reads: one folder per model, with the merged configuration and links to the rest.

Links, not copies: a pod starts at once whatever the model's size. They lead to the source's mount path, which is the same
in the server's container. Triton follows links to version folders and to files (checked on 2.51).
"""

from __future__ import annotations

from pathlib import Path

from halcyon.fetch.config import FILE
from halcyon.fetch.errors import FetchError
from halcyon.fetch.source import ModelFolder

_UNFINISHED = ".halcyon-unfinished"


def assemble(repository: Path, model_name: str, folder: ModelFolder, config: bytes) -> Path:
    """Make `repository/model_name`, in the place of what an earlier attempt may have left there.

    The folder appears in one step: a fetcher that is killed half-way leaves nothing that Triton would take for a model of
    that name.

    Raises:
        FetchError: where the folder would lie outside the repository, source and repository overlap, or something that
            this function never makes is in the way.
    """
    if "/" in model_name or model_name.startswith(".") or not model_name:
        raise FetchError(f"model name {model_name!r} is no folder name; for example digits")
    repository.mkdir(parents=True, exist_ok=True)
    here, there = repository.resolve(), folder.path.resolve()
    if here.is_relative_to(there) or there.is_relative_to(here):
        raise FetchError(f"repository {repository} and source {folder.path} overlap; mount them apart")
    made = here / _UNFINISHED
    _remove(made)
    made.mkdir()
    (made / FILE).write_bytes(config)
    for name in folder.names:
        (made / name).symlink_to(folder.path / name)
    target = here / model_name
    _remove(target)
    return made.rename(target)


def mark(repository: Path, name: str, *, there: bool) -> None:
    """Make the empty file `repository/name`, or see to it that there is none."""
    repository.mkdir(parents=True, exist_ok=True)
    if there:
        (repository / name).touch()
    else:
        (repository / name).unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    """Remove a folder of ours: links and one file, no folder in it. Links are removed, never followed."""
    if not folder.is_symlink() and not folder.exists():
        return
    if folder.is_symlink() or not folder.is_dir():
        raise FetchError(f"{folder} is in the way: it is not a folder made by this program; remove it")
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            raise FetchError(f"{entry} is in the way: it was not made by this program; remove it")
        entry.unlink()
    folder.rmdir()
