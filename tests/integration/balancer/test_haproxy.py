"""The balancer on the real HAProxy 3.0, driven by the agent's own layers. Pods are stand-ins (tests/unit/balancer/stand_ins.py)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
import pytest
from prometheus_client.parser import text_string_to_metric_families

from halcyon.api.documents.balancer_plan import Slot
from halcyon.api.documents.pod_notice import Notice, PodChange
from halcyon.balancer.runtime.controller import HaproxyController
from halcyon.balancer.telemetry.report_stream import SendInterval
from halcyon.signals.store_state import MAX_CONFIRM_DELAY_S
from tests import figures
from tests.integration.balanced import (
    PLAN,
    TIMEOUT,
    Balanced,
    agent,
    endpoint,
    http_response,
    infer,
    is_,
    new_balanced,
    raw,
    until,
)
from tests.integration.waiting import PATIENCE
from tests.ports import free_ports
from tests.unit.balancer.stand_in_api import SLICES, slice_of
from tests.unit.balancer.stand_ins import SERVICE, Pod, Subprocess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from halcyon.api.documents.observation_report import AgentReport


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as instance:
        yield instance


OPEN = [
    ("GET", "/v2"),
    ("GET", "/v2/health/live"),
    ("GET", "/v2/health/ready"),
    ("GET", "/v2/models/m"),
    ("GET", "/v2/models/m/ready"),
    ("GET", "/v2/models/m/versions/12"),
    ("GET", "/v2/models/m/versions/12/ready"),
    ("GET", "/v2/models/m/config"),
    ("GET", "/v2/models/m/stats"),
    ("GET", "/v2/models/m/versions/12/config"),
    ("GET", "/v2/models/m/versions/12/stats"),
    ("POST", "/v2/models/m/infer"),
    ("POST", "/v2/models/m/generate"),
    ("POST", "/v2/models/m/generate_stream"),
    ("POST", "/v2/models/m/versions/1/infer"),
    ("POST", "/v2/models/m/versions/1/generate"),
]
CLOSED = [
    ("GET", "/", 404),
    ("GET", "/metrics", 404),
    ("GET", "/v2/", 404),
    ("GET", "/v2/models", 404),
    ("GET", "/v2/models/stats", 404),
    ("GET", "/v2/models/other/stats", 404),
    ("GET", "/v2/models/other/config", 404),
    ("GET", "/v2/models/m/config/", 404),
    ("GET", "/v2/models/m/%63onfig", 404),
    ("GET", "/v2/models/m/versions/x/stats", 404),
    ("GET", "/v2/models/other", 404),
    ("POST", "/v2/models/other/infer", 404),
    ("POST", "/v2/models/mm/infer", 404),
    ("POST", "/v2/repository/index", 404),
    ("POST", "/v2/repository/models/m/unload", 404),
    ("POST", "/v2/logging", 404),
    ("GET", "/v2/logging", 404),
    ("POST", "/v2/trace/setting", 404),
    ("GET", "/v2/systemsharedmemory/status", 404),
    ("POST", "/v2/systemsharedmemory/region/x/register", 404),
    ("GET", "/V2", 404),
    ("GET", "/v2/Models/m", 404),
    ("GET", "/v2/models/M", 404),
    ("POST", "//v2/models/m/infer", 404),
    ("POST", "/v2//models/m/infer", 404),
    ("POST", "/v2/models/m//infer", 404),
    ("POST", "/v2/models/m/./infer", 404),
    ("POST", "/v2/models/m/../../repository/index", 404),
    ("POST", "/v2/models/m/infer/../../../repository/index", 404),
    ("POST", "/v2/models/m/infer/", 404),
    ("POST", "/v2/models/m/infer;x", 404),
    ("POST", "/v2/models/m/%69nfer", 404),
    ("POST", "/v2/models/%6d/infer", 404),
    ("POST", "/v2%2fmodels%2fm%2finfer", 404),
    ("POST", "/v2/repository%2findex", 404),
    ("POST", "/v2/models/m/infer%00", 404),
    ("POST", "/v2/models/m/infer%0d%0aX", 404),
    ("POST", "/v2/models/m/versions//infer", 404),
    ("POST", "/v2/models/m/versions/x/infer", 404),
    ("POST", "/v2/models/m/versions/1/../../x/infer", 404),
    ("POST", "/v2/models/m/versions/1/unload", 404),
    ("POST", "\\v2\\repository\\index", 400),
    ("GET", "/v2/models/m/infer", 405),
    ("PUT", "/v2/models/m/infer", 405),
    ("POST", "/v2", 405),
    ("DELETE", "/v2/models/m", 405),
    ("POST", "/v2/models/m/config", 405),
    ("PUT", "/v2/models/m/versions/1/config", 405),
    ("POST", "/v2/models/m/stats", 405),
    ("HEAD", "/v2/models/m/infer", 405),
    ("HEAD", "/v2/models/other/config", 404),
    ("HEAD", "/v2/repository/index", 404),
    ("OPTIONS", "*", 404),
    ("CONNECT", "x:80", 404),
]


async def test_http_exposes_inference_and_read_only_endpoints_of_the_one_model(balanced: Balanced) -> None:
    [pod] = await balanced.start()
    await balanced.begin()
    port = balanced.haproxy.ports.http
    for method, path in OPEN:
        status, _, body = await http_response(port, method, path)
        assert (status, json.loads(body)["who"]) == (200, pod.address), (method, path)
    assert pod.seen == [f"{method} {path} HTTP/1.1" for method, path in OPEN]
    pod.seen.clear()
    for method, path, expected in CLOSED:
        status, headers, body = await http_response(port, method, path)
        assert status == expected, (method, path, status)
        if method != "HEAD" and status in {404, 405}:
            assert headers["content-type"] == "application/json"
            assert json.loads(body)["error"]
    assert pod.seen == [], "nothing closed reached the pod"


async def test_a_pod_receives_the_path_without_query_host_or_upgrade_offers(balanced: Balanced) -> None:
    [pod] = await balanced.start()
    await balanced.begin()
    port = balanced.haproxy.ports.http
    for target in (
        "/v2/models/m/infer?x=/../../repository/index",
        "http://x/v2/models/m/infer?y",
        "http://evil/v2/models/m/infer",
        "/v2/models/m/infer#/x",
    ):
        status, _, _ = await http_response(port, "POST", target)
        assert status in {200, 400}, target
    assert set(pod.seen) == {"POST /v2/models/m/infer HTTP/1.1"}
    assert len(pod.seen) >= 2
    status, headers, _ = await raw(
        port,
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
    )
    assert status == 200
    assert "upgrade" not in headers
    # Two lengths, or a length and chunks: one request for HAProxy, two for a careless server.
    status, _, _ = await raw(
        port,
        b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    )
    assert status == 400


async def test_only_the_named_methods_are_open_over_grpc(balanced: Balanced) -> None:
    [pod] = await balanced.start()
    await balanced.begin()
    opened = ["ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer"]
    async with balanced.channel as channel:
        for method in [*opened, "/grpc.health.v1.Health/Check"]:
            assert (await infer(channel, method)).decode() == pod.address
        call = channel.stream_stream(SERVICE + "ModelStreamInfer")(iter([b"1", b"2"]), timeout=5 * PATIENCE)
        assert [bytes(answer).decode() async for answer in call] == [pod.address] * 2
        pod.seen.clear()
        closed = [
            "RepositoryIndex",
            "RepositoryModelUnload",
            "SystemSharedMemoryRegister",
            "TraceSetting",
            "LogSettings",
        ]
        closed += ["RepositoryModelLoad", "ModelConfig/", "modelinfer", "ModelInfer/", "ModelInfer?x"]
        closed += ["/inference.GRPCInferenceService//ModelInfer", "/x/../inference.GRPCInferenceService/ModelInfer"]
        closed += ["/inference.GRPCInferenceService/%4dodelInfer", "/grpc.health.v1.Health/Watch", "/x/y"]
        for method in closed:
            if method == "ModelInfer?x":
                continue
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await infer(channel, method)
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED, method
    assert pod.seen == []


async def test_the_queue_is_bounded_over_both_protocols_together_and_refusals_are_counted(balanced: Balanced) -> None:
    [pod] = await balanced.start(hold=asyncio.Event())
    assert pod.hold is not None
    await balanced.begin()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session, balanced.channel as channel:
        details: set[str] = set()

        async def by_http() -> int:
            async with session.post(balanced.url + "/v2/models/m/infer", data=b"{}") as response:
                body = await response.json()
                if response.status == 429:
                    assert response.headers["retry-after"] == "1"
                    assert "20 requests for model m are queued already" in body["error"]
                return response.status

        async def by_grpc() -> str:
            try:
                await infer(channel)
            except grpc.aio.AioRpcError as error:
                details.add(str(error.details()))
                return str(error.code().name)
            return "OK"

        # 4 in flight of each protocol fill the pod; 10 of each wait, 20 in all.
        waiting = [asyncio.ensure_future(by()) for by in (by_http, by_grpc) for _ in range(14)]

        async def full() -> bool:
            reading = await balanced.haproxy.runtime.read()
            return (reading.queued, reading.inflight) == (20, 8)

        await until(full)
        assert [await by_http() for _ in range(5)] == [429] * 5
        assert [await by_grpc() for _ in range(5)] == ["RESOURCE_EXHAUSTED"] * 5
        for path in ("/v2/models/stats", "/v2/nothing"):
            await http_response(balanced.haproxy.ports.http, "GET", path)
        assert details == {"20 requests for model m are queued already, the limit of this balancer; retry later"}
        assert await balanced.counters() == (38, 10, 0)
        pod.hold.set()
        assert sorted(map(str, await asyncio.gather(*waiting))) == ["200"] * 14 + ["OK"] * 14
    assert await balanced.counters() == (38, 10, 0)


async def expecting(port: int, length: int) -> list[int]:
    """Send a request whose client waits for 100 Continue before its body, as curl does, and return each status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    statuses = []
    try:
        writer.write(
            b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
            b"Content-Length: %d\r\n\r\n" % length
        )
        while not statuses or statuses[-1] == 100:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5 * PATIENCE)
            statuses.append(int(head.split(b" ")[1]))
            if statuses == [100]:
                writer.write(bytes(length))
                await writer.drain()
    finally:
        writer.close()
    return statuses


async def test_client_that_waits_with_its_body_reads_the_rejection(balanced: Balanced) -> None:
    [pod] = await balanced.start(hold=asyncio.Event())
    assert pod.hold is not None
    await balanced.begin()
    port = balanced.haproxy.ports.http
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=TIMEOUT) as session:
        sent = [asyncio.ensure_future(session.post(balanced.url + "/v2/models/m/infer", data=b"{}")) for _ in range(24)]

        async def full() -> bool:
            return (await balanced.haproxy.runtime.read()).queued == 20

        await until(full)
        assert [(await expecting(port, length))[-1] for length in (100, 20_000, 200_000, 4_000_000)] == [429] * 4
        pod.hold.set()
        assert [answer.status for answer in await asyncio.gather(*sent)] == [200] * 24
    # With a free server, the body is requested and answered.
    assert await expecting(port, 200_000) == [100, 200]


async def test_response_to_a_half_closed_connection_is_a_json_error(balanced: Balanced) -> None:
    await balanced.start()
    await balanced.begin()
    reader, writer = await asyncio.open_connection("127.0.0.1", balanced.haproxy.ports.http)
    writer.write(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    writer.write_eof()
    head, _, body = (await asyncio.wait_for(reader.read(), 10 * PATIENCE)).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert "closed its side of the connection" in json.loads(body)["error"]


async def test_queue_timeouts_and_missing_servers_are_rejections_but_probes_are_not(balanced: Balanced) -> None:
    [pod] = await balanced.start(hold=asyncio.Event())
    await balanced.begin(replace(PLAN, queue_timeout_ms=400, response_timeout_ms=400, max_connections=1))
    port = balanced.haproxy.ports.http
    async with balanced.channel as channel:
        first = asyncio.ensure_future(http_response(port, "POST", "/v2/models/m/infer"))
        second = asyncio.ensure_future(infer(channel))
        await until(lambda: is_(lambda: pod.running == 2))
        status, headers, body = await http_response(port, "POST", "/v2/models/m/infer")
        # The one in flight ends at its own time-out and makes room, so the one that waited either ran out too or got through.
        assert status in {503, 504}
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await second
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert (await first)[0] == 504
        _, refused, errors = await balanced.counters()
        assert refused + errors == 3
        assert errors >= 2
        before = await balanced.counters()
        await balanced.turn([])
        await balanced.turn([])
        status, headers, body = await http_response(port, "POST", "/v2/models/m/infer")
        assert (status, headers["retry-after"]) == (503, "1")
        assert "error" in json.loads(body)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await infer(channel)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert caught.value.details() == "no server for model m became ready in time; retry later"
        await http_response(port, "GET", "/v2/health/ready")
        with pytest.raises(grpc.aio.AioRpcError):
            await infer(channel, "ServerReady")
        after = await balanced.counters()
        assert [b - a for a, b in zip(before, after, strict=True)] == [2, 2, 0]


async def test_a_request_that_waited_too_long_in_the_queue_is_a_refusal(balanced: Balanced) -> None:
    [pod] = await balanced.start(hold=asyncio.Event())
    assert pod.hold is not None
    await balanced.begin(replace(PLAN, queue_timeout_ms=600, response_timeout_ms=600, max_connections=1))
    port = balanced.haproxy.ports.http
    # One runs, and longer than it may; one may run after it; the others meet their time in the queue.
    occupied = [asyncio.ensure_future(http_response(port, "POST", "/v2/models/m/infer")) for _ in range(4)]
    answers = [(await each)[0] for each in occupied]
    assert set(answers) == {503, 504}
    assert answers.count(503) >= 2
    requests, refused, errors = await balanced.counters()
    assert requests == 4
    assert refused == answers.count(503)
    assert errors == answers.count(504)


async def test_requests_that_a_server_refuses_itself_have_a_counter(balanced: Balanced) -> None:
    [pod] = await balanced.start(refuses=True)
    await balanced.begin()
    for _ in range(2):
        assert (await http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer"))[0] == 503
    async with balanced.channel as channel:
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await infer(channel)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        pod.refuses = False
        await infer(channel)
    reading = await balanced.haproxy.runtime.read()
    assert (reading.requests, reading.rejected, reading.errors, reading.unavailable) == (6, 0, 0, 5)


class Load:
    """Closed loops of both protocols; every answer that is not the pods' is a failure."""

    def __init__(self, balanced: Balanced, *, loops: int = 6, pause_s: float = 0.002, retries: bool = False) -> None:
        self._retries = retries
        self._balanced = balanced
        self._loops = loops
        self._pause_s = pause_s
        self.done = 0
        self.by_pod: dict[str, int] = {}
        self.failures: list[str] = []

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=TIMEOUT)
        self._channel = self._balanced.connect(retries=self._retries)
        calls = itertools.cycle([self._http, self._grpc])
        self._tasks = [asyncio.ensure_future(self._loop(next(calls))) for _ in range(self._loops)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()
        await self._channel.close()

    async def _loop(self, call: Callable[[], Awaitable[str]]) -> None:
        while True:
            try:
                pod = await call()
                self.by_pod[pod] = self.by_pod.get(pod, 0) + 1
            except (aiohttp.ClientError, grpc.aio.AioRpcError, OSError) as error:
                self.failures.append(repr(error))
            self.done += 1
            await asyncio.sleep(self._pause_s)

    async def _http(self) -> str:
        async with self._session.post(self._balanced.url + "/v2/models/m/infer", data=b"{}") as response:
            response.raise_for_status()
            return str((await response.json())["who"])

    async def _grpc(self) -> str:
        return (await infer(self._channel)).decode()

    async def more(self, count: int) -> None:
        target = self.done + count
        await until(lambda: is_(lambda: self.done >= target), 20)


async def test_one_long_lived_grpc_channel_is_spread_over_all_pods(balanced: Balanced) -> None:
    await balanced.start(3, delay_s=0.005)
    await balanced.begin()
    async with balanced.channel as channel:
        gate = asyncio.Semaphore(6)

        async def send() -> str:
            async with gate:
                return (await infer(channel)).decode()

        who = await asyncio.gather(*(send() for _ in range(300)))
    shares = [who.count(pod.address) / 300 for pod in balanced.pods]
    assert all(0.25 < share < 0.42 for share in shares), shares


async def test_two_slots_get_their_shares(balanced: Balanced) -> None:
    a, b = await balanced.start(2)
    plan = replace(PLAN, slots=(Slot("a", "m-server-a", 75, 4), Slot("b", "m-server-b", 25, 4)))
    balanced.pilot.accept(plan)
    both = (endpoint(a), endpoint(b, "b"))
    await balanced.pilot.run_pass(both)
    await asyncio.to_thread(balanced.haproxy.start)
    await balanced.pilot.run_pass(both)
    async with balanced.channel as channel:
        who = [(await infer(channel)).decode() for _ in range(400)]
    assert 0.15 < who.count(b.address) / 400 < 0.35


async def test_no_request_fails_when_a_pod_is_killed_while_others_serve(balanced: Balanced) -> None:
    await balanced.start(2, delay_s=0.005)
    victim = balanced.pod(delay_s=0.005)
    process = await Subprocess(victim).start()
    try:
        pods = [*balanced.pods, victim]
        balanced.pilot.accept(replace(PLAN, max_connections=16))
        await balanced.turn(pods)
        await asyncio.to_thread(balanced.haproxy.start)
        await balanced.turn(pods)
        async with Load(balanced, loops=12) as load:
            await load.more(300)
            await until(lambda: is_(lambda: load.by_pod.get(victim.address, 0) > 30))
            await process.kill()
            await load.more(600)
        assert load.failures == []
        _, refused, errors = await balanced.counters()
        assert (refused, errors) == (0, 0)
    finally:
        await process.kill()


async def test_a_pod_whose_readiness_takes_as_long_as_kubelets_wait_serves(balanced: Balanced) -> None:
    """Its threads may all be parsing requests, or its CPU may be throttled."""
    await balanced.start(1, ready_after_s=1.5)
    await balanced.begin()
    ends_at = time.monotonic() + 8
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        while time.monotonic() < ends_at:
            async with session.post(balanced.url + "/v2/models/m/infer", data=b"{}") as response:
                assert response.status == 200
            assert (await balanced.haproxy.runtime.read()).held_total == 0
            await asyncio.sleep(0.2)


async def test_a_pod_drains_without_an_error_under_load_and_frees_its_server(balanced: Balanced) -> None:
    first, second = await balanced.start(2, delay_s=0.01)
    await balanced.begin()
    async with Load(balanced) as load:
        await load.more(100)
        leaving = (endpoint(first), endpoint(second, terminating=True, serving=False))
        await balanced.pilot.run_pass(leaving)

        async def is_left() -> bool:
            reading = await balanced.haproxy.runtime.read()
            return all(not line.sessions for line in reading.servers.values() if line.address == second.address)

        await until(is_left)
        before = second.http_count + second.grpc_count

        async def free() -> bool:
            await balanced.pilot.run_pass(leaving)
            reading = await balanced.haproxy.runtime.read()
            return sorted(line.admin for line in reading.servers.values()) == ["maint"] * 7 + ["ready"]

        await until(free, 1)
        await load.more(100)
        assert second.http_count + second.grpc_count == before, "a draining pod gets nothing new"
        await second.stop()
        await load.more(50)
    assert load.failures == []


async def test_an_endless_stream_is_cut_after_the_drain_and_frees_its_server(
    balanced: Balanced,
) -> None:
    [pod] = await balanced.start(hold=asyncio.Event())
    await balanced.begin(replace(PLAN, drain_ms=300, queue_timeout_ms=60000, response_timeout_ms=60000))
    [other] = await balanced.start()
    async with balanced.channel as channel:
        held = asyncio.ensure_future(infer(channel))
        await until(lambda: is_(lambda: pod.running == 1))
        await balanced.turn([other])
        await balanced.turn([other])
        reading = await balanced.haproxy.runtime.read()
        assert sorted(line.admin for line in reading.servers.values()) == ["drain"] + ["maint"] * 6 + ["ready"]

        async def free() -> bool:
            await balanced.turn([other])
            reading = await balanced.haproxy.runtime.read()
            return sorted(line.admin for line in reading.servers.values()) == ["maint"] * 7 + ["ready"]

        await until(free)
        with pytest.raises(grpc.aio.AioRpcError):
            await held


async def test_five_hundred_replacements_under_load_end_no_worker_and_fail_no_request(balanced: Balanced) -> None:
    await balanced.start(3)
    await balanced.begin()
    worker = (await balanced.haproxy.runtime.read()).process
    leaving: list[Pod] = []
    replaced = 0
    async with Load(balanced, loops=4, pause_s=0.001) as load:
        while replaced < 500:
            oldest = balanced.pods.pop(0)
            await balanced.start(1)
            leaving.append(oldest)
            replaced += 1
            terminating = tuple(endpoint(pod, terminating=True, serving=False) for pod in leaving[-3:])
            await balanced.pilot.run_pass((*(endpoint(pod) for pod in balanced.pods), *terminating))
            assert balanced.pilot.unplaced == ()
            for deleted in leaving[:-3]:
                await deleted.stop()
            leaving = leaving[-3:]
        await load.more(20)
    for pod in leaving:
        await pod.stop()
    assert load.failures == []
    assert load.done > 500
    assert (await balanced.haproxy.runtime.read()).process == worker
    figures.record("worker_exits", balanced.haproxy.worker_exits())
    assert balanced.haproxy.worker_exits() == 0
    assert "exited" not in balanced.haproxy.log_text()


async def test_a_restarted_haproxy_serves_from_its_file_and_is_then_updated(balanced: Balanced) -> None:
    first, second = await balanced.start(2)
    await balanced.begin()
    old = (await balanced.haproxy.runtime.read()).process
    await balanced.turn([second])
    await balanced.turn([second])
    await balanced.turn([second])
    balanced.haproxy.kill()
    await balanced.turn([second])
    assert balanced.pilot.reading is None
    await asyncio.to_thread(balanced.haproxy.start)
    # Before any turn: the file knew.
    status, _, body = await http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer")
    assert (status, json.loads(body)["who"]) == (200, second.address)
    balanced.haproxy.kill()
    # A file from before the last change.
    stale = balanced.haproxy.config.read_text().replace(second.address, first.address)
    balanced.haproxy.config.write_text(stale)
    await asyncio.to_thread(balanced.haproxy.start)
    await balanced.turn([second])
    status, _, body = await http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer")
    assert (status, json.loads(body)["who"]) == (200, second.address)
    assert (await balanced.haproxy.runtime.read()).process != old


async def test_a_restarted_agent_takes_over_what_runs_and_changes_nothing(balanced: Balanced) -> None:
    await balanced.start(3)
    await balanced.begin()
    before = (await balanced.haproxy.runtime.read()).servers
    fresh = HaproxyController(balanced.haproxy.runtime, balanced.haproxy.config, balanced.haproxy.listen)
    fresh.accept(PLAN)
    await fresh.run_pass(None)
    assert fresh.in_use
    # The API server lists them in another order, and one is gone meanwhile.
    known = tuple(endpoint(pod) for pod in reversed(balanced.pods[1:]))
    await fresh.run_pass(known)
    await fresh.run_pass(known)
    after = (await balanced.haproxy.runtime.read()).servers
    assert {k: v.address for k, v in after.items() if v.admin == "ready"} == {
        k: v.address for k, v in before.items() if v.admin == "ready" and v.address != balanced.pods[0].address
    }
    assert fresh.reloads == 0


async def test_a_new_plan_is_one_reload_without_a_failed_request(balanced: Balanced) -> None:
    await balanced.start(2)
    await balanced.begin()
    # A stopping worker says GOAWAY; what it did not take any more, every gRPC client sends again by itself.
    async with Load(balanced, retries=True) as load:
        for limit in (21, 22, 23):
            balanced.pilot.accept(replace(PLAN, queue_limit=limit, slots=(Slot("a", "m-server-a", 100, limit),)))
            await load.more(60)
            await balanced.turn()
            await load.more(60)
    assert load.failures == []
    assert balanced.pilot.reloads == 3
    assert len((await balanced.haproxy.runtime.read()).servers) == 23


async def test_queue_of_a_replaced_process_avoids_terminating_pods(balanced: Balanced) -> None:
    leaving, *others = await balanced.start(2, delay_s=0.5)
    plan = replace(PLAN, max_connections=1)
    await balanced.begin(plan)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=TIMEOUT) as session:
        sent = [asyncio.ensure_future(session.post(balanced.url + "/v2/models/m/infer", data=b"{}")) for _ in range(12)]
        await until(lambda: is_(lambda: leaving.running == 1))
        balanced.pilot.accept(replace(plan, queue_limit=plan.queue_limit + 1))
        await balanced.turn()
        await balanced.pilot.run_pass((endpoint(leaving, terminating=True), *map(endpoint, others)))
        # From here on, the pod completes what it has received, and refuses the rest.
        await until(lambda: is_(lambda: leaving.running == 0))
        leaving.refuses = True
        while not all(answer.done() for answer in sent):
            await balanced.pilot.run_pass((endpoint(leaving, terminating=True), *map(endpoint, others)))
            await asyncio.sleep(0.1)
        assert [(await answer).status for answer in sent] == [200] * 12


async def test_fewer_lines_are_no_reload_and_go_with_the_next_one(balanced: Balanced) -> None:
    pods = await balanced.start(2)
    await balanced.begin(replace(PLAN, slots=(Slot("a", "m-server-a", 100, 16),)))

    async def lines() -> int:
        return len((await balanced.haproxy.runtime.read()).servers)

    assert await lines() == 16
    balanced.pilot.accept(PLAN)
    for _ in range(3):
        await balanced.turn()
    assert (balanced.pilot.reloads, await lines()) == (0, 16)
    # Pods are put in and taken out as before, and the file has what runs.
    await balanced.turn(pods[:1])
    assert balanced.pilot.in_use == 1
    assert balanced.haproxy.config.read_text().count("server s16 ") == 2
    # So it is for an agent that starts now.
    fresh = HaproxyController(balanced.haproxy.runtime, balanced.haproxy.config, balanced.haproxy.listen)
    fresh.accept(PLAN)
    await fresh.run_pass(tuple(map(endpoint, pods)))
    assert (fresh.reloads, fresh.in_use, await lines()) == (0, 2, 16)
    # More lines, or anything else, is one.
    balanced.pilot.accept(replace(PLAN, queue_limit=21))
    await balanced.turn()
    assert (balanced.pilot.reloads, await lines()) == (1, 8)
    balanced.pilot.accept(replace(PLAN, queue_limit=21, slots=(Slot("a", "m-server-a", 100, 17),)))
    await balanced.turn()
    assert (balanced.pilot.reloads, await lines()) == (2, 17)


async def test_a_connection_that_is_idle_over_a_reload_serves_one_more_request(balanced: Balanced) -> None:
    await balanced.start()
    await balanced.begin()
    reader, writer = await asyncio.open_connection("127.0.0.1", balanced.haproxy.ports.http)
    try:
        for limit, closes in ((None, False), (21, True)):
            if limit is not None:
                balanced.pilot.accept(replace(PLAN, queue_limit=limit))
                await balanced.turn()
                assert balanced.pilot.reloads == 1
                # HAProxy's `close-spread-time` would have closed it by now, at a random moment.
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 1.5)
            writer.write(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5 * PATIENCE)).decode().lower()
            assert head.startswith("http/1.1 200")
            assert ("connection: close" in head) is closes
            await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
    finally:
        writer.close()


async def test_ten_reloads_leave_no_process_and_no_half_closed_connection(balanced: Balanced) -> None:
    await balanced.start()
    await balanced.begin()
    ports = {f"{port:04X}" for port in (balanced.haproxy.ports.http, balanced.haproxy.ports.grpc)}

    def half_closed() -> int:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(row[3] == "08" and row[1].partition(":")[2] in ports for row in rows)

    async with contextlib.AsyncExitStack() as stack:
        for limit in range(21, 31):
            # Each process keeps connections of clients that are idle when the next one starts.
            session = await stack.enter_async_context(aiohttp.ClientSession(timeout=TIMEOUT))
            async with session.post(f"{balanced.url}/v2/models/m/infer", data=b"") as response:
                assert response.status == 200
            channel = await stack.enter_async_context(balanced.channel)
            await infer(channel)
            balanced.pilot.accept(replace(PLAN, queue_limit=limit))
            await balanced.turn()
        assert balanced.pilot.reloads == 10

    async def is_clean() -> bool:
        return len(balanced.haproxy.workers()) == 1 and await asyncio.to_thread(half_closed) == 0

    await until(is_clean, 10)


async def test_more_pods_than_lines_are_reported_and_a_larger_plan_takes_them(balanced: Balanced) -> None:
    await balanced.start(3)
    await balanced.begin(replace(PLAN, slots=(Slot("a", "m-server-a", 100, 2),)))
    assert [e.address for e in balanced.pilot.unplaced] == [balanced.pods[2].address]
    balanced.pilot.accept(PLAN)
    await balanced.turn()
    await balanced.turn()
    assert balanced.pilot.unplaced == ()
    lines = (await balanced.haproxy.runtime.read()).servers.values()
    assert {line.address for line in lines if line.admin == "ready"} == {pod.address for pod in balanced.pods}


async def test_a_reload_whose_response_is_lost_uses_all_servers(balanced: Balanced) -> None:
    await balanced.start(3)
    haproxy = balanced.haproxy
    runtime = replace(haproxy.runtime, reload_timeout_s=0.02)
    balanced.pilot = HaproxyController(runtime, haproxy.config, haproxy.listen)
    await balanced.begin(replace(PLAN, slots=(Slot("a", "m-server-a", 100, 2),)))
    assert balanced.pilot.in_use == 2
    balanced.pilot.accept(PLAN)

    async def is_complete() -> bool:
        await balanced.turn()
        return balanced.pilot.in_use == 3

    await until(is_complete)
    assert balanced.pilot.reloads == 0, "a response arrived in time, so this test shows nothing"


async def test_a_balancer_stays_ready_during_a_long_reload(balanced: Balanced) -> None:
    await balanced.start()
    now, haproxy = 0.0, balanced.haproxy
    balanced.pilot = HaproxyController(haproxy.runtime, haproxy.config, haproxy.listen, clock=lambda: now)
    await balanced.begin()
    assert haproxy.process is not None
    balanced.pilot.accept(replace(PLAN, queue_limit=PLAN.queue_limit + 1))
    os.kill(haproxy.process.pid, signal.SIGSTOP)
    turn = asyncio.create_task(balanced.turn())
    await until(lambda: is_(lambda: str(PLAN.queue_limit + 1) in haproxy.config.read_text()))
    await asyncio.sleep(0.1)
    now = 10.0
    assert balanced.pilot.answered_within(5.0)
    os.kill(haproxy.process.pid, signal.SIGCONT)
    await turn
    assert balanced.pilot.reloads == 1


async def test_a_configuration_that_haproxy_refuses_leaves_the_former_one_in_force(balanced: Balanced) -> None:
    [pod] = await balanced.start()
    await balanced.begin()
    listener = await asyncio.start_server(lambda _r, _w: None, "0.0.0.0", free_ports(1)[0])
    port = listener.sockets[0].getsockname()[1]
    listen = replace(balanced.haproxy.listen, ports=replace(balanced.haproxy.ports, metrics=port))
    fresh = HaproxyController(balanced.haproxy.runtime, balanced.haproxy.config, listen)
    fresh.accept(PLAN)
    good = balanced.haproxy.config.read_text()
    await fresh.run_pass((endpoint(pod),))
    await fresh.run_pass((endpoint(pod),))
    assert fresh.reloads == 0
    assert balanced.haproxy.config.read_text() == good
    assert (await http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer"))[0] == 200
    listener.close()


async def test_cancelled_requests_leave_the_queue_and_never_bring_refused_streams(balanced: Balanced) -> None:
    """Open-loop clients with deadlines, far above capacity: only DEADLINE_EXCEEDED, or the queue's own refusal."""
    await balanced.start(2, delay_s=0.02)
    await balanced.begin(replace(PLAN, queue_limit=5000, queue_timeout_ms=30000, response_timeout_ms=30000))
    codes: dict[str, int] = {}
    # What is due within a deadline: a client that can't keep up with its own clock would measure itself.
    under_way = asyncio.Semaphore(480)

    async def send(channel: grpc.aio.Channel) -> None:
        try:
            await infer(channel, within_s=0.3)
            code = "OK"
        except grpc.aio.AioRpcError as error:
            code = f"{error.code().name} {error.details()}"
        finally:
            under_way.release()
        codes[code] = codes.get(code, 0) + 1

    async with balanced.channel as channel:
        tasks = []
        # At least 2,400; on a slow machine as many more as it takes to see answers among them.
        for number in range(24_000):
            if number >= 2_400 and codes.get("OK", 0) > 100:
                break
            await under_way.acquire()
            tasks.append(asyncio.ensure_future(send(channel)))
            if number % 16 == 0:
                await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)

        async def is_empty() -> bool:
            return (await balanced.haproxy.runtime.read()).queued == 0

        # The last of those that were cancelled may be on their way to HAProxy.
        await until(is_empty)
    assert codes.pop("OK") > 100
    assert sum(count for code, count in codes.items() if code.startswith("DEADLINE_EXCEEDED")) > 100
    # CANCELLED: HAProxy's own end at the deadline was there before the client's clock rang.
    assert {code.split(" ")[0] for code in codes} <= {"DEADLINE_EXCEEDED", "CANCELLED"}, codes


async def test_haproxy_stays_small_with_a_full_queue(
    balanced: Balanced, record_testsuite_property: Callable[[str, object], None]
) -> None:
    [pod] = await balanced.start(hold=asyncio.Event())
    assert pod.hold is not None
    await balanced.begin(replace(PLAN, queue_limit=200, max_connections=48, slots=(Slot("a", "m-server-a", 100, 32),)))
    idle = sum(balanced.haproxy.memory_kib().values())
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session, balanced.channel as channel:

        async def by_http() -> None:
            async with session.post(balanced.url + "/v2/models/m/infer", data=b"x" * 4000) as response:
                await response.read()

        waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(by_http()) for _ in range(148)]
        waiting += [asyncio.ensure_future(infer(channel)) for _ in range(148)]

        async def full() -> bool:
            return (await balanced.haproxy.runtime.read()).queued == 200

        await until(full)
        loaded = sum(balanced.haproxy.memory_kib().values())
        pod.hold.set()
        await asyncio.gather(*waiting)
    record_testsuite_property("haproxy_kib_idle", idle)
    record_testsuite_property("haproxy_kib_with_200_waiting", loaded)
    assert loaded < 32 * 1024


PAGE = """\
# HELP nv_inference_request_success Number of successful inference requests
nv_inference_request_success{{model="m",version="1"}} {success}
nv_inference_request_failure{{model="m",reason="BACKEND",version="1"}} {failure}
nv_inference_pending_request_count{{model="m",version="1"}} 3
nv_gpu_utilization{{gpu_uuid="GPU-0"}} 0.5
"""


def check_metrics(page: str, pods: set[str]) -> None:
    """The page that an agent tells after 1,500 requests or more."""
    families = {family.name: family.samples for family in text_string_to_metric_families(page)}
    assert families["halcyon_agent_requests"][0].value >= 1500
    assert {sample.labels["server_pod"] for sample in families["halcyon_agent_pod_inflight"]} == pods
    assert {sample.labels["state"] for sample in families["halcyon_agent_pod_state"]} == {"ready", "maintenance"}
    duration = families["halcyon_agent_response_duration_seconds"]
    histogram = {(s.name.rpartition("_")[2], s.labels["slot"], s.labels.get("le")): s.value for s in duration}
    assert histogram["bucket", "a", "+Inf"] == histogram["count", "a", None] >= 1500
    assert 0 < histogram["bucket", "a", "30"] <= histogram["count", "a", None]
    assert histogram["count", "b", None] == 0


def check_times(records: Sequence[tuple[float, AgentReport]]) -> None:
    """Of an agent that has seen a load come out of nothing: at most one a look, but for those that confirm a surge."""
    pairs = [(later_at - at, sooner, later) for (at, sooner), (later_at, later) in itertools.pairwise(records)]
    confirming = [(sooner, later) for gap_s, sooner, later in pairs if gap_s < MAX_CONFIRM_DELAY_S]
    assert len(records) - len(confirming) <= (records[-1][0] - records[0][0]) / SendInterval().min_s + 2
    assert any(
        sooner.balancer and later.balancer and later.balancer.requests > sooner.balancer.requests > 0
        for sooner, later in confirming
    )
    # Each is of the moment at which HAProxy answered, and that was after the pods did.
    assert all(sooner.at < later.at for _, sooner, later in pairs)
    assert all(pod.at <= record.at for _, record in records for pod in record.pods)
    # By the same clock on the same machine: sent after that, and heard at once.
    assert all(record.sent is not None and record.at <= record.sent for _, record in records)


async def test_the_agent_process_serves_reports_evicts_a_dead_backend_and_stays_small(
    balanced: Balanced, tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    [metrics_port] = free_ports(1)
    pods = await balanced.start(6, metrics_port=metrics_port, page=PAGE.format(success=7, failure=0))
    names = {endpoint(pod).pod: pod.address for pod in pods}
    async with agent(balanced, tmp_path, metrics_port=metrics_port) as running:
        running.api.put(SLICES, "m-server-a-x", slice_of("m-server-a", names))
        # HAProxy starts when the agent is healthy: its configuration is there then.
        await until(lambda: running.is_("/healthz", 200), 10)
        assert (await running.probe("/readyz"))[0] == 503
        await asyncio.to_thread(balanced.haproxy.start)
        await until(lambda: running.is_("/readyz", 200), 10)
        collector = running.collectors[0]
        await until(lambda: is_(lambda: len(collector.records) > 0), 10)
        async with Load(balanced, loops=8) as load:
            await load.more(1500)
            # One pod's stub dies: failures rise, successes don't; the others go on.
            sick = pods[0]
            sick.page, sick.index = PAGE.format(success=7, failure=2), [{"name": "halcyon.stub.signal-9"}, *sick.index]
            # Another one gets nothing but wrong requests.
            for pod in pods[1:]:
                pod.page = PAGE.format(success=7, failure=500) if pod is pods[1] else PAGE.format(success=99, failure=0)

            def state() -> str:
                record = collector.records[-1][1]
                return next(pod.state for pod in record.pods if pod.name == endpoint(sick).pod)

            async def out() -> bool:
                lines = (await balanced.haproxy.runtime.read()).servers.values()
                return all(line.admin != "ready" for line in lines if line.address == sick.address)

            figures.record("dead_backend_out_s", await until(out, 5))
            await until(lambda: is_(lambda: state() == "maintenance"), 3)
            await load.more(100)
        assert load.failures == []
        seen = len(collector.records)

        def complete_reports() -> list[AgentReport]:
            """Where this process was held up for a moment, its pods were, too: a look that found one away says so."""
            expected = ({"ready", "maintenance"}, {0.5}, {3})
            return [
                record
                for _, record in collector.records[seen + 1 :]
                if (
                    {pod.state for pod in record.pods},
                    {pod.gpu for pod in record.pods},
                    {pod.pending for pod in record.pods},
                )
                == expected
            ]

        await until(lambda: is_(lambda: bool(complete_reports())), 12)
        record = complete_reports()[-1]
        assert (record.namespace, record.name, record.agent) == ("default", "m", "m-balancer-x")
        assert record.balancer is not None
        assert record.balancer.requests >= 1500
        check_metrics((await running.probe("/metrics"))[1].decode(), set(names))
        assert set(collector.tokens) == {"Bearer collector-token"}
        assert {authorization for _, _, authorization in running.api.requests} == {"Bearer api-token"}
        check_times(collector.records)
        # The API server goes away: what is served stays served.
        await running.api.stop()
        await asyncio.sleep(0.5)
        assert (await running.probe("/readyz"))[0] == 200
        record_testsuite_property("agent_kib", running.memory_kib())
        record_testsuite_property("agent_kib_at_most", running.memory_kib("VmHWM"))
        assert running.memory_kib("VmHWM") < 48 * 1024
        drained = asyncio.ensure_future(running.drain(1))
        await until(lambda: running.is_("/readyz", 503), 1)
        assert (await drained)[0] == 200
        balanced.haproxy.kill()
        running.process.terminate()
        assert await asyncio.wait_for(running.process.wait(), 5 * PATIENCE) == 0


async def test_a_notice_of_the_operator_changes_servers_before_the_slices_do(
    balanced: Balanced, tmp_path: Path
) -> None:
    first, second, third = await balanced.start(3)
    async with agent(balanced, tmp_path, metrics_port=1) as running:
        listed = {endpoint(pod).pod: pod.address for pod in (first, second)}
        running.api.put(SLICES, "m-server-a-x", slice_of("m-server-a", listed))
        await until(lambda: running.is_("/healthz", 200), 10)
        await asyncio.to_thread(balanced.haproxy.start)
        await until(lambda: running.is_("/readyz", 200), 10)
        collector = running.collectors[0]
        await until(lambda: is_(lambda: bool(collector.sockets)), 10)

        async def in_use() -> set[str]:
            lines = (await balanced.haproxy.runtime.read()).servers.values()
            return {line.address for line in lines if line.admin == "ready"}

        async def tell(pod: Pod, news: PodChange) -> None:
            notice = Notice(endpoint(pod).pod, "a", pod.address, news)
            await collector.sockets[0].send_str(notice.to_json())

        async def uses(*pods: Pod) -> bool:
            return await in_use() == {pod.address for pod in pods}

        await until(lambda: uses(first, second))
        await tell(first, "leaving")
        await until(lambda: uses(second))
        await tell(third, "ready")
        await until(lambda: uses(second, third))
        # What the slices say of it from now on counts.
        listed = {endpoint(pod).pod: pod.address for pod in (second, third)}
        running.api.put(SLICES, "m-server-a-x", slice_of("m-server-a", listed))
        running.api.put(SLICES, "m-server-a-x", slice_of("m-server-a", {endpoint(second).pod: second.address}))
        await until(lambda: uses(second))
