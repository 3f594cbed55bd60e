"""Wait for the due times of a schedule, accurate to about 20 us.

The timer of an event loop fires 0.1 to 0.3 ms late, because the kernel delays timers, an idle core has to wake up, and
asyncio does work of its own. This delay would count as latency of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

AWAKE_S = 0.00025
"""Time in seconds before a due time during which the process polls instead of sleeping. A larger value uses more CPU.
With a smaller value, requests are sent late, because an idle process takes a moment to wake up."""


class DueTimes:
    """Timer of one schedule. As a context manager, it watches the event that ends the load early."""

    def __init__(self, stop: asyncio.Event, clock: Callable[[], float] = time.monotonic) -> None:
        self._stop, self._clock = stop, clock
        self._woken: asyncio.Future[None] | None = None
        self._stopping: asyncio.Task[bool] | None = None

    async def __aenter__(self) -> Self:
        self._stopping = asyncio.create_task(self._stop.wait())
        self._stopping.add_done_callback(lambda _: self._wake())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stopping is not None:
            self._stopping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._stopping

    async def wait(self, due: float) -> None:
        """Wait until a due time, or until the load is stopped. If the due time has passed, return at once.

        The event loop runs once in any case, so that answers are read even if requests are due faster than they can be
        sent.
        """
        delay = due - self._clock() - AWAKE_S
        if delay > 0 and not self._stop.is_set():
            loop = asyncio.get_running_loop()
            self._woken = loop.create_future()
            timer = loop.call_later(delay, self._wake)
            try:
                await self._woken
            finally:
                timer.cancel()
        await asyncio.sleep(0)
        while self._clock() < due and not self._stop.is_set():  # noqa: ASYNC110  # a timer would be late
            await asyncio.sleep(0)

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
