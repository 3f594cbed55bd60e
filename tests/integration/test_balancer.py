"""The balancer on the real HAProxy 3.0, driven by the agent's own layers. Pods are stand-ins (tests/unit/balancer/stand_ins.py)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc
import grpc.aio
import pytest
from halcyon.api.plan import BalancerPlan, Slot
from halcyon.balancer.pilot import Pilot
from halcyon.balancer.slots import Endpoint

from tests.unit.balancer import real_haproxy
from tests.unit.balancer.stand_ins import SERVICE, Pod, Subprocess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from tests.unit.balancer.real_haproxy import Haproxy

PLAN = BalancerPlan(
    namespace="default",
    name="m",
    model="m",
    slots=(Slot("a", "m-server-a", 100, 8),),
    max_connections=4,
    queue_limit=20,
    request_timeout_ms=5000,
    drain_ms=3000,
)
_addresses = (f"127.{b}.{c}.{d}" for b in range(77, 250) for c in range(1, 250) for d in range(1, 250))


@dataclass
class Balanced:
    """One HAProxy with its pilot and what stands behind it."""

    haproxy: Haproxy
    pilot: Pilot
    pods: list[Pod]

    def pod(self, **options: Any) -> Pod:
        ports = self.haproxy.ports
        return Pod(next(_addresses), ports.server_http, ports.server_grpc, **options)

    async def start(self, count: int = 1, **options: Any) -> list[Pod]:
        made = [await self.pod(**options).start() for _ in range(count)]
        self.pods += made
        return made

    async def turn(self, pods: Iterable[Pod] | None = None, **options: Any) -> None:
        await self.pilot.turn(tuple(endpoint(pod) for pod in (self.pods if pods is None else pods)), **options)

    async def begin(self, plan: BalancerPlan = PLAN) -> None:
        self.pilot.accept(plan)
        await self.turn()
        await asyncio.to_thread(self.haproxy.start)
        await self.turn()
        await self.turn()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.haproxy.ports.http}"

    @property
    def channel(self) -> grpc.aio.Channel:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.haproxy.ports.grpc}", options=options)

    async def counters(self) -> tuple[int, int, int]:
        reading = await self.haproxy.runtime.read()
        return reading.requests, reading.refused, reading.errors


def endpoint(pod: Pod, slot: str = "a", **changes: Any) -> Endpoint:
    made = Endpoint(slot, "pod-" + pod.address.replace(".", "-"), pod.address, serving=True, terminating=False)
    return replace(made, **changes)


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    with real_haproxy.haproxy() as haproxy:
        made = Balanced(haproxy, Pilot(haproxy.runtime, haproxy.config, haproxy.listen), [])
        yield made
        await asyncio.gather(*(pod.stop() for pod in made.pods))


async def until(true: Callable[[], Awaitable[bool]], limit_s: float = 5.0) -> float:
    began = time.monotonic()
    while not await true():
        assert time.monotonic() - began < limit_s, "it did not come true in time"
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def raw(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes as they are; status, headers and body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).decode()
        lines = head.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return int(lines[0].split(" ")[1]), headers, body
    finally:
        writer.close()


async def ask(port: int, method: str, target: str) -> tuple[int, dict[str, str], bytes]:
    request = f"{method} {target} HTTP/1.1\r\nHost: x\r\nUser-Agent: t\r\nContent-Length: 0\r\n\r\n"
    return await raw(port, request.encode("latin-1"))


async def infer(channel: grpc.aio.Channel, method: str = "ModelInfer", timeout: float = 10) -> bytes:
    path = method if method.startswith("/") else SERVICE + method
    return bytes(await channel.unary_unary(path)(b"x", timeout=timeout))


OPEN = [
    ("GET", "/v2"),
    ("GET", "/v2/health/live"),
    ("GET", "/v2/health/ready"),
    ("GET", "/v2/models/m"),
    ("GET", "/v2/models/m/ready"),
    ("GET", "/v2/models/m/versions/12"),
    ("GET", "/v2/models/m/versions/12/ready"),
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
    ("GET", "/v2/models/m/stats", 404),
    ("GET", "/v2/models/m/config", 404),
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
    ("HEAD", "/v2/repository/index", 404),
    ("OPTIONS", "*", 404),
    ("CONNECT", "x:80", 404),
]


async def test_only_inference_readiness_and_metadata_of_the_one_model_are_open_over_http(balanced: Balanced) -> None:
    [pod] = await balanced.start()
    await balanced.begin()
    port = balanced.haproxy.ports.http
    for method, path in OPEN:
        status, _, body = await ask(port, method, path)
        assert (status, json.loads(body)["who"]) == (200, pod.address), (method, path)
    assert pod.seen == [f"{method} {path} HTTP/1.1" for method, path in OPEN]
    pod.seen.clear()
    for method, path, wanted in CLOSED:
        status, headers, body = await ask(port, method, path)
        assert status == wanted, (method, path, status)
        if method not in {"HEAD"} and status in {404, 405}:
            assert headers["content-type"] == "application/json"
            assert json.loads(body)["error"]
    assert pod.seen == [], "nothing closed reached the pod"


async def test_a_pod_sees_the_path_without_query_host_or_offers_of_another_protocol(balanced: Balanced) -> None:
    [pod] = await balanced.start()
    await balanced.begin()
    port = balanced.haproxy.ports.http
    for target in (
        "/v2/models/m/infer?x=/../../repository/index",
        "http://evil/v2/models/m/infer?y",
        "/v2/models/m/infer#/x",
    ):
        status, _, _ = await ask(port, "POST", target)
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
        call = channel.stream_stream(SERVICE + "ModelStreamInfer")(iter([b"1", b"2"]), timeout=5)
        assert [bytes(answer).decode() async for answer in call] == [pod.address] * 2
        pod.seen.clear()
        closed = [
            "RepositoryIndex",
            "RepositoryModelUnload",
            "SystemSharedMemoryRegister",
            "TraceSetting",
            "LogSettings",
        ]
        closed += ["ModelConfig", "ModelStatistics", "modelinfer", "ModelInfer/", "ModelInfer?x"]
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
    async with aiohttp.ClientSession(connector=connector) as session, balanced.channel as channel:

        async def by_http() -> int:
            async with session.post(balanced.url + "/v2/models/m/infer", data=b"{}") as response:
                body = await response.json()
                if response.status == 429:
                    assert response.headers["retry-after"] == "1"
                    assert "20 requests for model m wait already" in body["error"]
                return response.status

        async def by_grpc() -> str:
            try:
                await infer(channel)
            except grpc.aio.AioRpcError as error:
                assert "20 requests for model m wait already" in str(error.details())
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
        for path in ("/v2/models/m/stats", "/v2/nothing"):
            await ask(balanced.haproxy.ports.http, "GET", path)
        assert await balanced.counters() == (38, 10, 0)
        pod.hold.set()
        assert sorted(map(str, await asyncio.gather(*waiting))) == ["200"] * 14 + ["OK"] * 14
    assert await balanced.counters() == (38, 10, 0)


async def test_waiting_too_long_and_having_no_server_are_refusals_but_probes_are_not(balanced: Balanced) -> None:
    [pod] = await balanced.start(hold=asyncio.Event())
    await balanced.begin(replace(PLAN, request_timeout_ms=400, max_connections=1))
    port = balanced.haproxy.ports.http
    async with balanced.channel as channel:
        first = asyncio.ensure_future(ask(port, "POST", "/v2/models/m/infer"))
        second = asyncio.ensure_future(infer(channel))
        await until(lambda: _is(lambda: pod.running == 2))
        status, headers, body = await ask(port, "POST", "/v2/models/m/infer")
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
        status, headers, body = await ask(port, "POST", "/v2/models/m/infer")
        assert (status, headers["retry-after"]) == (503, "1")
        assert "error" in json.loads(body)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await infer(channel)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert caught.value.details() == "no server had room in time"
        await ask(port, "GET", "/v2/health/ready")
        with pytest.raises(grpc.aio.AioRpcError):
            await infer(channel, "ServerReady")
        after = await balanced.counters()
        assert [b - a for a, b in zip(before, after, strict=True)] == [2, 2, 0]


async def _is(true: Callable[[], bool]) -> bool:
    return true()


async def test_a_request_that_waited_too_long_in_the_queue_is_a_refusal(balanced: Balanced) -> None:
    [pod] = await balanced.start(hold=asyncio.Event())
    assert pod.hold is not None
    await balanced.begin(replace(PLAN, request_timeout_ms=600, max_connections=1))
    port = balanced.haproxy.ports.http
    occupied = [asyncio.ensure_future(ask(port, "POST", "/v2/models/m/infer"))]
    await until(lambda: _is(lambda: pod.running == 1))
    # The second waits longer than the first may run, then runs itself; the third meets its time in the queue.
    occupied += [asyncio.ensure_future(ask(port, "POST", "/v2/models/m/infer")) for _ in range(3)]
    answers = [(await each)[0] for each in occupied]
    assert answers[0] == 504
    assert answers.count(503) >= 2
    requests, refused, errors = await balanced.counters()
    assert requests == 4
    assert refused == answers.count(503)
    assert errors == answers.count(504)
