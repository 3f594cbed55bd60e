"""Storage of results, in which files are written atomically.

If a process is killed during a write, a hidden file may remain, but no partial result.
"""

from __future__ import annotations

import errno
import os
import time
import uuid
from pathlib import Path
from typing import Protocol

from halcyon_batch.errors import BatchError

_STALE_S = 3600.0
_PREFIX = ".halcyon-"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_CLOSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}


class Storage(Protocol):
    """Interface of a folder with named files, on a volume or in a bucket."""

    def names(self) -> set[str]:
        """Return the names of all files that are completely written."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if the file doesn't exist."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless it exists, and return whether it was written."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file, and replace an existing one."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""


class FolderStorage:
    """Storage of results in a folder of a file system.

    A file is written under a hidden name, flushed to the disk, and then renamed.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            # Files of a runner that was killed. A younger file may belong to a runner that is being replaced.
            for leftover in self._path.glob(f"{_PREFIX}*"):
                if time.time() - leftover.stat().st_mtime > _STALE_S:
                    leftover.unlink(missing_ok=True)
        except FileExistsError:
            raise BatchError("OutputUnwritable", f"spec.output: {path} is a file; it must be a folder") from None
        except OSError as error:
            raise _write_error(path, error) from None

    def names(self) -> set[str]:
        """Return the names of all files that are completely written."""
        try:
            return {file.name for file in self._path.iterdir() if not file.name.startswith(_PREFIX)}
        except OSError as error:
            raise _write_error(str(self._path), error) from None

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if the file doesn't exist."""
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None
        except (IsADirectoryError, PermissionError) as error:
            raise BatchError(
                "OutputUnreadable",
                f"spec.output: {self._path / name} can't be read: {error.strerror}; it must be a file that user 65532 may read. Correct "
                "it and resume, or name a new folder in a new BatchInference",
            ) from None

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless it exists, and return whether it was written."""
        temporary = self._write_hidden(content)
        try:
            os.link(temporary, self._path / name)
        except FileExistsError:
            return False
        except OSError as error:
            # A file system without hard links. The Job runs one pod at a time, so nothing else writes in between.
            if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}:
                raise _write_error(str(self._path), error) from None
            if (self._path / name).exists():
                return False
            temporary.replace(self._path / name)
        finally:
            temporary.unlink(missing_ok=True)
        self._flush()
        return True

    def write(self, name: str, content: bytes) -> None:
        """Write a file, and replace an existing one."""
        self._write_hidden(content).replace(self._path / name)
        self._flush()

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        (self._path / name).unlink(missing_ok=True)

    def _write_hidden(self, content: bytes) -> Path:
        """Write content to a new hidden file in the folder, and flush the file to the disk."""
        temporary = self._path / f"{_PREFIX}{uuid.uuid4().hex}"
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise _write_error(str(self._path), error) from None
        return temporary

    def _flush(self) -> None:
        """Flush the directory entries of the folder to the disk."""
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _write_error(path: str, error: OSError) -> Exception:
    """Return the exception to raise for a failed write of a file.

    It is a BatchError if the user must change something. Otherwise it is the error itself, after which a new runner
    continues.
    """
    if error.errno in _FULL:
        return BatchError("OutputFull", f"spec.output: no space is left at {path}: enlarge the volume, then resume")
    if error.errno in _CLOSED:
        return BatchError(
            "OutputUnwritable",
            f"spec.output: {path} can't be written: {error.strerror}; the volume must be mounted for writing, and user 65532 or its "
            "group must own the folder",
        )
    return error
