"""kopf's loop at its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import kopf
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
        loop.set_exception_handler(kopf_watch._handle_loop_error)
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
    loop.set_exception_handler(kopf_watch._handle_loop_error)
    loop.call_exception_handler(context)
    loop.close()

    (message,) = (r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR)
    assert message.startswith(context["message"])


async def test_kopf_is_started_again_if_it_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    began: list[str] = []
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    async def broken(**options: Any) -> None:
        began.append(options["identity"])
        if len(began) == 3:
            loop.call_soon_threadsafe(stop.set)
            await options["stop_flag"].wait()
            return
        raise ValueError("no such kind")

    monkeypatch.setattr(kopf, "operator", broken)
    monkeypatch.setattr(kopf_watch, "RESTART_INTERVAL_S", 0.01)
    async with asyncio.timeout(20):
        await kopf_watch.keep(kopf.OperatorRegistry(), namespaces=(), identity="op-0", stop=stop)

    assert began == ["op-0"] * 3
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING] == ["kopf has ended"] * 2
