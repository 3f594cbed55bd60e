"""How long a batch waits before it repeats a request, and which failures are those of a row."""

from __future__ import annotations

import asyncio
import gc
import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon_batch.request_rows import RequestRows
from halcyon_batch.request_window import RequestWindow
from halcyon_batch.sender import Sender, retry_wait_s
from halcyon_measure.inputs.payloads import Payload
from halcyon_measure.protocols import target
from halcyon_measure.protocols.http_client import MAX_RETRY_AFTER_S, retry_after_s
from halcyon_measure.protocols.reply import Outcome, Prepared, Reply


@given(st.integers(0, 10**6), st.integers(1, 2000))
def test_a_wait_is_what_the_server_requires_and_at_most_ten_minutes(header: int, refused: int) -> None:
    requested_s = retry_after_s(str(header))
    assert min(header, 600) <= retry_wait_s(requested_s, refused) <= MAX_RETRY_AFTER_S == 600


@pytest.mark.parametrize(("refused", "least_s"), [(1, 0.25), (2, 0.5), (7, 16.0), (8, 30.0), (100, 30.0)])
def test_waits_double_up_to_half_a_minute(refused: int, least_s: float) -> None:
    assert least_s <= retry_wait_s(0.0, refused) <= 1.25 * least_s


class KeyedServer:
    """A model that answers only requests with the present API key."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.denied = 0

    def encode(self, payload: Payload) -> Prepared:
        return Prepared(b"", payload.rows)

    async def send(self, request: Prepared, number: int) -> Reply:  # noqa: ARG002  # the protocol's
        if dict(request.headers).get("Authorization") != f"Bearer {self.key}":
            self.denied += 1
            return Reply(Outcome.ERROR, "401: an API key is required", 0.0, b"", "")
        outputs = [{"name": "y", "datatype": "FP32", "shape": [request.rows, 1], "data": [1.0] * request.rows}]
        return Reply(Outcome.ANSWERED, "", 0.0, json.dumps({"model_name": "m", "outputs": outputs}).encode(), "")

    async def close(self) -> None:
        pass


async def test_smaller_requests_than_chosen_raise_the_limit_of_requests() -> None:
    to = target.parse("http://127.0.0.1:1", api="kserve", transport=None, encoding="json", model="m", timeout_s=1.0)
    server, window = KeyedServer("k"), RequestWindow(gentle=False)
    sender = Sender(
        server, to, window, RequestRows(fixed=8, most=8), lambda: (("Authorization", "Bearer k"),), clock=lambda: 0.0
    )
    for _ in range(10):
        await sender.outcomes([{"x": np.zeros(1, np.float32)}] * 3)
    assert window.limit == 7


async def test_rows_wait_for_a_new_key_while_keys_are_rotated() -> None:
    server, now, secret = KeyedServer("first"), 1000.0, "first"
    reasons: list[str] = []

    async def sleep(seconds: float) -> None:
        nonlocal now, secret
        now += seconds
        reasons.append(sender.waiting)
        if len(reasons) == 5:  # the kubelet updates the volume of the Secret
            secret = "second"
        await asyncio.sleep(0)

    to = target.parse("http://127.0.0.1:1", api="kserve", transport=None, encoding="json", model="m", timeout_s=1.0)
    sender = Sender(
        server,
        to,
        RequestWindow(gentle=False),
        RequestRows(fixed=2, most=8),
        lambda: (("Authorization", f"Bearer {secret}"),),
        clock=lambda: now,
        sleep=sleep,
    )
    rows = [{"x": np.zeros(1, np.float32)} for _ in range(2)]
    assert [list(outputs) for outputs in await sender.outcomes(rows)] == [["y"], ["y"]]
    server.key = "second"
    assert [list(outputs) for outputs in await sender.outcomes(rows)] == [["y"], ["y"]]
    assert server.denied == len(reasons) == 5
    assert set(reasons) == {"401: an API key is required"}
    assert sender.waiting == ""


async def test_rows_wait_while_balancers_route_another_name() -> None:
    """During a rollout that changes the name of the model, balancers route only one of the two names."""

    class RenamedServer(KeyedServer):
        """A model behind balancers that route another name for the first 20 requests."""

        async def send(self, request: Prepared, number: int) -> Reply:
            self.denied += 1
            if self.denied <= 20:
                return Reply(Outcome.ERROR, "404: not found: this address serves inference, readiness", 0.0, b"", "")
            return await super().send(request, number)

    async def sleep(_: float) -> None:
        await asyncio.sleep(0)

    to = target.parse("http://127.0.0.1:1", api="kserve", transport=None, encoding="json", model="m", timeout_s=1.0)
    keys = (("Authorization", "Bearer k"),)
    window, sizes = RequestWindow(gentle=False), RequestRows(fixed=2, most=8)
    sender = Sender(RenamedServer("k"), to, window, sizes, lambda: keys, clock=lambda: 0.0, sleep=sleep)
    outcomes = await sender.outcomes([{"x": np.zeros(1, np.float32)} for _ in range(2)])
    assert [outcome if isinstance(outcome, str) else "" for outcome in outcomes] == ["", ""]


async def test_batch_that_stops_during_the_first_half_leaves_no_coroutine() -> None:
    """A coroutine that was never awaited is a warning at the end of a run that was stopped."""

    class StoppedServer(KeyedServer):
        """A server that rejects requests of two rows, during whose next request the batch stops."""

        async def send(self, request: Prepared, number: int) -> Reply:  # noqa: ARG002  # the protocol's
            if request.rows > 1:
                return Reply(Outcome.ERROR, "400: a value is out of range", 0.0, b"", "")
            raise asyncio.CancelledError

    to = target.parse("http://127.0.0.1:1", api="kserve", transport=None, encoding="json", model="m", timeout_s=1.0)
    sender = Sender(
        StoppedServer("k"), to, RequestWindow(gentle=False), RequestRows(fixed=2, most=8), lambda: (), clock=lambda: 0.0
    )
    rows = [{"x": np.zeros(1, np.float32)} for _ in range(2)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(asyncio.CancelledError):
            await sender.outcomes(rows)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
