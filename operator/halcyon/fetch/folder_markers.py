"""Files and folder markers in a bucket. Pure.

A bucket has no folders. Consoles and file managers create an empty object for one: its key ends in `/` (AWS, MinIO, Cyberduck, s3fs,
rclone) or in `_$folder$` (Hadoop). The library lists `m/1/` as `m/1`, so an empty object is a marker if others are below it,
and unclear otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from halcyon.fetch.errors import SourceError

_HADOOP = "_$folder$"


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object of a listing."""

    path: str
    """Path below the model's folder, without a slash at its end."""
    size: int
    etag: str | None


@dataclass(frozen=True)
class Contents:
    """Contents of a model's folder in a bucket."""

    files: tuple[ListedObject, ...]
    folders: frozenset[str]
    """Marked folders. Most have contents; for some models (an ensemble) an empty version folder is right."""
    unclear: tuple[ListedObject, ...]
    """Empty objects with nothing below them: each is an empty file or an empty folder."""


def contents(listed: Iterable[ListedObject], url: str) -> Contents:
    """Separate files from folders in the model's folder at `url`.

    Raises:
        SourceError: a file with content and a folder have the same name.
    """
    objects: dict[str, ListedObject] = {}
    folders: set[str] = set()
    below: dict[str, str] = {}
    for one in listed:
        for above in _above(one.path):
            below.setdefault(above, one.path)
        if not one.size and one.path.endswith(_HADOOP):
            folders.add(one.path.removesuffix(_HADOOP).rstrip("/"))
            continue
        other = objects.get(one.path)
        if other and other.size and one.size:
            raise _conflict(url, one.path, f"{one.path}/")
        # A marker has nothing to lose: of two with the same listed path, the one with bytes is a file.
        if other is None or one.size:
            objects[one.path] = one
    for path in objects.keys() & below.keys():
        if objects[path].size:
            raise _conflict(url, path, below[path])
        folders.add(path)
    empty = [one for path, one in objects.items() if not one.size and path not in folders]
    files = tuple(one for one in objects.values() if one.size)
    return Contents(files, frozenset(folders - {one.path for one in files} - {""}), tuple(empty))


def above(path: str) -> str:
    """Return the parent folder of a path; empty for the model's own."""
    return path.rpartition("/")[0]


def _above(path: str) -> Iterator[str]:
    """Yield all parent folders of a path, except the model's own."""
    while path := above(path):
        yield path


def _conflict(url: str, path: str, other: str) -> SourceError:
    return SourceError(
        f"{url}/{path} and {url}/{other} conflict: a file and a folder can't have the same name. Remove or rename one of them, for example "
        f"{path} to {path}.old"
    )
