"""Graceful termination: SIGTERM is treated like Ctrl-C, so that `finally` blocks end what was started."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def heed() -> None:
    """Make SIGTERM raise KeyboardInterrupt in the main thread from now on."""
    signal.signal(signal.SIGTERM, _interrupt)


@contextmanager
def heeded() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt while the context is open."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
