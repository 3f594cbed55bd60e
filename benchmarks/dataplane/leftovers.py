"""Processes that a bench has started end with it, and where it was killed, with the next one.

All of them carry the bench's own process id in their environment, from the moment of exec on; so do their children.
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
    """End what a dead bench has left, and at the end what this one has started and not ended itself."""
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
    """The bench in a process's environment, as /proc has it; None where there is none."""
    prefix = f"{_MARK}=".encode()
    for variable in environment.split(b"\0"):
        if variable.startswith(prefix) and variable[len(prefix) :].isdigit():
            return int(variable[len(prefix) :])
    return None


def _marked() -> list[tuple[int, int]]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            owner = owner_of((place / "environ").read_bytes())
            if owner is not None:
                found.append((int(place.name), owner))
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
