"""Rows of a data set on a file system: an .npz or .npy file, JSON lines, or a folder of files.

Each data set has a digest, which a resumed batch compares with the digest of the first run. The digest of a file is the
SHA-256 of its content. The digest of a folder covers the name, the size and the modification time of each file. It does
not cover the contents, because reading millions of files twice would take too long.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import time
import zipfile
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from halcyon_batch.errors import BatchError
from halcyon_measure.inputs import array_file

_BLOCK = 8 * 2**20
_LOCAL_HEADER = 30
"""Length of the fixed part of a member's header in a zip archive, in bytes. The member's name follows it."""
_CHECK_INTERVAL_S, _CHECK_SHARE = 10.0, 20.0
"""Minimum time between two checks of all files in a folder: in seconds, and as a multiple of the duration of a check.
The larger value applies, so that checks of millions of files take only a small part of the time."""


@dataclass(frozen=True)
class Sample:
    """One row of a data set, in its stored form."""

    row: int
    """Number of the row in the data set; the first row is 0."""
    value: Any
    """Value of the row: arrays by name without the batch dimension, the bytes of a line, or the path of a file."""
    name: str = ""
    """Name of the file that contains the row, if the data set is a folder; empty for other formats."""


class InputData(Protocol):
    """Interface of an opened data set."""

    format: str
    digest: str
    total: int
    """Number of rows in the data set."""
    row_bytes: int
    """Mean size of a row in bytes, at least 1."""

    def read(self, start: int, stop: int) -> list[Sample]:
        """Return the rows of the data set from number `start` up to, but not including, `stop`."""

    def is_unchanged(self, *rows: int) -> bool:
        """Return whether the data set still has the size and the modification time that it had when it was opened.

        Args:
            rows: range of rows, as the number of its first row and the number after its last row; by default, all rows.
                The result is exact for these rows. For other rows, it may be that of an earlier check.
        """

    def digest_now(self) -> str:
        """Return the digest of the data set's current content, which may have changed since it was opened."""


def stamp(path: Path) -> tuple[int, int, int]:
    """Return the inode, the size and the modification time of a file, with which changes of the file are detected."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def sha256(path: Path) -> str:
    """Return the SHA-256 digest of the content of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def check_uncompressed(path: Path) -> None:
    """Check that a file isn't compressed, because each of its rows would be invalid.

    Raises:
        BatchError: it is compressed by gzip.
    """
    with path.open("rb") as file:
        if file.read(2) == b"\x1f\x8b":
            raise BatchError(
                "InputUnreadable", f"spec.input: {path} is compressed by gzip; decompress it, for example with gunzip"
            )


class ArrayData:
    """Data set in the arrays of an .npz file by name, or in the array of an .npy file with an empty name.

    The first dimension of each array is the row.
    """

    format = "Npz"

    def __init__(self, path: Path) -> None:
        self._path, self._stamp = path, stamp(path)
        self.digest = sha256(path)
        try:
            self._arrays = _arrays(path)
            sizes = {name: array.shape[0] if array.ndim else 0 for name, array in self._arrays.items()}
        except array_file.DAMAGES as error:
            raise BatchError(
                "InputUnreadable",
                f"spec.input: {path} isn't a file of NumPy: {error}; numpy.savez('rows.npz', x=array) writes one",
            ) from None
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise BatchError("InputUnreadable", f"spec.input: the arrays of {path} differ in their rows: {listed}")
        self.total = next(iter(sizes.values()), 0)
        self.row_bytes = max(sum(array.nbytes for array in self._arrays.values()) // max(self.total, 1), 1)

    def read(self, start: int, stop: int) -> list[Sample]:
        """Return the rows of the arrays from number `start` up to, but not including, `stop`."""
        blocks = {name: np.array(array[start:stop]) for name, array in self._arrays.items()}
        return [Sample(start + n, {name: block[n] for name, block in blocks.items()}) for n in range(stop - start)]

    def is_unchanged(self, *_rows: int) -> bool:
        """Return whether the file still has the size and the modification time that it had when it was opened."""
        return stamp(self._path) == self._stamp

    def digest_now(self) -> str:
        """Return the digest of the current content of the file."""
        return sha256(self._path)


def _arrays(path: Path) -> Mapping[str, Any]:
    if path.suffix.lower() == ".npy":
        return {"": np.load(path, mmap_mode="r", allow_pickle=False)}
    with zipfile.ZipFile(path) as members, np.load(path, allow_pickle=False) as archive:
        infos = {info.filename.removesuffix(".npy"): info for info in members.infolist()}
        return {
            # An uncompressed array is mapped from the file, so that its size doesn't count as memory.
            name: _mapped(path, infos[name]) if infos[name].compress_type == zipfile.ZIP_STORED else archive[name]
            for name in archive.files
        }


def _mapped(path: Path, member: zipfile.ZipInfo) -> Any:
    """Return an array in an .npz archive as a memory map of the file."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER)
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        file.seek(member.header_offset + _LOCAL_HEADER + name_length + extra_length)
        major, _ = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, fortran, kind = read(file)
        if kind.hasobject:
            raise ValueError(f"{member.filename} has Python objects")
        if 0 in shape:
            return np.empty(shape, kind)
        return np.memmap(path, kind, "r", file.tell(), shape, "F" if fortran else "C")


class LineData:
    """Data set in the lines of a text file, each of which is a JSON value. Blank lines aren't rows."""

    format = "Jsonl"

    def __init__(self, path: Path) -> None:
        check_uncompressed(path)
        self._path, self._stamp = path, stamp(path)
        digest, offsets, offset = hashlib.sha256(), array("q"), 0
        with path.open("rb") as file:
            for line in file:
                digest.update(line)
                if not line.isspace():
                    offsets.append(offset)
                offset += len(line)
        self.digest = f"sha256:{digest.hexdigest()}"
        self._offsets = offsets
        self.total = len(offsets)
        self.row_bytes = max(offset // max(self.total, 1), 1)

    def read(self, start: int, stop: int) -> list[Sample]:
        """Return the lines from row number `start` up to, but not including, `stop`."""
        samples = []
        with self._path.open("rb") as file:
            for row in range(start, stop):
                file.seek(self._offsets[row])
                samples.append(Sample(row, file.readline()))
        return samples

    def is_unchanged(self, *_rows: int) -> bool:
        """Return whether the file still has the size and the modification time that it had when it was opened."""
        return stamp(self._path) == self._stamp

    def digest_now(self) -> str:
        """Return the digest of the current content of the file."""
        return sha256(self._path)


class FolderData:
    """Data set of the visible files in a folder and its subfolders, in order of their paths. Each file is a row."""

    format = "Folder"

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise BatchError("InputUnreadable", f"spec.input: {path} is a file, and input.format is Folder")
        self._path, self._next_check_s = path, 0.0
        self._names, self._stats, self.digest = _listed(path)
        self.total = len(self._names)
        self.row_bytes = max(int(self._stats[:, 0].sum()) // max(self.total, 1), 1)

    def read(self, start: int, stop: int) -> list[Sample]:
        """Return the files from row number `start` up to, but not including, `stop`."""
        return [Sample(row, str(self._path / self._names[row]), self._names[row]) for row in range(start, stop)]

    def is_unchanged(self, *rows: int) -> bool:
        """Return whether the folder still has the same files, with the same sizes and modification times.

        With a range of rows, all other files are checked only at intervals, because reading the attributes of millions of
        files takes minutes.
        """
        began_s = time.monotonic()
        if not rows or began_s >= self._next_check_s:
            is_same = self.digest_now() == self.digest
            now_s = time.monotonic()
            self._next_check_s = now_s + max(_CHECK_INTERVAL_S, _CHECK_SHARE * (now_s - began_s))
            return is_same
        start, stop = rows
        try:
            stats = [_stat(self._path / name) for name in self._names[start:stop]]
        except OSError:
            return False
        return bool(np.array_equal(np.array(stats, np.int64), self._stats[start:stop]))

    def digest_now(self) -> str:
        """Return the digest of the current names, sizes and modification times of the files."""
        return _listed(self._path)[2]


def _stat(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _listed(path: Path) -> tuple[Sequence[str], npt.NDArray[np.int64], str]:
    """Return the relative paths of all files in a folder, their sizes and modification times, and the folder's digest.

    Raises:
        OSError: the folder or a subfolder can't be read.
    """

    def refuse(error: OSError) -> None:
        raise error  # otherwise, the rows of a folder that can't be read would be missing without a trace

    names, digest = [], hashlib.sha256()
    for folder, folders, files in os.walk(path, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for link in (Path(folder, name) for name in folders if os.path.islink(os.path.join(folder, name))):  # noqa: PTH114, PTH118
            raise BatchError(
                "InputUnreadable",
                f"spec.input: {link} is a link to a folder, whose files would be no rows; put the files there, or hide it as .{link.name}",
            )
        names += [os.path.relpath(os.path.join(folder, name), path) for name in files if not name.startswith(".")]  # noqa: PTH118
    names.sort()
    stats = np.zeros((len(names), 2), np.int64)
    for row, name in enumerate(names):
        status = (path / name).stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for a writer
            raise BatchError(
                "InputUnreadable", f"spec.input: {path / name} is no file; remove it, or hide it as .{name}"
            )
        stats[row] = status.st_size, status.st_mtime_ns
        # A name on a volume may have bytes that aren't UTF-8.
        digest.update(os.fsencode(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\0"))
    return names, stats, f"sha256:{digest.hexdigest()}"
