"""An archive of a model, unpacked as it arrives: files and folders, nothing that leads elsewhere, and no more than the limit."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from halcyon.fetch.errors import SourceError

MAX_FILES = 100_000
EXECUTABLE, PLAIN = 0o755, 0o644
"""Modes of files. Of a source's own mode nothing but the execute bit is kept: no set-user-ID, and Triton can read everything."""
_COPY_BYTES = 1024 * 1024


def unpack(stream: IO[bytes], folder: Path, *, limit_bytes: int) -> int:
    """Write a tar archive's files below `folder`; the compression is told by its first bytes. Gives the bytes written.

    Raises:
        SourceError: it is no archive, holds a link or a device, leads out of the folder, or is larger than the limit.
    """
    written = 0
    try:
        with tarfile.open(fileobj=stream, mode="r|*", bufsize=_COPY_BYTES) as archive:
            for number, member in enumerate(archive, start=1):
                if number > MAX_FILES:
                    raise SourceError(f"the archive has more than {MAX_FILES} entries; is it a model's?")
                if member.isdir():
                    _folder(folder, member.name)
                    continue
                if not member.isreg():
                    raise SourceError(
                        f"{member.name} in the archive is a link or a device, and an archive of a model holds files and folders only; "
                        "pack it with tar --dereference --hard-dereference"
                    )
                written += member.size
                refuse_larger(written, limit_bytes)
                target = folder / inside(member.name)
                content = archive.extractfile(member)
                assert content is not None  # noqa: S101  # it is a regular file
                with placing(member.name):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("wb") as file:
                        shutil.copyfileobj(content, file, _COPY_BYTES)
                        os.fchmod(file.fileno(), EXECUTABLE if member.mode & 0o111 else PLAIN)
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise SourceError(f"what came is no whole tar archive: {error}; pack it with tar -czf model.tar.gz") from error
    return written


def _folder(folder: Path, name: str) -> None:
    """Make a folder of the archive: one with nothing in it may be a version folder, as an ensemble's is."""
    if name.strip("./"):
        with placing(name):
            (folder / inside(name)).mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def placing(name: str) -> Iterator[None]:
    """Turn what the file system says against a name into an error of the source's, which names it.

    Raises:
        SourceError: another entry makes a file of what this one needs as a folder, or the other way round; or the name is too long.
    """
    try:
        yield
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise SourceError(
            f"{name} in the model's source can't be written: a file and a folder have one name ({error.strerror}); rename or remove one of them"
        ) from error
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise SourceError(
            f"{name[:80]}... in the model's source can't be written: a name may have 255 bytes"
        ) from error


def inside(name: str) -> Path:
    """A name from elsewhere as a path below a folder.

    Raises:
        SourceError: it would lead out of the folder.
    """
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if name.startswith("/") or not parts or ".." in parts or "\0" in name:
        raise SourceError(f"the name {name!r} leads out of the model's folder; names are like 1/model.onnx")
    return Path(*parts)


def refuse_larger(size_bytes: int, limit_bytes: int) -> None:
    """Return if the size is within the limit; else raise a SourceError that names both."""
    if size_bytes > limit_bytes:
        raise SourceError(
            f"the model has {size_bytes / 2**30:.1f} GiB or more, and spec.model.source.uri.sizeLimit is {limit_bytes / 2**30:.1f} GiB; "
            "raise it, for example sizeLimit: 100Gi, or take a folder with fewer versions"
        )
