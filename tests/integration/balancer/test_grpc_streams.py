"""Streams of gRPC on the real HAProxy 3.0: they stay with their server, and are told when it goes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import pytest

from halcyon.api.documents.balancer_plan import Slot
from tests.integration.balanced import PLAN, Balanced, endpoint, infer, is_, new_balanced, until
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_ins import SERVICE, Subprocess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.more

BRIEF = replace(PLAN, drain_ms=1000, queue_timeout_ms=60000, response_timeout_ms=60000)
STREAM_LOST = "the server of this stream is gone; open another"


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as instance:
        yield instance


@dataclass
class Stream:
    """One that sends its next message when the last was answered."""

    sent: int = 0
    who: list[str] = field(default_factory=list)
    last: int | None = None
    """It ends after so many messages; None where it has no end."""
    size: int = 1
    call: Any = None

    async def run(self, channel: grpc.Channel) -> tuple[str, str]:
        """Status and message in the end."""
        with ThreadPoolExecutor(1) as thread:
            return await asyncio.get_running_loop().run_in_executor(thread, self._run, channel)

    def _run(self, channel: grpc.Channel) -> tuple[str, str]:
        messages: SimpleQueue[bytes | None] = SimpleQueue()
        self.call = channel.stream_stream(SERVICE + "ModelStreamInfer")(iter(messages.get, None))
        try:
            while self.last is None or self.sent < self.last:
                messages.put(b"x" * self.size)
                self.sent += 1
                answer = next(self.call, None)
                if answer is None:
                    break
                self.who.append(bytes(answer).decode())
                time.sleep(0.01)
            else:
                messages.put(None)
                assert next(self.call, None) is None
        except grpc.RpcError:
            pass  # its status tells
        finally:
            messages.put(None)
        return self.call.code().name, str(self.call.details())

    async def reaches(self, count: int) -> None:
        await until(lambda: is_(lambda: len(self.who) >= count))


async def broken(balanced: Balanced) -> int:
    return (await balanced.haproxy.runtime.read()).broken


async def test_a_stream_that_ends_by_itself_is_ok_whatever_its_size(balanced: Balanced) -> None:
    [pod] = await balanced.start()
    await balanced.begin(BRIEF)
    with balanced.threaded_channel() as channel:
        for size in (1, 20_000, 300_000):
            stream = Stream(last=5, size=size)
            assert await stream.run(channel) == ("OK", "")
            assert stream.who == [pod.address] * 5
    reading = await balanced.haproxy.runtime.read()
    assert (reading.broken, reading.errors, reading.requests) == (0, 0, 3)


@pytest.mark.parametrize("message", ["a, b", 'of "m", 50 % + %[x], ä, b', ","])
async def test_a_server_that_rejects_a_stream_has_its_whole_message_sent(balanced: Balanced, message: str) -> None:
    await balanced.start(code=grpc.StatusCode.FAILED_PRECONDITION, message=message)
    await balanced.begin(BRIEF)
    with balanced.threaded_channel() as channel:
        assert await Stream().run(channel) == ("FAILED_PRECONDITION", message)


@pytest.mark.parametrize(
    ("message", "status"),
    [("Unable to parse request", "INVALID_ARGUMENT"), ("in ensemble, Unable to parse request", "INTERNAL")],
)
async def test_only_triton_s_own_message_makes_a_call_malformed(balanced: Balanced, message: str, status: str) -> None:
    await balanced.start(code=grpc.StatusCode.INTERNAL, message=message)
    await balanced.begin(BRIEF)
    async with balanced.channel as channel:
        with pytest.raises(grpc.RpcError) as error:
            await infer(channel)
    assert (error.value.code().name, error.value.details()) == (status, message)


async def test_streams_of_one_channel_are_spread_and_each_stays_at_its_server(balanced: Balanced) -> None:
    pods = await balanced.start(3)
    await balanced.begin(replace(BRIEF, max_connections=16))
    with balanced.threaded_channel() as channel:
        streams = [Stream() for _ in range(12)]
        running = [asyncio.create_task(stream.run(channel)) for stream in streams]
        # All at the same time: one that has ended makes room for another.
        for stream in streams:
            await stream.reaches(1)
        for stream in streams:
            stream.last = stream.sent + 20
        assert set(await asyncio.gather(*running)) == {("OK", "")}
    assert all(len(set(stream.who)) == 1 for stream in streams)
    counts = [sum(stream.who[0] == pod.address for stream in streams) for pod in pods]
    assert counts == [4, 4, 4]


async def test_a_drain_gives_streams_its_time_and_ends_them_as_unavailable(balanced: Balanced) -> None:
    [pod] = await balanced.start()
    await balanced.begin(replace(BRIEF, drain_ms=3000))
    [other] = await balanced.start()
    clock = asyncio.get_running_loop().time
    with balanced.threaded_channel() as channel:
        stream, ends = Stream(), Stream(last=12)
        running = asyncio.create_task(stream.run(channel))
        ending = asyncio.create_task(ends.run(channel))
        await stream.reaches(5)
        began = clock()
        leaving = (endpoint(pod, terminating=True, serving=True), endpoint(other))
        while not running.done():
            await balanced.pilot.run_pass(leaving)
            await asyncio.sleep(0.02)
        lasted_s = clock() - began
        assert await running == ("UNAVAILABLE", STREAM_LOST)
        # Nothing was lost before the deadline: each message was answered, but the one under way at the end.
        assert 2.9 <= lasted_s < 4.5 * PATIENCE
        assert len(stream.who) >= stream.sent - 1
        assert await ending == ("OK", ""), "one that is over within the drain is whole"
        assert len(ends.who) == 12
        assert set(stream.who + ends.who) == {pod.address}
        fresh = Stream(last=1)
        assert await fresh.run(channel) == ("OK", "")
        assert fresh.who == [other.address]
    assert await broken(balanced) == 1


async def test_a_killed_server_ends_its_streams_as_unavailable_and_no_others(balanced: Balanced) -> None:
    await balanced.start()
    victim = balanced.pod()
    process = await Subprocess(victim).start()
    try:
        pods = [*balanced.pods, victim]
        balanced.pilot.accept(BRIEF)
        await balanced.turn(pods)
        await asyncio.to_thread(balanced.haproxy.start)
        await balanced.turn(pods)
        with balanced.threaded_channel() as channel:
            streams = [Stream(last=200) for _ in range(4)]
            tasks = [asyncio.create_task(stream.run(channel)) for stream in streams]
            for stream in streams:
                await stream.reaches(3)
            lost = [stream.who[0] == victim.address for stream in streams]
            assert sum(lost) == 2
            await process.kill()
            results = await asyncio.gather(*tasks)
        assert [status for status, _ in results] == ["UNAVAILABLE" if is_lost else "OK" for is_lost in lost]
        assert await broken(balanced) == 2
    finally:
        await process.kill()


async def test_a_client_that_goes_is_not_counted(balanced: Balanced) -> None:
    [pod] = await balanced.start()
    await balanced.begin(BRIEF)
    with balanced.threaded_channel() as channel:
        stream = Stream()
        running = asyncio.create_task(stream.run(channel))
        await stream.reaches(3)
        stream.call.cancel()
        assert (await running)[0] == "CANCELLED"

    async def is_empty() -> bool:
        return (await balanced.haproxy.runtime.read()).inflight == 0

    await until(is_empty)
    assert await broken(balanced) == 0
    assert pod.grpc_count >= 3


async def test_a_stream_outlives_a_reload_and_new_streams_follow_the_new_weights(balanced: Balanced) -> None:
    a, b = await balanced.start(2)
    slots = (Slot("a", "m-server-a", 100, 4), Slot("b", "m-server-b", 0, 4))
    both = (endpoint(a), endpoint(b, "b"))
    balanced.pilot.accept(replace(BRIEF, slots=slots))
    await balanced.pilot.run_pass(both)
    await asyncio.to_thread(balanced.haproxy.start)
    await balanced.pilot.run_pass(both)
    with balanced.threaded_channel(retries=True) as channel:
        stream = Stream(last=150)
        running = asyncio.create_task(stream.run(channel))
        await stream.reaches(5)
        balanced.pilot.accept(replace(BRIEF, slots=(replace(slots[0], weight=0), replace(slots[1], weight=100))))
        await balanced.pilot.run_pass(both)
        await balanced.pilot.run_pass(both)
        assert balanced.pilot.reloads == 1
        fresh = Stream(last=3)
        with balanced.threaded_channel() as another:
            assert await fresh.run(another) == ("OK", "")
        assert set(fresh.who) == {b.address}
        assert await running == ("OK", "")
        assert stream.who == [a.address] * 150
    # The old process has nothing left to wait for.
    await until(lambda: is_(lambda: len(balanced.haproxy.workers()) == 1))


async def half_closed(balanced: Balanced, messages: int) -> grpc.Call:
    """Send so many messages, end the client's part of the stream, and return the call after the first response."""
    channel = balanced.threaded_channel()
    call = channel.stream_stream(SERVICE + "ModelStreamInfer")(iter([b"x"] * messages), timeout=20 * PATIENCE)
    call.add_done_callback(lambda _: channel.close())
    await asyncio.to_thread(next, call)
    return call


def status(call: grpc.Call) -> tuple[str, str]:
    with contextlib.suppress(grpc.RpcError):
        list(call)
    return call.code().name, str(call.details())


async def test_response_timeout_of_a_half_closed_stream_is_a_deadline(balanced: Balanced) -> None:
    [pod] = await balanced.start(delay_s=0.5)
    await balanced.begin(replace(BRIEF, response_timeout_ms=2000))
    call = await half_closed(balanced, 2)
    pod.delay_s = 0.0
    assert await asyncio.to_thread(status, call) == ("OK", "")
    pod.delay_s = 0.5
    call = await half_closed(balanced, 3)
    pod.delay_s = 60.0
    # The second message may have been in the pod already.
    assert await asyncio.to_thread(status, call) == ("DEADLINE_EXCEEDED", "the server did not respond in time")
    assert await broken(balanced) == 1


async def test_half_closed_stream_of_a_killed_server_is_unavailable(balanced: Balanced) -> None:
    victim = balanced.pod(delay_s=2.0)
    process = await Subprocess(victim).start()
    await balanced.begin(replace(BRIEF, response_timeout_ms=15000))
    await balanced.turn([victim])
    try:
        call = await half_closed(balanced, 2)
        await process.kill()
        assert await asyncio.to_thread(status, call) == ("UNAVAILABLE", STREAM_LOST)
    finally:
        await process.kill()


async def test_streams_of_a_replaced_process_end_as_unavailable(balanced: Balanced) -> None:
    await balanced.start()
    plan = replace(BRIEF, queue_timeout_ms=500, response_timeout_ms=500)
    await balanced.begin(plan)
    clock = asyncio.get_running_loop().time
    with balanced.threaded_channel() as channel:
        # One sends all the time, and one is silent after its first message.
        busy, messages = Stream(), SimpleQueue[bytes | None]()
        running = asyncio.create_task(busy.run(channel))
        resting = channel.stream_stream(SERVICE + "ModelStreamInfer")(iter(messages.get, None))
        messages.put(b"x")
        await asyncio.to_thread(next, resting)
        await busy.reaches(1)
        began = clock()
        balanced.pilot.accept(replace(plan, queue_limit=plan.queue_limit + 1))
        while not running.done() or resting.is_active():
            await balanced.turn()
            await asyncio.sleep(0.1)
        messages.put(None)
        # The process would reset them after 7 s.
        assert 3.0 <= clock() - began < 7.0 * PATIENCE
        assert await running == ("UNAVAILABLE", STREAM_LOST)
        assert (resting.code().name, resting.details()) == ("UNAVAILABLE", STREAM_LOST)


@pytest.mark.parametrize(
    ("pauses_s", "expected", "answered"),
    [
        ([0.6] * 4, ("OK", ""), 4),
        ([20.0], ("DEADLINE_EXCEEDED", "the server did not respond in time"), 0),
        ([0.0, 20.0], ("DEADLINE_EXCEEDED", "the server did not respond in time"), 1),
    ],
    ids=["active", "before", "after"],
)
async def test_half_closed_streams_end_only_after_a_pause_of_the_response_timeout(
    balanced: Balanced, monkeypatch: pytest.MonkeyPatch, pauses_s: list[float], expected: tuple[str, str], answered: int
) -> None:
    [pod] = await balanced.start()
    await balanced.begin(replace(BRIEF, response_timeout_ms=1500))
    left = iter(pauses_s)
    monkeypatch.setattr(pod, "_work", lambda: asyncio.sleep(next(left)))
    answers: list[bytes] = []

    def run(channel: grpc.Channel) -> tuple[str, str]:
        call = channel.stream_stream(SERVICE + "ModelStreamInfer")(iter([b"x"] * len(pauses_s)))
        with contextlib.suppress(grpc.RpcError):
            answers.extend(call)
        return status(call)

    with balanced.threaded_channel() as channel:
        assert await asyncio.to_thread(run, channel) == expected
    assert len(answers) == answered
