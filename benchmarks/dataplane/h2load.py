"""h2load, nghttp2's load generator in C: the raw gRPC load of one connection, and each request's time."""

import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.dataplane import installed
from benchmarks.dataplane.tritons import METHOD
from benchmarks.errors import BenchError

_LONGEST_S = 60.0
_FINISHED = re.compile(r"^finished in .*?, ([\d.]+) req/s", re.MULTILINE)
_COUNTS = re.compile(r"^requests: .* (\d+) done, (\d+) succeeded, (\d+) failed", re.MULTILINE)


@dataclass(frozen=True)
class Rate:
    """What one run told. h2load does not read grpc-status: whether these were answers, the servers' counters tell."""

    per_s: float
    succeeded: int
    failed: int


def rate_of(said: str) -> Rate:
    """Read what h2load prints at its end.

    Raises:
        BenchError: it has no result.
    """
    finished, counts = _FINISHED.search(said), _COUNTS.search(said)
    if finished is None or counts is None:
        raise BenchError(f"h2load told no result: {said.strip()[-300:]}")
    return Rate(float(finished[1]), int(counts[2]), int(counts[3]))


def times_us(log: str) -> list[int]:
    """Microseconds of each answered request, from h2load's log of lines `start, status, microseconds`."""
    lines = (line.split("\t") for line in log.splitlines())
    return [int(line[2]) for line in lines if len(line) == 3 and line[1] == "200"]


class Loader:
    """h2load in its chroot, with one request body."""

    def __init__(self, tree: Path, folder: Path) -> None:
        """`folder` lies in the tree's /tmp."""
        self._tree, self._folder = tree, folder

    def begin(self, address: str, *, requests: int, under_way: int) -> "Running":
        """Send so many requests over one connection, so many under way at a time.

        A number and not a time: at the end of its time h2load breaks off what is under way, and Triton 2.51 has crashed of that.
        """
        inside = f"/tmp/{self._folder.name}"
        command = ["chroot", str(self._tree), "/usr/bin/h2load", "-c", "1", "-m", str(under_way), "-n", str(requests)]
        command += ["-H", "content-type: application/grpc", "-H", "te: trailers", "-d", f"{inside}/request"]
        log = self._folder / f"log-{secrets.token_hex(4)}"
        if under_way == 1:
            command.append(f"--log-file={inside}/{log.name}")
        process = subprocess.Popen(
            [*command, f"http://{address}{METHOD}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return Running(process, log)


class Running:
    """A run under way."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def rate(self) -> Rate:
        """Wait for its end.

        Raises:
            BenchError: it does not end in time, or has no result.
        """
        try:
            said, _ = self._process.communicate(timeout=_LONGEST_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise BenchError(f"h2load did not end within {_LONGEST_S:g} s") from None
        return rate_of(said)

    def median_ms(self) -> float:
        """Wait for its end; the median of its requests' times."""
        self.rate()
        try:
            times = times_us(self._log.read_text())
        except FileNotFoundError:
            times = []
        self._log.unlink(missing_ok=True)
        if not times:
            raise BenchError("h2load's log has no answered request")
        return median(times) / 1000


@contextmanager
def loader(body: bytes) -> Iterator[Loader]:
    """With the body in place; nothing is left in the tree.

    Raises:
        BenchError: h2load can't be had.
    """
    tree = installed.debian()
    folder = tree / "tmp" / f"load-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        (folder / "request").write_bytes(body)
        yield Loader(tree, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
