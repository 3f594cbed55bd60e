"""Faults in the events of a watch: what is sent instead of what came."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator

import pytest

from halcyon.kube.kinds import Key
from tests.faults.plans import name_of
from tests.integration.watch_faults import (
    BrokenWatchError,
    Frame,
    Lose,
    Swap,
    Truncate,
    Twice,
    Wait,
    WatchEvent,
    WatchFault,
    disturbed,
)


def line(name: str, kind: str = "MODIFIED") -> bytes:
    meta = {"namespace": "n", "name": name, "uid": f"uid-{name}"}
    return json.dumps({"type": kind, "object": {"metadata": meta}}).encode() + b"\n"


async def lines(*events: bytes) -> AsyncIterator[bytes]:
    for event in events:
        yield event


def sent(fault: WatchFault, *events: bytes) -> list[bytes]:
    """The lines that are sent if the fault is that of the event of b."""

    async def collect() -> list[bytes]:
        received: list[bytes] = []
        try:
            async for line in disturbed("services", lines(*events), lambda e: fault if e.key.name == "b" else None):
                received.append(line)  # noqa: PERF401  # those before an error count
        except BrokenWatchError:
            received.append(b"broken")
        return received

    return asyncio.run(collect())


A, B, C = (line(name) for name in "abc")
BOOKMARK = line("b", "BOOKMARK")


def test_events_are_repeated_and_swapped() -> None:
    assert sent(Twice(), A, B, C) == [A, B, B, C]
    assert sent(Swap(), A, B, C) == [A, C, B]
    assert sent(Swap(), A, B, BOOKMARK) == [A, BOOKMARK, B]


def test_a_lost_event_is_followed_by_an_expired_watch() -> None:
    first, last = sent(Lose(0.0), A, B, C)
    assert first == A
    assert json.loads(last)["object"]["code"] == 410


def test_an_error_frame_ends_the_watch() -> None:
    first, last = sent(Frame(500), A, B, C)
    assert (first, json.loads(last)["object"]["code"]) == (A, 500)


def test_a_truncated_event_breaks_the_connection() -> None:
    assert sent(Truncate(), A, B, C) == [A, B[: len(B) // 2], b"broken"]


def test_events_wait_for_an_open_gate_only() -> None:
    gate = threading.Event()
    gate.set()
    assert sent(Wait(gate), A, B, C) == [A, B, C]


@pytest.mark.parametrize(
    ("resource", "name", "expected"),
    [
        ("services", "m", "services:ADDED:m"),
        ("pods", "m-a-6b7f9c8d5-x2x4z", "pods:ADDED:m-a-*"),
    ],
)
def test_names_of_events_leave_out_random_parts(resource: str, name: str, expected: str) -> None:
    assert name_of(WatchEvent(resource, "ADDED", Key("n", name), "u")) == expected
