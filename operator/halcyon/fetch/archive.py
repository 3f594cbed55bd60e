"""Extraction of a model's tar archive while it is downloaded.

Only files, folders, and links between them are extracted, only into the target folder, and only up to the size limit.
Links are created after all files, so that no file is written through a link. A link that leads out of the folder is
rejected.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import io
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from halcyon.fetch.errors import SourceError
from halcyon.fetch.registry.files import MAX_FILES

EXECUTABLE, PLAIN = 0o755, 0o644
"""Modes of extracted files. Only the execute bit is taken from the archive, so that Triton can read all files."""
_COPY_BYTES = 1024 * 1024


def unpack(stream: io.RawIOBase | io.BytesIO, folder: Path, *, limit_bytes: int) -> int:
    """Extract a tar archive into `folder`, and return the number of bytes written. The compression is detected.

    Raises:
        SourceError: the stream is not a tar archive, is damaged, contains a link, a device or a path outside the folder, or exceeds a limit.
    """
    written = 0
    links: dict[Path, tarfile.TarInfo] = {}
    try:
        content_stream = _decompressed(stream)
        with tarfile.open(fileobj=content_stream, mode="r|", bufsize=_COPY_BYTES) as archive:
            for number, member in enumerate(archive, start=1):
                if number > MAX_FILES:
                    raise SourceError(f"the archive has more than {MAX_FILES} entries; is it the archive of a model?")
                if member.name.rpartition("/")[2].startswith("._"):
                    continue  # attributes of macOS, which are not part of the file of this name
                if member.isdir():
                    _folder(folder, member.name)
                    continue
                if member.issym() or member.islnk():
                    links[folder / inside(member.name)] = member
                    continue
                if not member.isreg():
                    raise SourceError(
                        f"{member.name} in the archive is a device or a pipe, and the archive of a model may contain only files, folders "
                        "and links"
                    )
                written += member.size
                check_size(written, limit_bytes)
                target = folder / inside(member.name)
                content = archive.extractfile(member)
                assert content is not None  # noqa: S101  # it is a regular file
                with placement_errors(member.name):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("wb") as file:
                        shutil.copyfileobj(content, file, _COPY_BYTES)
                        os.fchmod(file.fileno(), EXECUTABLE if member.mode & 0o111 else PLAIN)
            _link(folder, links)
        padding = 0
        while chunk := content_stream.read(_COPY_BYTES):  # the checksum is compared at the end of the stream
            padding += len(chunk)
            check_size(written + padding, limit_bytes)
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise SourceError(
            f"the download is not a complete tar archive: {error}; pack it with tar -czf model.tar.gz"
        ) from error
    return written


def _decompressed(stream: io.RawIOBase | io.BytesIO) -> IO[bytes]:
    """Return the content of a stream, decompressed if it is compressed.

    Some tools (pbzip2, bgzip, tools for images) write several compressed streams in a row. tarfile's own decompression
    ends after the first, and verifies no checksum.
    """
    source = io.BufferedReader(stream, _COPY_BYTES)
    begin = source.peek(6)
    if begin.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=source))
    if begin.startswith(b"BZh"):
        return cast("IO[bytes]", bz2.BZ2File(source))
    if begin.startswith((b"\xfd7zXZ", b"\x5d\x00\x00\x80")):
        return cast("IO[bytes]", lzma.LZMAFile(source))
    return cast("IO[bytes]", source)


def _link(folder: Path, links: dict[Path, tarfile.TarInfo]) -> None:
    """Create the links of an archive.

    A hard link becomes a symbolic link, so that links to links can be created in any order.

    Raises:
        SourceError: a link leads out of the folder, or to nothing.
    """
    root = folder.resolve()
    for path, member in links.items():
        with placement_errors(member.name):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.parent.resolve().is_relative_to(root):
                raise _bad_link(member)
            target = Path(member.linkname) if member.issym() else root / inside(member.linkname)
            path.unlink(missing_ok=True)
            path.symlink_to(target if member.issym() else os.path.relpath(target, path.parent.resolve()))
    for path, member in links.items():
        try:
            target = path.resolve(strict=True)
        except (OSError, RuntimeError):  # pathlib raises RuntimeError for a cycle of links
            raise _bad_link(member) from None
        if not target.is_relative_to(root) or Path(member.linkname).is_absolute():
            raise _bad_link(member)


def _bad_link(member: tarfile.TarInfo) -> SourceError:
    return SourceError(
        f"{member.name} in the archive is a link to {member.linkname}, which isn't in the archive; pack it with "
        "tar --dereference --hard-dereference"
    )


def _folder(folder: Path, name: str) -> None:
    """Create a folder of the archive, even if it is empty, as the version folder of an ensemble may be."""
    if name.strip("./"):
        with placement_errors(name):
            (folder / inside(name)).mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def placement_errors(name: str) -> Iterator[None]:
    """Return a context manager that converts file system errors for the entry `name` into a SourceError with this name.

    Raises:
        SourceError: a file and a folder have the same name, or the name is too long.
    """
    try:
        yield
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise SourceError(
            f"{name} in the model's source can't be written: a file and a folder have the same name ({error.strerror}); rename or remove one of them"
        ) from error
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise SourceError(
            f"{name[:80]}... in the model's source can't be written: a name may have at most 255 bytes"
        ) from error


def inside(name: str) -> Path:
    """Return a name from the source as a relative path.

    Raises:
        SourceError: the path would be outside the model's folder.
    """
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if name.startswith("/") or not parts or ".." in parts or "\0" in name:
        raise SourceError(
            f"the name {name!r} leads out of the model's folder; a good name is, for example, 1/model.onnx"
        )
    return Path(*parts)


def check_size(size_bytes: int, limit_bytes: int) -> None:
    """Raise a SourceError with both sizes if the size is above the limit."""
    if size_bytes > limit_bytes:
        raise SourceError(
            f"the model has {size_bytes / 2**30:.1f} GiB or more, and spec.model.source.sizeLimit is {limit_bytes / 2**30:.1f} GiB; "
            "raise it, for example sizeLimit: 100Gi, or use a folder with fewer versions"
        )


class TargetFolder:
    """Folder into which a model's files are downloaded one by one."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        """Use an existing folder, for a model of at most `limit_bytes`."""
        self._folder, self._limit_bytes = folder, limit_bytes

    def check_size(self, size_bytes: int) -> None:
        """Raise a SourceError if the model is larger than the limit."""
        check_size(size_bytes, self._limit_bytes)

    def create_file(self, name: str) -> Path:
        """Create an empty file and its parent folders, and return its path.

        Raises:
            SourceError: the name leads out of the folder, is too long, or is that of a folder.
        """
        path = self._folder / inside(name)
        with placement_errors(name):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return path
