"""Sending of a schedule: a client that can't keep up, the end of a number of requests, and expected answers."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from halcyon_measure.engine.event_loop import new_event_loop
from halcyon_measure.engine.job import Job
from halcyon_measure.engine.recorder import Recorder
from halcyon_measure.engine.sender import Sender, expected
from halcyon_measure.engine.worker import Usage, Worker
from halcyon_measure.errors import HookError
from halcyon_measure.protocols import target
from halcyon_measure.protocols.reply import Outcome, Prepared, Reply
from halcyon_measure.results.columns import Columns
from halcyon_measure.schedule.scenario import Scenario


class SlowClient:
    """A client that is busy for 20 ms with each request."""

    async def send(self, request: Prepared, number: int) -> Reply:
        time.sleep(0.02)  # noqa: ASYNC251  # the client's own work holds up its event loop
        return Reply(Outcome.ANSWERED, "", time.monotonic(), request.body, str(number))

    def encode(self, payload: object) -> Prepared:
        raise NotImplementedError

    async def close(self) -> None:
        return


def test_requests_that_are_late_by_the_timeout_are_not_sent() -> None:
    recorder = Recorder(measured_from=0.0)

    async def load() -> float:
        sender = Sender(SlowClient(), [Prepared(b"", 1)], recorder, stop=asyncio.Event())
        begin = time.monotonic()
        await sender.run_open((n / 1000 for n in range(1000)), begin=begin, max_in_flight=4096, give_up_s=0.2)
        ended = time.monotonic()
        await sender.drain(5)
        return ended - begin

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        took_s = runner.run(load())
    columns = recorder.result()
    assert isinstance(columns, Columns)
    counts = [int((columns.outcome == outcome).sum()) for outcome in (Outcome.ANSWERED, Outcome.NOT_SENT)]
    assert sum(counts) == len(columns) == 1000
    assert 1 <= counts[0] <= 100
    # Without giving up, they would take 20 s.
    assert took_s < 10
    assert recorder.messages == ["not sent: the client was more than 0.2 s late"]


class InstantSender:
    """A sender whose schedule is over at once."""

    def __init__(self) -> None:
        self.sent = 0
        self.has_sent = asyncio.Event()

    async def run_open(self, due_times: Iterator[float], **_: Any) -> None:
        self.sent = sum(1 for _ in due_times)
        self.has_sent.set()


@pytest.mark.parametrize(("requests", "ends"), [(11, True), (None, False), (100_000, False)])
def test_a_number_of_requests_ends_the_run_of_a_schedule(requests: int | None, ends: bool) -> None:
    to = target.parse("http://host", api="post", transport=None, encoding=None, model="")
    scenario = Scenario(kind="sustained", rate_rps=1000, duration_s=30, requests=requests)

    async def load() -> tuple[int, bool]:
        worker, sender = Worker(Job(target=to, scenario=scenario, index=1, workers=3), Usage()), InstantSender()
        now = time.monotonic()
        worker.command({"begin": now, "measure": now, "end": now + 30})
        loading = asyncio.create_task(worker._load(cast(Sender, sender)))
        await sender.has_sent.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        is_over = loading.done()
        loading.cancel()
        await asyncio.wait([loading])
        return sender.sent, is_over

    sent, is_over = asyncio.run(load())
    assert is_over is ends
    assert sent == 4 or (requests != 11 and sent > 9000)


def test_texts_of_a_file_are_the_expected_answer() -> None:
    check = expected(
        {"label": np.array(["cat", "élan"])}, lambda _: {"label": np.array([b"cat", "élan".encode()], object)}
    )
    other = expected({"label": np.array(["cat", "dog"])}, lambda _: {"label": np.array([b"cat", b"cow"], object)})
    reply = Reply(Outcome.ANSWERED, "", 0.0, b"", "")
    assert check(reply) == ""
    assert other(reply) == "wrong answer: label differs from the expected values"


class SlowHooks:
    """User functions, of which one takes longer than the load."""

    def __init__(self, slow: str) -> None:
        self.prepares, self.finishes = slow == "prepare", slow == "finish"

    async def prepare(self, number: int) -> Prepared:
        await asyncio.sleep(0 if number == 0 else 60)
        return Prepared(b"", 1)

    async def finish(self, _: Reply, number: int) -> float:
        await asyncio.sleep(0 if number == 0 else 60)
        return 0.0


@pytest.mark.parametrize(
    ("slow", "outcome", "message"),
    [
        ("prepare", Outcome.NOT_SENT, "not sent: prepare had not ended 0.1 s after the load"),
        ("finish", Outcome.TIMED_OUT, "its answer or finish had not ended 0.1 s after the load"),
    ],
)
def test_requests_of_a_slow_function_are_counted_each_once(slow: str, outcome: Outcome, message: str) -> None:
    recorder = Recorder(measured_from=0.0)

    async def load() -> None:
        hooks = cast(Any, SlowHooks(slow))
        sender = Sender(SlowClient(), [Prepared(b"", 1)], recorder, stop=asyncio.Event(), hooks=hooks)
        await sender.run_open(iter([0.0] * 5), begin=time.monotonic(), max_in_flight=8)
        await sender.drain(0.1)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(load())
    columns = recorder.result()
    assert isinstance(columns, Columns)
    assert sorted(columns.outcome.tolist()) == sorted([Outcome.ANSWERED, *[outcome] * 4])
    assert recorder.messages == [message]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_callers_of_a_slow_function_are_given_up_after_the_load(is_stopped: bool) -> None:
    recorder, stop = Recorder(measured_from=0.0), asyncio.Event()

    async def load() -> None:
        sender = Sender(SlowClient(), [Prepared(b"", 1)], recorder, stop=stop, hooks=cast(Any, SlowHooks("prepare")))
        end = math.inf if is_stopped else time.monotonic() + 0.3
        asyncio.get_running_loop().call_later(0.3, stop.set if is_stopped else lambda: None)
        await sender.run_blocking(Scenario(), callers=4, end=lambda: end, give_up_s=0.1)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(load(), 30))
    columns = recorder.result()
    assert isinstance(columns, Columns)
    assert sorted(columns.outcome.tolist()) == sorted([Outcome.ANSWERED, *[Outcome.NOT_SENT] * 4])
    assert recorder.messages == ["not sent: prepare had not ended 0.1 s after the load"]


def test_expected_texts_differ_from_the_numbers_of_an_answer() -> None:
    check = expected({"label": np.array(["cat", "dog"])}, lambda _: {"label": np.array([0.5, 1.5], np.float32)})
    assert check(Reply(Outcome.ANSWERED, "", 0.0, b"", "")) == "wrong answer: label differs from the expected values"


def test_function_error_ends_the_warm_up_of_a_schedule() -> None:
    to = target.parse("http://host", api="post", transport=None, encoding=None, model="")
    scenario = Scenario(kind="sustained", rate_rps=1000, duration_s=30)

    async def load() -> None:
        worker = Worker(Job(target=to, scenario=scenario), Usage())
        sender = Sender(SlowClient(), [], Recorder(), stop=worker._stop, hooks=cast(Any, FailingHooks()))
        worker.command({"begin": time.monotonic()})
        await asyncio.wait_for(worker._load(sender), 5)
        assert str(sender.error) == "hook.py, line 3"

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(load())


class FailingHooks:
    """User functions, of which `prepare` always raises an exception."""

    prepares, finishes = True, False

    async def prepare(self, _: int) -> Prepared:
        raise HookError("hook.py, line 3")
