"""Server-sent events: the server sends a document each time it has changed, at most once a second.

Events are not queued. Each reader has a coroutine that renders the document, sends it if it has changed, and renders it
again after the write. A slow reader therefore receives fewer events, but each of them is up to date when it is sent. A
reader that accepts no data for `WRITE_TIMEOUT_S` is disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

POLL_INTERVAL_S = 1.0
HEARTBEAT_INTERVAL_S = 15.0
"""Time without events after which an event `beat` is sent, in seconds.

It prevents proxies from closing the connection. The operator and the page detect with it that the connection is dead.
"""
WRITE_TIMEOUT_S = 20.0
MAX_STREAMS = 64
"""Maximum number of readers per operator replica. A single user may have at most a quarter of them."""
RETRY_S = 5
"""Time after which a browser reopens a broken stream, in seconds."""

Render = Callable[[], Awaitable[bytes]]
"""Function that returns the current document as a single line."""


class ConnectionLimitReached(Exception):  # noqa: N818  # an answer (503), not a fault
    """The maximum number of readers is reached."""

    retry_after_s = 10.0


async def events(
    name: str, render: Render, wait_closing: Callable[[float], Awaitable[bool]], *, interval_s: float = POLL_INTERVAL_S
) -> AsyncGenerator[bytes]:
    """Yield an event for each document that differs from the previous one. `name` is the name of the events.

    `render` returns the current document, every `interval_s` seconds. If it raises an exception, the iteration ends with
    it. `wait_closing` waits for up to the given number of seconds, and returns True if the stream must end.
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
            yield b"event: beat\ndata: 0\n\n"
        if await wait_closing(interval_s):
            return
        silent_s += interval_s


class ConnectionLimit:
    """Limit on the number of readers, with a signal that ends all streams."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self.limit, self.in_use = limit, 0
        self._by_user: Counter[str] = Counter()
        self._closing = asyncio.Event()

    @contextlib.contextmanager
    def connection(self, user: str = "") -> Iterator[None]:
        """Return a context manager that counts one more reader while its block runs.

        `user` is the name of the signed-in user; empty if there is no sign-in, so that users can't be distinguished.

        Raises:
            ConnectionLimitReached: the maximum number of readers, or of this user's, is reached, or all streams are ending.
        """
        if self.in_use >= self.limit or self._closing.is_set():
            raise ConnectionLimitReached(
                f"{self.in_use} pages are open at this replica; the limit is {self.limit}. Close some, or wait"
            )
        each = max(self.limit // 4, 1)
        if user and self._by_user[user] >= each:
            raise ConnectionLimitReached(
                f"{user} has {self._by_user[user]} pages open at this replica; the limit is {each}. Close some"
            )
        self.in_use += 1
        self._by_user[user] += 1
        try:
            yield
        finally:
            self.in_use -= 1
            self._by_user[user] -= 1
            if not self._by_user[user]:
                del self._by_user[user]

    async def wait_closing(self, within_s: float) -> bool:
        """Wait for up to `within_s` seconds until `close` is called; return True if it has been called."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._closing.wait()
        return self._closing.is_set()

    def close(self) -> None:
        """End the streams to all readers."""
        self._closing.set()
