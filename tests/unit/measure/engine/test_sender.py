"""A client that can't keep up with its schedule gives requests up, and counts each of them."""

from __future__ import annotations

import asyncio
import time

from halcyon_measure.engine.event_loop import new_event_loop
from halcyon_measure.engine.recorder import Recorder
from halcyon_measure.engine.sender import Sender
from halcyon_measure.protocols.reply import Outcome, Prepared, Reply
from halcyon_measure.results.columns import Columns


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
    made = recorder.result()
    assert isinstance(made, Columns)
    counts = [int((made.outcome == outcome).sum()) for outcome in (Outcome.ANSWERED, Outcome.NOT_SENT)]
    assert sum(counts) == len(made) == 1000
    assert 1 <= counts[0] <= 100
    # Without giving up, they would take 20 s.
    assert took_s < 10
    assert recorder.messages == ["not sent: the client was more than 0.2 s late"]
