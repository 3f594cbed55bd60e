"""Cleanup of the processes that a benchmark starts, also after it was killed.

All these processes and their children have the benchmark's process ID in their environment from exec on. So the next
benchmark can find and end those that are left.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MARK = "HALCYON_BENCH_DATAPLANE"


@contextmanager
def ended() -> Iterator[None]:
    """End the processes left by dead benchmarks and, when the context is left, those of this benchmark."""
    for pid, owner in _marked():
        if not Path(f"/proc/{owner}").exists():
            _kill(pid)
    os.environ[_MARK] = str(os.getpid())
    try:
        yield
    finally:
        for pid, owner in _marked():
            if owner == os.getpid() != pid:
                _kill(pid)
        del os.environ[_MARK]


def owner_of(environment: bytes) -> int | None:
    """Return the process ID of the benchmark from a process's environment in /proc; None if it has none."""
    prefix = f"{_MARK}=".encode()
    for variable in environment.split(b"\0"):
        if variable.startswith(prefix) and variable[len(prefix) :].isdigit():
            return int(variable[len(prefix) :])
    return None


def _marked() -> list[tuple[int, int]]:
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            owner = owner_of((folder / "environ").read_bytes())
            if owner is not None:
                processes.append((int(folder.name), owner))
    return processes


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
