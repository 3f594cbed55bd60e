"""Download of a registry's files into a folder, several at a time, each verified with its listed checksum."""

from __future__ import annotations

import errno
import hashlib
import http.client
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from halcyon.fetch.registry.client import RegistryClient, pause
from halcyon.fetch.registry.errors import RegistryFailure, TransientError

BeginReports = Callable[[int | None], Callable[[int], None]]
"""Function that begins the progress reports of a download, given its size in bytes, or None if the size is unknown. It
returns a function to be called with the number of bytes received so far."""
_MAX_CONCURRENT_FILES = 4
_CHUNK_BYTES = 1024 * 1024
MAX_FILES = 100_000
_IN_VERSION = re.compile(r"([^/]+/)?(0|[1-9][0-9]{0,17})/.")
"""Pattern of paths of files in a version folder, which is at the top level or one level below it."""
_MAX_SHOWN = 8
LOCAL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""`errno` values of errors of the pod's own disk, after which a retry would fail as well."""


@dataclass(frozen=True)
class Checksum:
    """Checksum that a registry lists for a file."""

    kind: str
    """Kind of checksum. `sha256` is the digest of the content. `git` is the id of the git object: SHA-1 of a header and
    the content."""
    value: str
    """Value of the checksum, in hexadecimal."""

    def start(self, size: int) -> hashlib._Hash:
        """Return a new hash object for a file of `size` bytes, to which the content is then added."""
        if self.kind == "sha256":
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


@dataclass(frozen=True)
class RegistryFile:
    """File of a model in a registry."""

    path: str
    """Path of the file below the model's folder."""
    size: int | None
    """Size in bytes; None if the registry lists none."""
    location: str
    """URL path of the file at the registry's server, with the query if it has one."""
    checksum: Checksum | None = None
    """Expected checksum; None if the registry lists none."""


class DownloadTarget(Protocol):
    """Folder into which a model is downloaded, with its limits."""

    def check_size(self, size_bytes: int) -> None:
        """Raise an error if the model is larger than the limit."""

    def create_file(self, name: str) -> Path:
        """Create an empty file and its folders; return its path. Raise an error if the name is not valid."""


def mark_program(file: Path, begin: bytes | memoryview) -> None:
    """Make a file executable if it begins like a program, because buckets and registries store no modes."""
    if bytes(begin[:4]).startswith((b"\x7fELF", b"#!")):
        file.chmod(0o755)


def check_layout(files: Sequence[RegistryFile], url: str, target: DownloadTarget) -> None:
    """Check the layout in the listing, before anything is downloaded.

    Raises:
        RegistryFailure: the folder does not have the layout of a Triton model, or has too many files.
    """
    if len(files) > MAX_FILES:
        raise RegistryFailure(
            f"{url} has more than {MAX_FILES} files; set the URI to the model's own folder", is_missing=True
        )
    if not any(_IN_VERSION.match(file.path) for file in files):
        names = sorted({file.path.partition("/")[0] for file in files})
        more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
        content = f"it has {', '.join(names[:_MAX_SHOWN])}{more}" if names else "it has no files"
        raise RegistryFailure(
            f"{url} has no model for Triton: there is no version folder; {content}. A model's folder contains version folders and may "
            f"contain a config.pbtxt, for example triton/config.pbtxt and triton/1/model.onnx, with the URI {url}/triton",
            is_missing=True,
        )
    target.check_size(sum(file.size or 0 for file in files))


def download(
    files: Sequence[RegistryFile],
    client: RegistryClient,
    target: DownloadTarget,
    begin_reports: BeginReports,
) -> int:
    """Download files of a registry into a folder, and return the number of bytes.

    Raises:
        RegistryError: the registry denies a request.
        RegistryFailure: the registry can't be reached, or a file differs from its checksum.
    """
    sizes = [file.size for file in files if file.size is not None]
    total = sum(sizes) if len(sizes) == len(files) else None
    progress = _Progress(target, begin_reports(total))
    with ThreadPoolExecutor(_MAX_CONCURRENT_FILES) as pool:
        futures = [pool.submit(_download, file, client, target, progress) for file in files]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:
            progress.stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return progress.done


class _Progress:
    """Progress of the download of all files: the number of bytes received, and whether a file has failed."""

    def __init__(self, target: DownloadTarget, report: Callable[[int], None]) -> None:
        self._target, self._report = target, report
        self._lock = threading.Lock()
        self.done = 0
        self.stopped = threading.Event()

    def add(self, count: int) -> None:
        """Add a number of received bytes to the total, check the total against the limit, and report the progress."""
        with self._lock:
            self.done += count
            self._target.check_size(self.done)
            self._report(self.done)


def _download(file: RegistryFile, client: RegistryClient, target: DownloadTarget, progress: _Progress) -> None:
    """Download one file. After a failure, continue with the first missing byte."""
    path = target.create_file(file.path)
    transfer = _Transfer(file, path, progress)
    failures = 0
    while not progress.stopped.is_set():
        before = transfer.done
        try:
            if transfer.receive(client):
                transfer.check()
                with path.open("rb") as received:
                    mark_program(path, received.read(4))
                return
            error: Exception = TransientError(f"the response ended after {transfer.done} bytes of {file.size}")
        except (TransientError, OSError, http.client.HTTPException) as raised:
            if isinstance(raised, OSError) and raised.errno in LOCAL:
                raise
            error = raised
        failures = failures + 1 if transfer.done <= before else 1
        pause(error, failures, file.path, progress.stopped)


class _Transfer:
    """Download of one file that can be interrupted and continued."""

    def __init__(self, file: RegistryFile, path: Path, progress: _Progress) -> None:
        self._file, self._path, self._progress = file, path, progress
        self._hash = self._started_hash()
        self.done = 0
        """Number of bytes of the file that have been written so far."""

    def _started_hash(self) -> hashlib._Hash | None:
        return self._file.checksum.start(self._file.size or 0) if self._file.checksum is not None else None

    def receive(self, client: RegistryClient) -> bool:
        """Append the file's content, starting at the first missing byte. Return whether the file is complete."""
        with client.open(self._file.location, self.done) as answer, self._path.open("ab") as output:
            if self.done and answer.status != http.client.PARTIAL_CONTENT:
                self._progress.add(-self.done)
                self.done, self._hash = 0, self._started_hash()
                output.truncate(0)
            expected = self._file.size
            if expected is None and (length := answer.headers.get("Content-Length")) is not None:
                expected = self.done + int(length)
            while not self._progress.stopped.is_set() and (chunk := answer.read(_CHUNK_BYTES)):
                self._progress.add(len(chunk))
                output.write(chunk)
                self.done += len(chunk)
                if self._hash is not None:
                    self._hash.update(chunk)
        return expected is None or self.done >= expected

    def check(self) -> None:
        """Verify the file against the listing.

        Raises:
            RegistryFailure: the checksum differs from the listed one.
        """
        expected = self._file.checksum
        if expected is not None and self._hash is not None and self._hash.hexdigest() != expected.value:
            raise RegistryFailure(
                f"{self._file.path} has the checksum {self._hash.hexdigest()}, and the registry lists {expected.value} "
                f"({expected.kind}): the file was damaged or replaced on its way"
            )
