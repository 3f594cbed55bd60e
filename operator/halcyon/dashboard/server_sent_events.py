"""Server-sent events: what a page shows, whenever it has changed, at most once a second.

Nothing is queued for a reader. Each has a coroutine that looks, sends what is new, and looks again when that was taken: a slow
one gets fewer events, and what it gets is of the moment when it is sent. One that takes nothing for `STUCK_S` is let go.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

EVERY_S = 1.0
BEAT_S = 15.0
"""A comment after so much silence: proxies end connections that rest, and who is gone is noticed."""
STUCK_S = 20.0
MAX_STREAMS = 64
"""Readers of a replica."""
RETRY_S = 5
"""After which a browser whose connection broke comes back."""

Render = Callable[[], Awaitable[bytes]]
"""The document now, in one line."""


class Full(Exception):  # noqa: N818  # an answer (503), not a fault
    """There are as many readers as there may be."""


async def events(
    name: str, render: Render, ended: Callable[[float], Awaitable[bool]], *, every_s: float = EVERY_S
) -> AsyncGenerator[bytes]:
    """Events of this name, one for each document that differs from the one before.

    Args:
        name: of the events.
        render: may raise; the iteration then ends with that.
        ended: waits for so many seconds; whether the stream is to end.
        every_s: between two looks.
    """
    yield f"retry: {RETRY_S * 1000}\n\n".encode()
    sent, silent_s = b"", 0.0
    while True:
        document = await render()
        if document != sent:
            sent, silent_s = document, 0.0
            yield b"event: %b\ndata: %b\n\n" % (name.encode(), document)
        elif silent_s >= BEAT_S:
            silent_s = 0.0
            yield b": still here\n\n"
        if await ended(every_s):
            return
        silent_s += every_s


class ConnectionLimit:
    """How many readers there are, and the word that all are to go."""

    def __init__(self, most: int = MAX_STREAMS) -> None:
        self.most, self.taken = most, 0
        self._closing = asyncio.Event()

    @contextlib.contextmanager
    def seat(self) -> Iterator[None]:
        """One of them, while the block runs.

        Raises:
            Full: none is free.
        """
        if self.taken >= self.most or self._closing.is_set():
            raise Full(f"{self.taken} pages are open at this replica; the limit is {self.most}. Close some, or wait")
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1

    async def ended(self, within_s: float) -> bool:
        """Whether all are to go, once so many seconds have passed, or at once when it is said."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._closing.wait()
        return self._closing.is_set()

    def close(self) -> None:
        """All are to go."""
        self._closing.set()
