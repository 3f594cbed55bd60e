"""Which objects of a bucket are files, and which only mark a folder. Pure.

A bucket has no folders. Consoles and file managers make an object of no bytes for one: its key ends in `/` (AWS, MinIO, Cyberduck, s3fs, rclone)
or in `_$folder$` (Hadoop). The library lists `m/1/` as `m/1`, so an object of no bytes is a marker if others lie below it, and unclear otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from halcyon.fetch.errors import SourceError

_HADOOP = "_$folder$"


@dataclass(frozen=True, slots=True)
class Listed:
    """An object of a listing."""

    path: str
    """Below the model's folder, without a slash at its end."""
    size: int
    etag: str | None


@dataclass(frozen=True)
class Contents:
    """What a model's folder in a bucket holds."""

    files: tuple[Listed, ...]
    folders: frozenset[str]
    """Marked ones. Most have something in them; a version folder that is empty is right for some models (an ensemble)."""
    unclear: tuple[Listed, ...]
    """Of no bytes, with nothing below them: each an empty file or an empty folder."""


def contents(listed: Iterable[Listed], url: str) -> Contents:
    """Tell the files from the folders of the model's folder at `url`.

    Raises:
        SourceError: a file with content and a folder have the same name.
    """
    found: dict[str, Listed] = {}
    folders: set[str] = set()
    below: dict[str, str] = {}
    for one in listed:
        for above in _above(one.path):
            below.setdefault(above, one.path)
        if not one.size and one.path.endswith(_HADOOP):
            folders.add(one.path.removesuffix(_HADOOP).rstrip("/"))
            continue
        other = found.get(one.path)
        if other and other.size and one.size:
            raise _conflict(url, one.path, f"{one.path}/")
        # A marker has nothing to lose: of two that are listed alike, the one with bytes is a file.
        if other is None or one.size:
            found[one.path] = one
    for path in found.keys() & below.keys():
        if found[path].size:
            raise _conflict(url, path, below[path])
        folders.add(path)
    empty = [one for path, one in found.items() if not one.size and path not in folders]
    files = tuple(one for one in found.values() if one.size)
    return Contents(files, frozenset(folders - {one.path for one in files} - {""}), tuple(empty))


def above(path: str) -> str:
    """Return the folder that a path lies in; empty for the model's own."""
    return path.rpartition("/")[0]


def _above(path: str) -> Iterator[str]:
    """Yield every folder that a path lies in, but the model's own."""
    while path := above(path):
        yield path


def _conflict(url: str, path: str, other: str) -> SourceError:
    return SourceError(
        f"{url}/{path} and {url}/{other} exclude each other: a file and a folder can't have one name. Remove or rename one of them, for example "
        f"{path} to {path}.old"
    )
