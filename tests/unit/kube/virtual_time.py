"""An event loop with virtual time: a test of seconds or minutes takes milliseconds and doesn't sleep.

Local sockets work in it if they get some real time: data that was sent arrives before the virtual time advances.
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
"""Duration of a loop iteration with sockets. Without it, a task that polls at shorter intervals than the clock's
resolution would loop forever."""


class _Jumping(selectors.EpollSelector):
    """A selector that advances the time instead of waiting."""

    def __init__(self, sockets_s: float) -> None:
        super().__init__()
        self._sockets_s = sockets_s
        self.now = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0 if timeout == 0 else self._sockets_s)
        if self._sockets_s:
            self.now += _TURN_S
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("everything waits, and nothing will ever happen")
        self.now += max(timeout, 0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, sockets_s: float) -> None:
        self._jumping = _Jumping(sockets_s)
        super().__init__(self._jumping)

    @override
    def time(self) -> float:
        return self._jumping.now


def run(scenario: Callable[[VirtualTime], Awaitable[T]], *, sockets_s: float = 0.0) -> T:
    """Run a scenario, which receives the clock, and return its result.

    `sockets_s` is the real time that data on sockets may take to arrive.
    """

    async def main() -> T:
        return await scenario(asyncio.get_running_loop().time)

    with asyncio.Runner(loop_factory=lambda: _Loop(sockets_s)) as runner:
        return runner.run(main())
