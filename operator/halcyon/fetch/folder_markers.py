"""Detection of folder markers among the objects in the listing of a bucket. Pure.

Buckets have no folders. Consoles and file managers create an empty object to mark a folder, with a key that ends in `/`
(AWS, MinIO, Cyberduck, s3fs, rclone) or in `_$folder$` (Hadoop). obstore removes the slash, so `m/1/` appears as `m/1`.
An empty object is therefore a marker if other objects are below it. Otherwise it may be a marker or an empty file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from halcyon.fetch.errors import SourceError

_HADOOP = "_$folder$"


@dataclass(frozen=True, slots=True)
class ListedObject:
    """Object in the listing of a bucket."""

    path: str
    """Path below the model's folder, without a trailing slash."""
    size: int
    etag: str | None


@dataclass(frozen=True)
class Contents:
    """Files and folders in a model's folder in a bucket."""

    files: tuple[ListedObject, ...]
    folders: frozenset[str]
    """Paths of folders with a marker in the bucket. Such a folder can be empty, for example the version folder of an
    ensemble."""
    unclear: tuple[ListedObject, ...]
    """Empty objects with no objects below their paths. Each is either an empty file or the marker of an empty
    folder."""


def contents(listed: Iterable[ListedObject], url: str) -> Contents:
    """Separate files from folders in the model's folder at `url`.

    Raises:
        SourceError: a file with content and a folder have the same name.
    """
    objects: dict[str, ListedObject] = {}
    folders: set[str] = set()
    below: dict[str, str] = {}
    for entry in listed:
        for above in _above(entry.path):
            below.setdefault(above, entry.path)
        if not entry.size and entry.path.endswith(_HADOOP):
            folders.add(entry.path.removesuffix(_HADOOP).rstrip("/"))
            continue
        other = objects.get(entry.path)
        if other and other.size and entry.size:
            raise _conflict(url, entry.path, f"{entry.path}/")
        # If two objects have the same listed path, the one with content is the file, and the empty one is ignored.
        if other is None or entry.size:
            objects[entry.path] = entry
    for path in objects.keys() & below.keys():
        if objects[path].size:
            raise _conflict(url, path, below[path])
        folders.add(path)
    empty = [entry for path, entry in objects.items() if not entry.size and path not in folders]
    files = tuple(entry for entry in objects.values() if entry.size)
    return Contents(files, frozenset(folders - {entry.path for entry in files} - {""}), tuple(empty))


def above(path: str) -> str:
    """Return the parent folder of a path; empty if the parent is the model's folder."""
    return path.rpartition("/")[0]


def _above(path: str) -> Iterator[str]:
    """Yield all parent folders of a path below the model's folder."""
    while path := above(path):
        yield path


def _conflict(url: str, path: str, other: str) -> SourceError:
    return SourceError(
        f"{url}/{path} and {url}/{other} conflict: a file and a folder can't have the same name. Remove or rename one of them, for example "
        f"{path} to {path}.old"
    )
