"""Rows that end the server's process: they fail alone, soon, and wherever they are in the data set."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import numpy as np
import pytest

from halcyon_batch.request_rows import RequestRows
from halcyon_batch.request_window import RequestWindow
from halcyon_batch.sender import Sender
from halcyon_measure.inputs.payloads import Payload
from halcyon_measure.protocols import target
from halcyon_measure.protocols.reply import Outcome, Prepared, Reply

_TOO_OFTEN = 60
_FAILURE = "the server ends at this row, or doesn't answer it: the connection broke"


class Crashing:
    """A server whose process ends at a negative row, together with all other requests in progress, or as long as it is down."""

    def __init__(self, is_down: Callable[[], bool] = lambda: False) -> None:
        self.is_down, self.starts, self.lost = is_down, 0, 0

    def encode(self, payload: Payload) -> Prepared:
        return Prepared(payload.tensors["x"].tobytes(), payload.rows)

    async def send(self, request: Prepared, number: int) -> Reply:  # noqa: ARG002  # the protocol's
        began, values = self.starts, np.frombuffer(request.body, np.float32)
        await asyncio.sleep(0)
        if (values < 0).any():
            self.starts += 1
            assert self.starts < _TOO_OFTEN, "the row is sent without an end"
        await asyncio.sleep(0)
        if began != self.starts or self.is_down():
            self.lost += 1
            return Reply(Outcome.DISCONNECTED, "the connection broke", 0.0, b"", "")
        outputs = [{"name": "y", "datatype": "FP32", "shape": [len(values), 1], "data": values.tolist()}]
        return Reply(Outcome.ANSWERED, "", 0.0, json.dumps({"model_name": "m", "outputs": outputs}).encode(), "")

    async def close(self) -> None:
        pass


class Clock:
    """A clock that a sleep sets forward."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def sender_to(server: Crashing, clock: Clock, rows: int | None) -> Sender:
    to = target.parse("http://127.0.0.1:1", api="kserve", transport=None, encoding="json", model="m", timeout_s=1.0)
    sizes = RequestRows(fixed=rows, most=8)
    return Sender(server, to, RequestWindow(gentle=False), sizes, clock=clock, sleep=clock.sleep)


async def sent(sender: Sender, values: list[float]) -> list[float | str]:
    """Send a request with these rows, and return the value of each row, or the reason why it has none."""
    await asyncio.wait_for(sender.enter(), 5)
    try:
        rows = [{"x": np.array([[value]], np.float32)} for value in values]
        outcomes = await sender.outcomes(rows)
    finally:
        await sender.leave()
    return [outcome if isinstance(outcome, str) else float(outcome["y"].item()) for outcome in outcomes]


@pytest.mark.parametrize("place", [0, 3, 7])
async def test_a_row_that_ends_the_server_fails_in_the_only_request(place: int) -> None:
    server, values = Crashing(), [float(n) for n in range(8)]
    values[place] = -1.0
    expected: list[float | str] = [value if value >= 0 else _FAILURE for value in values]
    assert await sent(sender_to(server, Clock(), 8), values) == expected
    assert server.starts <= 12


async def test_a_first_row_that_ends_the_server_lets_others_follow() -> None:
    server, clock = Crashing(), Clock()
    sender = sender_to(server, clock, None)
    bad = asyncio.ensure_future(sent(sender, [-1.0]))
    for _ in range(8):
        await asyncio.sleep(0)
    assert await sent(sender, [1.0]) == [1.0]
    assert await bad == [_FAILURE]
    assert server.starts <= 10


async def test_a_last_row_that_ends_the_server_fails_without_others() -> None:
    server = Crashing()
    sender = sender_to(server, Clock(), 1)
    assert await sent(sender, [1.0]) == [1.0]
    assert await sent(sender, [-1.0]) == [_FAILURE]
    assert server.starts <= 5
    assert await sent(sender, [2.0]) == [2.0]


async def test_requests_beside_a_bad_row_have_their_results() -> None:
    server = Crashing()
    sender = sender_to(server, Clock(), 1)
    for _ in range(40):
        await sent(sender, [0.0])
    values = [float(n) if n != 7 else -1.0 for n in range(30)]
    results = await asyncio.gather(*(sent(sender, [value]) for value in values))
    assert results == [[value] if value >= 0 else [_FAILURE] for value in values]
    assert server.starts <= 6


async def test_an_outage_fails_no_row() -> None:
    clock = Clock()
    server = Crashing(lambda: 10.0 < clock.now < 3000.0)
    sender = sender_to(server, clock, 4)
    for _ in range(20):
        await sent(sender, [0.0] * 4)
    clock.now = 11.0
    results = await asyncio.gather(*(sent(sender, [float(n)] * 4) for n in range(12)))
    assert results == [[float(n)] * 4 for n in range(12)]
    assert server.lost < 1000


async def test_a_row_is_not_blamed_for_a_server_that_loads_its_model() -> None:
    server, refused = Crashing(), 0
    send = server.send

    async def sometimes_loading(request: Prepared, number: int) -> Reply:
        nonlocal refused
        if np.frombuffer(request.body, np.float32)[0] == 1.0 and refused < 20:  # by chance always this one
            refused += 1
            return Reply(Outcome.ERROR, "400: Request for unknown model: 'm' is not ready", 0.0, b"", "")
        return await send(request, number)

    server.send = sometimes_loading  # type: ignore[method-assign]
    sender = sender_to(server, Clock(), 1)
    assert await sent(sender, [0.0]) == [0.0]
    assert await sent(sender, [1.0]) == [1.0]
    assert refused == 20


class Stubborn(Crashing):
    """A server whose Python process ends at a negative row. Each request then fails, until its container restarts."""

    def __init__(self, clock: Clock, *, restart_s: float = 20.0) -> None:
        super().__init__()
        self._clock, self._restart_s, self._dead_until_s = clock, restart_s, -1.0

    async def send(self, request: Prepared, number: int) -> Reply:
        if (np.frombuffer(request.body, np.float32) < 0).any() and self._clock.now >= self._dead_until_s:
            self.starts, self._dead_until_s = self.starts + 1, self._clock.now + self._restart_s
        if self._clock.now >= self._dead_until_s:
            return await super().send(request, number)
        await asyncio.sleep(0)
        text = "500: Failed to process the request(s) for model 'm', message: Stub process 'm_0' is not healthy."
        return Reply(Outcome.ERROR, text, 0.0, b"", "")


async def test_rows_beside_a_dead_python_process_have_their_results() -> None:
    clock = Clock()
    server = Stubborn(clock)
    sender = sender_to(server, clock, 1)
    for _ in range(40):
        await sent(sender, [0.0])
    values = [float(n) if n != 7 else -1.0 for n in range(30)]
    results = await asyncio.gather(*(sent(sender, [value]) for value in values))
    assert [result for result in results if not isinstance(result[0], str)] == [[n] for n in values if n >= 0]
    assert "the server ends at this row" in str(results[7][0])
    assert "Stub process 'm_0' is not healthy" in str(results[7][0])
    assert server.starts <= 6
