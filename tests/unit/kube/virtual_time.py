"""An event loop whose time passes at once: a test of seconds and minutes takes milliseconds and no sleep.

Sockets of this machine work in it where they are given a moment: what was sent is there before the time moves on.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from typing_extensions import override

T = TypeVar("T")
VirtualTime = Callable[[], float]
_TURN_S = 1e-6
"""What a turn of the loop takes among sockets: who waits for less than the clock's grain, and looks again, must not do so for ever."""


class _Jumping(selectors.EpollSelector):
    """Instead of waiting, moves the time on."""

    def __init__(self, sockets_s: float) -> None:
        super().__init__()
        self._sockets_s = sockets_s
        self.now = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0 if timeout == 0 else self._sockets_s)
        if self._sockets_s:
            self.now += _TURN_S
        if found:
            return found
        if timeout is None:
            raise RuntimeError("everything waits, and nothing will ever happen")
        self.now += max(timeout, 0)
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, sockets_s: float) -> None:
        self._jumping = _Jumping(sockets_s)
        super().__init__(self._jumping)

    @override
    def time(self) -> float:
        return self._jumping.now


def run(scenario: Callable[[VirtualTime], Awaitable[T]], *, sockets_s: float = 0.0) -> T:
    """The scenario's result; its argument is the clock. `sockets_s`: real time that what is sent may take to arrive."""

    async def main() -> T:
        return await scenario(asyncio.get_running_loop().time)

    with asyncio.Runner(loop_factory=lambda: _Loop(sockets_s)) as runner:
        return runner.run(main())
