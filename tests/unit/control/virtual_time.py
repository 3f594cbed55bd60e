"""An event loop whose time passes at once: a test of seconds and minutes takes milliseconds and no sleep."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from typing_extensions import override

T = TypeVar("T")
VirtualTime = Callable[[], float]


class _Jumping(selectors.SelectSelector):
    """Instead of waiting, moves the time on."""

    now = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if found:
            return found
        if timeout is None:
            raise RuntimeError("everything waits, and nothing will ever happen")
        self.now += max(timeout, 0)
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    @override
    def time(self) -> float:
        return self._jumping.now


def run(scenario: Callable[[VirtualTime], Awaitable[T]]) -> T:
    """The scenario's result; its argument is the clock."""

    async def main() -> T:
        return await scenario(asyncio.get_running_loop().time)

    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main())
