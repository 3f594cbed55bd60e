import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from halcyon.dashboard import server_sent_events
from halcyon.dashboard.server_sent_events import ConnectionLimit, ConnectionLimitReached


async def frames(documents: list[bytes], *, looks: int, every_s: float = 1.0) -> list[bytes]:
    """Every frame of a stream that looks so often, at documents the last of which stays."""
    left = looks

    async def render() -> bytes:
        return documents.pop(0) if len(documents) > 1 else documents[0]

    async def ended(_: float) -> bool:
        nonlocal left
        left -= 1
        return left == 0

    stream: AsyncIterator[bytes] = server_sent_events.events("model", render, ended, interval_s=every_s)
    return [frame async for frame in stream]


async def test_a_document_is_sent_when_it_differs_from_the_one_before() -> None:
    sent = await frames([b"1", b"1", b"2", b"2", b"1"], looks=6)
    assert sent[0] == b"retry: 5000\n\n"
    assert sent[1:] == [b"event: model\ndata: %b\n\n" % text for text in (b"1", b"2", b"1")]


async def test_a_stream_that_says_nothing_shows_that_it_lives() -> None:
    sent = await frames([b"1"], looks=32)
    assert sent[1:] == [b"event: model\ndata: 1\n\n", b"event: beat\ndata: 0\n\n", b"event: beat\ndata: 0\n\n"]


async def test_an_exception_of_the_document_ends_the_stream() -> None:
    async def render() -> bytes:
        raise PermissionError("no more")

    stream = server_sent_events.events("model", render, ConnectionLimit().wait_closing)
    assert await anext(stream) == b"retry: 5000\n\n"
    with pytest.raises(PermissionError):
        await anext(stream)


def test_a_connection_limit_counts_seats_and_frees_those_left() -> None:
    streams = ConnectionLimit(limit=1)
    with streams.connection():
        with (
            pytest.raises(ConnectionLimitReached, match="1 pages are open at this replica; the limit is 1"),
            streams.connection(),
        ):
            pass
        assert streams.in_use == 1
    with streams.connection():
        assert streams.in_use == 1
    assert streams.in_use == 0


def test_one_user_cannot_take_all_seats() -> None:
    streams = ConnectionLimit(limit=8)
    with contextlib.ExitStack() as opened:
        for _ in range(2):
            opened.enter_context(streams.connection("eve"))
        with pytest.raises(ConnectionLimitReached, match="eve has 2 pages open at this replica; the limit is 2"):
            opened.enter_context(streams.connection("eve"))
        assert streams.in_use == 2
        opened.enter_context(streams.connection("ada"))
        # Without a sign-in, the users can't be told apart.
        for _ in range(5):
            opened.enter_context(streams.connection())
    assert streams.in_use == 0
    with streams.connection("eve"), streams.connection("eve"):
        pass


async def test_a_closing_limit_ends_all_streams_and_admits_none() -> None:
    streams = ConnectionLimit()
    waiting = asyncio.create_task(streams.wait_closing(3600))
    await asyncio.sleep(0)
    assert not waiting.done()
    streams.close()
    assert await waiting
    with pytest.raises(ConnectionLimitReached), streams.connection():
        pass


async def test_a_wait_ends_by_itself() -> None:
    assert not await ConnectionLimit().wait_closing(0)
