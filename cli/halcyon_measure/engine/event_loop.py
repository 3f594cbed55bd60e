"""asyncio event loop whose timers are accurate to about 50 us.

epoll waits in whole milliseconds, so an asyncio timer fires up to 1 ms late, which would count as latency of the
server. Therefore the loop waits for the epoll descriptor with select, whose timeout has a resolution of microseconds.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from typing import Any

from typing_extensions import override


class ExactSelector(selectors.EpollSelector):
    """Selector that uses epoll without rounding the timeout up to a millisecond."""

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        if timeout is not None and timeout > 0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop."""
    return asyncio.SelectorEventLoop(ExactSelector())
