"""kopf's loop at its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from halcyon.control.runtime import kopf_watch


async def endless() -> AsyncIterator[int]:
    while True:
        await asyncio.sleep(3600)
        yield 0


async def closed_twice(*, handler: bool) -> None:
    """A loop closes a generator that a task is in."""
    loop = asyncio.get_running_loop()
    if handler:
        loop.set_exception_handler(kopf_watch._ended_anyway)
    inside = asyncio.ensure_future(anext(endless()))
    await asyncio.sleep(0)
    await loop.shutdown_asyncgens()
    inside.cancel()
    await asyncio.wait({inside})


@pytest.mark.parametrize(("handler", "errors"), [(False, 1), (True, 0)])
def test_a_watch_that_is_closing_already_is_no_error(
    caplog: pytest.LogCaptureFixture, handler: bool, errors: int
) -> None:
    asyncio.run(closed_twice(handler=handler))

    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == errors


@pytest.mark.parametrize(
    "context",
    [
        {"message": "Task exception was never retrieved", "exception": RuntimeError("x")},
        {"message": "a watch can't be closed", "asyncgen": None, "exception": ConnectionError("x")},
    ],
)
def test_other_failures_of_the_loop_are_reported(caplog: pytest.LogCaptureFixture, context: dict[str, Any]) -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(kopf_watch._ended_anyway)
    loop.call_exception_handler(context)
    loop.close()

    (told,) = (r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR)
    assert told.startswith(context["message"])
