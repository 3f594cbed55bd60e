"""Faults in the events of one watch, for the proxy: which lines are sent, and when.

fault          effect
Lose           this event and all later ones are lost; the watch ends with an error frame, so the watcher lists again
Twice          the event is sent twice
Swap           the event is sent after the next one
Hold           the stream stands still for some seconds
Wait           the stream stands still until a gate opens
Frame          an error frame with this code is sent instead of the event, and the watch ends
Truncate       half of the event is sent, and the connection breaks
Silence        nothing is sent any more, and the connection stays open

No API server drops one event and goes on: a lost event is followed by a list. So `Lose` ends the watch with 410.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass

from halcyon.kube.kinds import Key

GATE_POLL_S = 0.05


@dataclass(frozen=True)
class WatchEvent:
    """An event of a watch, the argument of an event rule."""

    resource: str
    """Plural of the watched resource."""
    type: str
    """ADDED, MODIFIED or DELETED."""
    key: Key
    uid: str


@dataclass(frozen=True)
class Lose:
    """Lose this event and those of the next `for_s` seconds, then end the watch with 410."""

    for_s: float


@dataclass(frozen=True)
class Twice:
    """Send the event twice."""


@dataclass(frozen=True)
class Swap:
    """Send the event after the next one."""


@dataclass(frozen=True)
class Hold:
    """Send this event and all later ones after `for_s` seconds."""

    for_s: float


@dataclass(frozen=True)
class Wait:
    """Send this event and all later ones when the gate is set."""

    gate: threading.Event


@dataclass(frozen=True)
class Frame:
    """Send an error frame instead of the event, and end the watch."""

    status: int


@dataclass(frozen=True)
class Truncate:
    """Send half of the event, and break the connection."""


@dataclass(frozen=True)
class Silence:
    """Send nothing any more, with an open connection."""


WatchFault = Lose | Twice | Swap | Hold | Wait | Frame | Truncate | Silence
EventRule = Callable[[WatchEvent], WatchFault | None]


class BrokenWatchError(Exception):
    """The connection is to be broken."""


def error_frame(status: int) -> bytes:
    """Return an event that reports an error, as the API server sends it."""
    reason = {410: "Expired", 429: "TooManyRequests", 500: "InternalError", 504: "Timeout"}.get(status, "Unknown")
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason}
    return json.dumps({"type": "ERROR", "object": body | {"message": "injected by the proxy"}}).encode() + b"\n"


def event_of(resource: str, line: bytes) -> WatchEvent | None:
    """Return the event in a line; None if it is a bookmark or an error."""
    event = json.loads(line)
    if event["type"] not in {"ADDED", "MODIFIED", "DELETED"}:
        return None
    meta = event["object"]["metadata"]
    return WatchEvent(resource, event["type"], Key(meta.get("namespace", ""), meta["name"]), meta.get("uid", ""))


async def disturbed(resource: str, lines: AsyncIterable[bytes], rule: EventRule) -> AsyncIterator[bytes]:
    """Yield the lines to send for a watch with these lines.

    Raises:
        BrokenWatchError: the connection is to be broken.
    """
    swapped = b""
    async for line in lines:
        event = event_of(resource, line)
        fault = rule(event) if event is not None else None
        if isinstance(fault, Lose | Frame | Truncate | Silence):
            async for last in _end(fault, line):
                yield last
            return
        if isinstance(fault, Hold):
            await asyncio.sleep(fault.for_s)
        if isinstance(fault, Wait):
            while not fault.gate.is_set():  # noqa: ASYNC110  # the gate is another thread's
                await asyncio.sleep(GATE_POLL_S)
        if isinstance(fault, Swap) and not swapped:
            swapped = line
            continue
        for sent in (line, line if isinstance(fault, Twice) else b"", swapped):
            if sent:
                yield sent
        swapped = b""


async def _end(fault: Lose | Frame | Truncate | Silence, line: bytes) -> AsyncIterator[bytes]:
    match fault:
        case Lose(for_s):
            await asyncio.sleep(for_s)
            yield error_frame(410)
        case Frame(status):
            yield error_frame(status)
        case Truncate():
            yield line[: len(line) // 2]
            raise BrokenWatchError
        case Silence():
            await asyncio.Event().wait()
