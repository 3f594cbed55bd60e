"""Writer of the files of commands. A file is complete, or has its previous content.

The content is written to a temporary file beside the file, which then replaces the file.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from pathlib import Path

PREFIX = ".halcyon-"
"""Prefix of the names of temporary files, which may remain if the process is killed."""
_NO_RENAME = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV})
"""Codes of errors of a folder that allows no new files, and of a file that can't be renamed, such as the mount of a
single file in a container."""


def write(path: Path, content: bytes) -> None:
    """Write a file, or replace its content.

    Links are followed. The permissions and the owner of an existing file are kept.

    Raises:
        OSError: the file can't be written, for example on a full disk. Its previous content is kept.
    """
    status = _status(path)
    if _is_stream(path, status):
        path.write_bytes(content)
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f"{PREFIX}{uuid.uuid4().hex}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if status is None else 0o600)
    except OSError as error:
        if status is None or error.errno not in _NO_RENAME:
            raise
        _overwrite(target, content)
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # some file systems report a full disk only now
        move(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def move(source: Path, path: Path) -> None:
    """Move a complete file on the same file system to `path`, with the permissions and the owner of a file that is there.

    Raises:
        OSError: it can't be moved. The previous content of the file is kept.
    """
    status, target = _status(path), Path(os.path.realpath(path))
    if status is not None:
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        if status.st_nlink > 1 or not _has_attributes(source, status):
            _overwrite(target, source.read_bytes())
            return
    try:
        source.replace(target)
    except OSError as error:
        if status is None or error.errno not in _NO_RENAME:
            raise
        _overwrite(target, source.read_bytes())


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _is_stream(path: Path, status: os.stat_result | None) -> bool:
    """Return whether a path is a device, a pipe, or a file that the process has open, such as /dev/stdout."""
    if status is not None and not stat.S_ISREG(status.st_mode):
        return True
    return str(path.absolute()).startswith(("/dev/std", "/dev/fd/", "/proc/"))


def _has_attributes(file: Path, status: os.stat_result) -> bool:
    """Give a file the permissions and the owner in `status`; return False if the user may not."""
    own = file.stat()
    try:
        if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
            os.chown(file, status.st_uid, status.st_gid)
        file.chmod(stat.S_IMODE(status.st_mode))
    except PermissionError:
        return False
    return True


def _overwrite(file: Path, content: bytes) -> None:
    """Replace the content of a file in place. The space is reserved first, so that a full disk doesn't cut the file."""
    with file.open("r+b") as stream:
        size = os.fstat(stream.fileno()).st_size
        try:
            if content and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(stream.fileno(), 0, len(content))
        except OSError:
            stream.truncate(size)
            raise
        stream.write(content)
        stream.truncate()
