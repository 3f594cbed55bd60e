"""The agents' streams, over real connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import pytest
from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer

from halcyon.api.documents.observation_report import AUDIENCE, STREAM_PATH
from halcyon.kube.auth.callers import AgentIdentity
from halcyon.signals import collector as module
from halcyon.signals.agents import model_of_account
from halcyon.signals.collector import Collector
from halcyon.signals.observation_store import ObservationStore
from tests.unit.signals.records import haproxy, record, triton

ACCOUNT = "system:serviceaccount:ns:m-balancer"
AGENT = AgentIdentity(ACCOUNT, "m-balancer-0")


class Accounts:
    """Tokens and whose they are; counts how often it was asked."""

    def __init__(self) -> None:
        self.known = {
            "good": AGENT,
            "unbound": AgentIdentity(ACCOUNT, ""),
            "gone": AgentIdentity("system:serviceaccount:ns:gone-balancer", "gone-balancer-0"),
            "other": AgentIdentity("system:serviceaccount:ns:default", "p"),
            "person": AgentIdentity("alice", ""),
        }
        self.reviews = 0
        self.down = False
        self.answers: asyncio.Event | None = None
        """Where there is one, nobody is told anything before."""

    async def __call__(self, token: str, audience: str) -> AgentIdentity | None:
        assert audience == AUDIENCE
        self.reviews += 1
        if self.down:
            raise ConnectionError("no API server")
        if self.answers is not None:
            await self.answers.wait()
        return self.known.get(token)


class Cluster:
    """Models of the namespace `ns`, each with any number of pods called `NAME-a-NUMBER`."""

    def __init__(self) -> None:
        self.synced = True
        self.models = {"m", "other"}

    def has_model(self, namespace: str, name: str) -> bool:
        return namespace == "ns" and name in self.models

    def has_pod(self, namespace: str, name: str, pod: str) -> bool:
        return self.has_model(namespace, name) and pod.startswith(f"{name}-a-")


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class ServedCollector:
    """A collector that is served."""

    client: TestClient[web.Request, web.Application]

    def __init__(self) -> None:
        self.accounts, self.clock, self.hub = Accounts(), Clock(), ObservationStore()
        self.cluster = Cluster()
        self.collector = Collector(self.hub, self.accounts, self.cluster, monotonic=self.clock)

    async def connect(self, token: str | None = "good") -> aiohttp.ClientWebSocketResponse:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return await self.client.ws_connect(STREAM_PATH, headers=headers)

    async def refused(self, token: str | None) -> int:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await self.connect(token)
        return caught.value.status

    def has_accepted(self, records: int) -> bool:
        return self.count("accepted") == records

    def count(self, result: str) -> float:
        return float(self.collector.reports.labels(result)._value.get())


@asynccontextmanager
async def served() -> AsyncIterator[ServedCollector]:
    scene = ServedCollector()
    app = web.Application()
    app.add_routes(scene.collector.routes())
    async with TestClient(TestServer(app)) as client:
        scene.client = client
        yield scene


async def closed_with(stream: aiohttp.ClientWebSocketResponse) -> int | None:
    message = await stream.receive(timeout=5)
    assert message.type in {WSMsgType.CLOSE, WSMsgType.CLOSED}
    return stream.close_code


def transport_of(stream: aiohttp.ClientWebSocketResponse) -> asyncio.Transport:
    connection = stream._response.connection
    assert connection is not None
    assert isinstance(connection.transport, asyncio.Transport)
    return connection.transport


async def until(condition: Callable[[], Any]) -> None:
    """Lets the server run until it has seen what was sent."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # a counter has no event to wait for
            await asyncio.sleep(0)


async def test_a_report_of_the_tokens_model_reaches_the_store() -> None:
    async with served() as scene:
        stream = await scene.connect()
        await stream.send_str(record(0, triton(), balancer=haproxy(7)).to_json())
        await until(lambda: scene.count("accepted"))
        observation = scene.hub.observe("ns", "m", scene.clock())
        assert observation is not None
        assert observation.balancers[0].points[-1].queued == 7
        await stream.close()


@pytest.mark.parametrize(
    ("token", "status"),
    [(None, 401), ("", 401), ("unknown", 401), ("other", 403), ("person", 403), ("unbound", 403), ("gone", 403)],
)
async def test_a_caller_that_is_not_a_balancer_is_refused(token: str | None, status: int) -> None:
    async with served() as scene:
        assert await scene.refused(token) == status


async def test_an_unreachable_authenticator_gives_no_verdict() -> None:
    async with served() as scene:
        scene.accounts.down = True
        assert await scene.refused("good") == 503


async def test_an_agent_that_goes_away_before_its_stream_begins_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    scene = ServedCollector()
    scene.accounts.answers = asyncio.Event()
    app = web.Application()
    app.add_routes(scene.collector.routes())
    # aiohttp's test server would cancel the handler of whoever hangs up, which the real one doesn't.
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession() as session:
            host, port = runner.addresses[0]
            hangs_up = asyncio.create_task(
                session.ws_connect(f"http://{host}:{port}{STREAM_PATH}", headers={"Authorization": "Bearer good"})
            )
            await until(lambda: scene.collector.waiting)
            hangs_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hangs_up
        assert runner.server is not None
        (connection,) = runner.server.connections
        await until(lambda: connection.transport is None)
        with caplog.at_level("DEBUG", module.__name__):
            scene.accounts.answers.set()
            await until(lambda: "disconnected before its stream began" in caplog.text)
        await asyncio.sleep(0)
    finally:
        await runner.cleanup()
    assert [r.levelname for r in caplog.records if r.levelno > logging.DEBUG] == []
    assert scene.collector._per_model == {}


@pytest.mark.parametrize("foreign", [{"name": "other"}, {"namespace": "elsewhere"}, {"agent": "m-balancer-1"}])
async def test_an_agent_that_reports_another_model_is_cut_off(foreign: dict[str, Any]) -> None:
    async with served() as scene:
        stream = await scene.connect()
        await stream.send_str(record(0, **foreign).to_json())
        assert await closed_with(stream) == WSCloseCode.POLICY_VIOLATION
        assert scene.count("forbidden") == 1
        assert list(scene.hub.models()) == []


UNSENT = record(0).to_json().replace('"sent":null', '"sent":"soon"')


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "[" * 90_000, '{"version":' + "9" * 5000 + "}", '{"version":99}', UNSENT]
)
async def test_garbage_is_cut_off(text: str) -> None:
    async with served() as scene:
        stream = await scene.connect()
        await stream.send_str(text)
        assert await closed_with(stream) == WSCloseCode.INVALID_TEXT
        assert scene.count("malformed") == 1


async def test_bytes_are_garbage() -> None:
    async with served() as scene:
        stream = await scene.connect()
        await stream.send_bytes(b"\x00")
        assert await closed_with(stream) == WSCloseCode.INVALID_TEXT


async def test_a_message_that_is_too_large_is_cut_off() -> None:
    async with served() as scene:
        stream = await scene.connect()
        await stream.send_str(" " * (module.MAX_BYTES + 1))
        assert await closed_with(stream) == WSCloseCode.MESSAGE_TOO_BIG


async def test_the_largest_model_fits_into_a_message() -> None:
    pods = [
        triton(
            f"{'n' * 52}-a-7d9f8b6c5d-{n:05d}", versions=("1",), failed=10**9, backend_failed=10**9, succeeded=10**12,
            rows=10**12, executions=10**12, queue_us=10**15, compute_us=10**15, pending=10**5, gpu=0.123456789, at=0.123456,
        )
        for n in range(1250)
    ]  # fmt: skip
    text = record(0, *pods, namespace="n" * 63).to_json()
    assert len(text) < module.MAX_BYTES


async def test_a_flood_is_cut_off_and_a_steady_stream_is_not() -> None:
    async with served() as scene:
        stream = await scene.connect()
        for n in range(60):
            scene.clock.now += 1.0
            await stream.send_str(record(n).to_json())
            await until(partial(scene.has_accepted, n + 1))
        for n in range(60, 90):
            await stream.send_str(record(n).to_json())
        assert await closed_with(stream) == WSCloseCode.POLICY_VIOLATION
        assert scene.count("accepted") == 59 + module.MAX_BURST
        assert scene.count("rate_limited") == 1


async def test_a_token_that_cannot_be_checked_now_is_sent_again_soon() -> None:
    async with served() as scene:
        scene.accounts.down = True
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await scene.connect("good")
        assert caught.value.status == 503
        assert caught.value.headers is not None
        assert caught.value.headers["Retry-After"] == str(module.RETRY_AFTER_S)


async def test_an_accepted_token_is_not_reviewed_again_within_a_minute() -> None:
    async with served() as scene:
        for _ in range(3):
            await (await scene.connect()).close()
        assert scene.accounts.reviews == 1
        scene.clock.now += module.MAX_TOKEN_AGE_S
        await (await scene.connect()).close()
        assert scene.accounts.reviews == 2


async def test_a_refused_token_is_reviewed_each_time() -> None:
    async with served() as scene:
        assert await scene.refused("late") == 401
        scene.accounts.known["late"] = AGENT
        await (await scene.connect("late")).close()


async def test_a_stream_ends_when_its_token_has_been_revoked() -> None:
    async with served() as scene:
        stream = await scene.connect()
        scene.accounts.known.clear()
        scene.clock.now += module.REVIEW_INTERVAL_S
        await stream.send_str(record(0).to_json())
        assert await closed_with(stream) == WSCloseCode.POLICY_VIOLATION
        assert (scene.count("accepted"), scene.count("forbidden")) == (1, 0)


async def test_a_stream_outlives_an_api_server_that_is_away() -> None:
    async with served() as scene:
        stream = await scene.connect()
        scene.accounts.down = True
        scene.clock.now += module.REVIEW_INTERVAL_S
        await stream.send_str(record(0).to_json())
        await until(lambda: scene.count("accepted"))
        await stream.close()


async def test_absurd_values_are_counted_and_not_believed() -> None:
    async with served() as scene:
        stream = await scene.connect()
        await stream.send_str(record(0, triton(gpu=80.0, pending=-1), balancer=haproxy(-3)).to_json())
        await until(lambda: scene.count("accepted"))
        assert scene.collector.implausible._value.get() == 3
        await stream.close()


async def test_streams_per_model_are_bounded() -> None:
    async with served() as scene:
        streams = [await scene.connect() for _ in range(module.MAX_STREAMS)]
        assert await scene.refused("good") == 503
        await streams[0].close()
        await until(lambda: scene.collector.streams._value.get() == module.MAX_STREAMS - 1)
        await (await scene.connect()).close()
        for stream in streams[1:]:
            await stream.close()


async def test_a_stopping_operator_says_goodbye() -> None:
    async with served() as scene:
        stream = await scene.connect()
        await until(lambda: scene.collector.streams._value.get() == 1)
        closing = asyncio.ensure_future(scene.collector.close())
        assert await closed_with(stream) == WSCloseCode.GOING_AWAY
        await closing


@pytest.mark.parametrize(
    ("username", "model"),
    [
        ("system:serviceaccount:ns:m-balancer", ("ns", "m")),
        ("system:serviceaccount:ns:m-balancer-balancer", ("ns", "m-balancer")),
        ("system:serviceaccount:ns:-balancer", None),
        ("system:serviceaccount:ns:m", None),
        ("system:serviceaccount:m-balancer", None),
        ("system:serviceaccount:a:b:m-balancer", None),
        ("system:node:m-balancer", None),
        ("", None),
    ],
)
def test_an_account_reports_its_own_model_alone(username: str, model: tuple[str, str] | None) -> None:
    assert model_of_account(username) == model


async def test_an_agent_that_retries_waits_for_the_same_answer() -> None:
    async with served() as scene:
        answered = scene.accounts.answers = asyncio.Event()
        first = asyncio.create_task(scene.connect())
        await until(lambda: scene.accounts.reviews)
        first.cancel()
        again = [asyncio.create_task(scene.connect()) for _ in range(3)]
        await until(lambda: scene.collector.waiting >= 3)
        answered.set()
        for stream in await asyncio.gather(*again):
            await stream.close()
        assert scene.accounts.reviews == 1


async def test_notices_reach_a_models_agents_and_no_others() -> None:
    async with served() as scene:
        scene.accounts.known["theirs"] = AgentIdentity("system:serviceaccount:ns:other-balancer", "other-balancer-0")
        both = [await scene.connect(), await scene.connect()]
        theirs = await scene.connect("theirs")
        await until(lambda: scene.collector.streams._value.get() == 3)
        scene.collector.send("ns", "m", "news")
        scene.collector.send("ns", "nobody", "news of nobody")
        scene.collector.send("ns", "other", "news of another")
        assert [await stream.receive_str(timeout=5) for stream in both] == ["news", "news"]
        assert await theirs.receive_str(timeout=5) == "news of another"


async def test_an_agent_that_has_gone_or_does_not_read_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEND_TIMEOUT_S", 0.1)
    async with served() as scene:
        reads, sleeps, aborted = [await scene.connect() for _ in range(3)]
        await until(lambda: scene.collector.streams._value.get() == 3)
        asleep = transport_of(sleeps)
        asleep.pause_reading()
        transport_of(aborted).abort()
        text = "x" * 1_000_000
        for _ in range(20):
            scene.collector.send("ns", "m", text)
        for _ in range(20):
            assert await reads.receive_str(timeout=5) == text
        await until(lambda: not scene.collector._background)
        asleep.resume_reading()
