"""To be ended politely: SIGTERM is as Ctrl-C, so that `finally` ends what was started."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def heed() -> None:
    """From now on SIGTERM raises KeyboardInterrupt in the main thread."""
    signal.signal(signal.SIGTERM, _interrupt)


@contextmanager
def heeded() -> Iterator[None]:
    """The same for a while."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
