"""Server-sent events: a page's document each time it changes, at most once a second.

Nothing is queued for a reader. Each reader has a coroutine that renders the document, sends it if it changed, and renders again after the
write. A slow reader gets fewer events, but each is current when it is sent. A reader that accepts no data for `WRITE_TIMEOUT_S` is
disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

POLL_INTERVAL_S = 1.0
HEARTBEAT_INTERVAL_S = 15.0
"""Interval without events after which a comment is sent: it keeps proxies from closing the connection, and detects closed ones."""
WRITE_TIMEOUT_S = 20.0
MAX_STREAMS = 64
"""Maximum number of readers of a replica."""
RETRY_S = 5
"""Time after which a browser reconnects a broken stream."""

Render = Callable[[], Awaitable[bytes]]
"""Function that returns the current document, in one line."""


class ConnectionLimitReached(Exception):  # noqa: N818  # an answer (503), not a fault
    """The maximum number of readers is reached."""


async def events(
    name: str, render: Render, wait_closing: Callable[[float], Awaitable[bool]], *, interval_s: float = POLL_INTERVAL_S
) -> AsyncGenerator[bytes]:
    """Yield an event for each document that differs from the previous one.

    Args:
        name: of the events.
        render: may raise an exception, which then ends the iteration.
        wait_closing: waits for up to this many seconds; returns whether the stream must end.
        interval_s: between two renderings.
    """
    yield f"retry: {RETRY_S * 1000}\n\n".encode()
    sent, silent_s = b"", 0.0
    while True:
        document = await render()
        if document != sent:
            sent, silent_s = document, 0.0
            yield b"event: %b\ndata: %b\n\n" % (name.encode(), document)
        elif silent_s >= HEARTBEAT_INTERVAL_S:
            silent_s = 0.0
            yield b": still here\n\n"
        if await wait_closing(interval_s):
            return
        silent_s += interval_s


class ConnectionLimit:
    """The number of readers, its limit, and the signal that ends all streams."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self.limit, self.in_use = limit, 0
        self._closing = asyncio.Event()

    @contextlib.contextmanager
    def connection(self) -> Iterator[None]:
        """Count one reader while the block runs.

        Raises:
            ConnectionLimitReached: the limit is reached, or all streams are ending.
        """
        if self.in_use >= self.limit or self._closing.is_set():
            raise ConnectionLimitReached(
                f"{self.in_use} pages are open at this replica; the limit is {self.limit}. Close some, or wait"
            )
        self.in_use += 1
        try:
            yield
        finally:
            self.in_use -= 1

    async def wait_closing(self, within_s: float) -> bool:
        """Wait until `close` is called, or until the time is over; return whether all streams must end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._closing.wait()
        return self._closing.is_set()

    def close(self) -> None:
        """End all streams."""
        self._closing.set()
