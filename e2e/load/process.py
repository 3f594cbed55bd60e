"""A load in its own process, so that it and the calling program don't disturb each other's timing."""

import contextlib
import dataclasses
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from e2e.load.settings import Load, Report

_REPOSITORY = Path(__file__).resolve().parents[2]
_GRACE_S = 5.0


class LoadFailedError(Exception):
    """A load whose process ended without a report. The message has the end of its output."""


class RunningLoad:
    """A load in progress. As a context manager, it ends the load and its process when the context is left."""

    def __init__(self, load: Load, *, on_report: Callable[[Report], None] | None = None) -> None:
        self.load = load
        self.latest: Report | None = None
        """Report on the last second."""
        self._on_report = on_report
        self._began = threading.Event()
        self._began_s = 0.0
        self._final: Report | None = None
        self._error_lines: list[str] = []
        # A separate session, so that Ctrl-C reaches only the program that started it, which then ends the load.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "e2e.load", "--load", load.to_json(), "--json-lines"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=_REPOSITORY,
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._final is None:
            if error is None:
                self.stop()
            else:
                self._end()

    def began_s(self) -> float:
        """Return the time of the first request on this process's monotonic clock, and wait for it if necessary.

        Raises:
            LoadFailedError: the load can't start.
        """
        while not self._began.wait(0.05):
            if self.done:
                self._report(_GRACE_S)
                break
        return self._began_s

    @property
    def done(self) -> bool:
        """Return True if its process has ended."""
        return self._process.poll() is not None

    def stop(self) -> Report:
        """Stop sending, wait for the requests in flight, and return the report.

        A load that hasn't begun is allowed to begin.

        Raises:
            LoadFailedError: there is no report.
        """
        self.began_s()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        return self._report(self.load.timeout_s + _GRACE_S)

    def wait(self) -> Report:
        """Wait until the load has reached its duration or number of requests, and return the report.

        Raises:
            LoadFailedError: there is no report.
        """
        return self._report(self.load.duration_s + self.load.timeout_s + _GRACE_S)

    def _report(self, limit_s: float) -> Report:
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._end()
            raise LoadFailedError(f"the load on {self.load.model} did not end within {limit_s:.0f} s") from None
        self._close()
        if self._final is None:
            errors = "\n".join(self._error_lines[-8:]) or f"exit status {self._process.returncode}"
            raise LoadFailedError(f"the load on {self.load.model} at {self.load.address} gave no report:\n{errors}")
        return self._final

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        for reader in self._readers:
            reader.join(_GRACE_S)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            report = Report(**json.loads(line))
            if not self._began.is_set():
                self._began_s = time.monotonic()
                self._began.set()
            elif report.final:
                self._final = report
            else:
                self.latest = report
                if self._on_report is not None:
                    self._on_report(report)

    def _read_errors(self, stream: IO[str]) -> None:
        self._error_lines.extend(line.rstrip() for line in stream)


def run(load: Load) -> Report:
    """Run a load in its own process from start to end, and return the report.

    Raises:
        LoadFailedError: its process failed.
    """
    with RunningLoad(load) as running:
        return running.wait()


def line(report: Report) -> str:
    """Return a report as the line of JSON that a load's process prints."""
    return json.dumps(dataclasses.asdict(report))
