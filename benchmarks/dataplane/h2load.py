"""h2load, nghttp2's load generator in C, for raw gRPC load on one connection and the latency of each request."""

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
    """The result of a run. h2load ignores grpc-status, so only the servers' counters show the successful requests."""

    per_s: float
    succeeded: int
    failed: int


def rate_of(output: str) -> Rate:
    """Parse the summary that h2load prints.

    Raises:
        BenchError: the output contains no result.
    """
    finished, counts = _FINISHED.search(output), _COUNTS.search(output)
    if finished is None or counts is None:
        raise BenchError(f"h2load printed no result: {output.strip()[-300:]}")
    return Rate(float(finished[1]), int(counts[2]), int(counts[3]))


def times_us(log: str) -> list[int]:
    """Return the latency of each request with a response in microseconds, from h2load's log.

    A line of the log has the format `start, status, microseconds`.
    """
    lines = (line.split("\t") for line in log.splitlines())
    return [int(line[2]) for line in lines if len(line) == 3 and line[1] == "200"]


class Loader:
    """h2load in its chroot, with one request body."""

    def __init__(self, tree: Path, folder: Path) -> None:
        """Set the paths. `folder` is in the /tmp of the chroot's file tree."""
        self._tree, self._folder = tree, folder

    def begin(self, address: str, *, requests: int, in_flight: int) -> "Running":
        """Send `requests` requests over one connection, with `in_flight` of them at a time.

        The run is limited by a number and not by a time. At the end of a time limit, h2load aborts the requests in
        flight, and this has crashed Triton 2.51.
        """
        folder = f"/tmp/{self._folder.name}"
        command = ["chroot", str(self._tree), "/usr/bin/h2load", "-c", "1", "-m", str(in_flight), "-n", str(requests)]
        command += ["-H", "content-type: application/grpc", "-H", "te: trailers", "-d", f"{folder}/request"]
        log = self._folder / f"log-{secrets.token_hex(4)}"
        if in_flight == 1:
            command.append(f"--log-file={folder}/{log.name}")
        process = subprocess.Popen(
            [*command, f"http://{address}{METHOD}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return Running(process, log)


class Running:
    """A run of h2load in progress."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def rate(self) -> Rate:
        """Wait for the end of the run, and return its result.

        Raises:
            BenchError: it doesn't end in time, or has no result.
        """
        try:
            output, _ = self._process.communicate(timeout=_LONGEST_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise BenchError(f"h2load did not end within {_LONGEST_S:g} s") from None
        return rate_of(output)

    def median_ms(self) -> float:
        """Wait for the end of the run, and return the median latency of its requests, in ms."""
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
    """Yield a Loader with the request body, whose files are removed afterwards.

    Raises:
        BenchError: h2load can't be installed.
    """
    tree = installed.debian()
    folder = tree / "tmp" / f"load-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        (folder / "request").write_bytes(body)
        yield Loader(tree, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
