"""Opening of a data set on a file system or in a bucket.

A data set in a bucket is first copied to the local disk, and the rows are read from the copy. Therefore a change in the
bucket can't mix two contents. The digest of a file is that of its content, as on a volume. The digest of a folder in a
bucket covers the name, the size and the ETag of each object.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from halcyon.api.documents.batch_documents import BatchBucket, BatchRecipe
from halcyon_batch.bucket import Bucket, BucketObject
from halcyon_batch.errors import BatchError, is_temporary
from halcyon_batch.input_data import ArrayData, FolderData, InputData, LineData, Sample, check_uncompressed
from halcyon_batch.parquet_data import ParquetData
from halcyon_measure.results.number_text import significant

_KINDS: Mapping[str, Callable[[Path], InputData]] = {
    "Npz": ArrayData,
    "Jsonl": LineData,
    "Parquet": ParquetData,
    "Folder": FolderData,
}
_SUFFIXES = {".npz": "Npz", ".npy": "Npz", ".jsonl": "Jsonl", ".ndjson": "Jsonl", ".parquet": "Parquet"}
_BLOCK = 4096
"""Disk space is allocated in multiples of this size in bytes, which counts for a folder of small files."""
_CHECK_INTERVAL_S = 30.0
"""Minimum time between two listings of a bucket, with which changes of a data set are detected, in seconds."""


def open_input(path: str, format_: str) -> InputData:
    """Open a data set on a file system.

    If no format is given, it is derived from the name of the file or folder.

    Raises:
        BatchError: the data set can't be read, is empty, or has another format.
        OSError: the file system doesn't respond now.
    """
    location = Path(path)
    try:
        data_format = format_ or _format_of(location)
        location.stat()
        if data_format != "Folder" and not location.is_file():
            # Reading a pipe would wait for a writer.
            actual = "a folder" if location.is_dir() else "no file"
            raise BatchError("InputUnreadable", f"spec.input: {location} is {actual}, and its format is {data_format}")
        data = _KINDS[data_format](location)
    except OSError as error:
        if is_temporary(error):
            raise
        failed_path = error.filename or path
        raise BatchError(
            "InputUnreadable", f"spec.input: {failed_path} can't be read: {error.strerror or error}"
        ) from None
    if data.total == 0:
        raise BatchError("InputEmpty", f"spec.input: {path} has no rows")
    return data


def check_output_place(recipe: BatchRecipe) -> None:
    """Check that the results aren't written into the folder of the data set.

    Raises:
        BatchError: the results would become rows of the data set, which would change with each part.
    """
    source, target = recipe.input_bucket, recipe.output_bucket
    place = recipe.output if target is None else target.url
    if source is not None and target is not None:
        folder = source.url.rstrip("/")
        is_inside = source.endpoint == target.endpoint and f"{place.rstrip('/')}/".startswith(f"{folder}/")
    else:
        folder, output = recipe.input, Path(place)
        # The two paths in the runner's container differ, also if they are those of one folder on a volume.
        is_inside = source is target and any(
            ancestor.exists() and ancestor.samefile(folder) for ancestor in (output, *output.parents)
        )
    if is_inside:
        raise BatchError(
            "OutputUnwritable",
            f"spec.output: {place} is in the folder of spec.input, so the results would be rows; name a folder beside it in a "
            f"new BatchInference, for example {Path(folder).name}-results",
        )


def _format_of(path: Path) -> str:
    if path.is_dir():
        return "Folder"
    path.stat()
    if path.suffix.lower() not in _SUFFIXES:
        if path.is_file():
            check_uncompressed(path)
        raise BatchError(
            "InputUnreadable",
            f"spec.input: the format of {path} is unknown by its name; use .npz, .npy, .jsonl, .parquet or a folder, or set input.format in a new BatchInference",
        )
    return _SUFFIXES[path.suffix.lower()]


class BucketData:
    """Data set in a bucket, whose rows are read from a copy on the local disk."""

    def __init__(self, bucket: Bucket, location: BatchBucket, folder: Path, format_: str) -> None:
        """Copy the data set from the bucket to a local folder, and open the copy.

        Raises:
            BatchError: the data set doesn't exist, is too large, can't be read, is empty, or has another format.
        """
        self._bucket = bucket
        self._is_file, self._listed = _listed(bucket)
        if self._is_file and not self._listed[0].size:
            raise BatchError("InputEmpty", f"spec.input: {location.url} has no rows")
        if not self._listed:
            raise BatchError(
                "InputUnreadable",
                f"spec.input: {location.url} doesn't exist: there is no such object, and none below {location.url.rstrip('/')}/",
            )
        size = sum(entry.size if self._is_file else -(-entry.size // _BLOCK) * _BLOCK for entry in self._listed)
        if location.limit_bytes is not None and size > location.limit_bytes:
            raise BatchError(
                "InputTooLarge",
                f"spec.input: {location.url} needs {significant(size / 2**30, 3)} GiB of disk, and input.sizeLimit is {significant(location.limit_bytes / 2**30, 3)} GiB; raise "
                "sizeLimit in a new BatchInference, on nodes with that much disk",
            )
        copy = folder / (location.url.rstrip("/").rpartition("/")[2] if self._is_file else "files")
        shutil.rmtree(copy, ignore_errors=True)
        bucket.download({copy / entry.name if entry.name else copy: entry for entry in self._listed})
        try:
            self._data = open_input(str(copy), format_)
        except BatchError as error:
            raise BatchError(error.reason, str(error).replace(str(copy), location.url)) from None
        self.format, self.total, self.row_bytes = self._data.format, self._data.total, self._data.row_bytes
        self.digest = self._data.digest if self._is_file else _digest(self._listed)
        self._checked_at_s = time.monotonic()

    def read(self, start: int, stop: int) -> list[Sample]:
        """Return the rows of the data set from number `start` up to, but not including, `stop`."""
        return self._data.read(start, stop)

    def is_unchanged(self, *_rows: int) -> bool:
        """Return whether a recent listing of the bucket shows the same objects as when the data set was copied."""
        now_s = time.monotonic()
        if now_s - self._checked_at_s < _CHECK_INTERVAL_S:
            return True
        self._checked_at_s = now_s
        try:
            return _listed(self._bucket)[1] == self._listed
        except (OSError, BatchError):  # the store can't be reached, or the keys have expired; the copy is as it was
            return True

    def digest_now(self) -> str:
        """Return the digest of the data set's current content in the bucket."""
        return self._bucket.sha256() if self._is_file else _digest(_listed(self._bucket)[1])


def _listed(bucket: Bucket) -> tuple[bool, Sequence[BucketObject]]:
    """Return whether the URI is that of a single file, and its objects without hidden ones."""
    entry = bucket.single()
    if entry is not None and entry.size:
        return True, [entry]
    listed = [
        entry for entry in bucket.objects() if all(part and not part.startswith(".") for part in entry.name.split("/"))
    ]
    # Some tools make an empty object as a marker of a folder.
    return (False, listed) if listed or entry is None else (True, [entry])


def _digest(listed: Sequence[BucketObject]) -> str:
    digest = hashlib.sha256()
    for entry in listed:
        digest.update(f"{entry.name}\0{entry.size}\0{entry.etag}\0".encode())
    return f"sha256:{digest.hexdigest()}"
