"""An event loop whose timers are exact to some 50 us.

epoll waits in whole milliseconds, so a timer of asyncio fires up to 1 ms late, which would count as latency of the
server. An epoll descriptor can itself be waited for by select, whose time-out has microseconds.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from typing import Any

from typing_extensions import override


class ExactSelector(selectors.EpollSelector):
    """epoll whose time-out isn't rounded up to a millisecond."""

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        if timeout is not None and timeout > 0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop."""
    return asyncio.SelectorEventLoop(ExactSelector())
