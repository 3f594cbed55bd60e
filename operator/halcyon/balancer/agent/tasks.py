"""Groups of tasks that end together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


async def until(event: asyncio.Event) -> None:
    """Wait for the event, and return None as the other tasks of a group do. `Event.wait` itself returns True."""
    await event.wait()


async def first(tasks: Sequence[asyncio.Future[None]]) -> None:
    """Wait until one of the tasks has ended, and raise its error if it failed."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def end(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel the tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
