"""Clients that take all that they can get, on the real HAProxy 3.0: others are answered within a second, and its memory keeps its bound."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from halcyon.api.documents.balancer_plan import HAPROXY_MEMORY_MIB
from halcyon.balancer.config import memory_budget
from halcyon.balancer.config.model import TlsFiles
from halcyon.balancer.runtime.controller import HaproxyController
from tests.integration import crowd
from tests.integration.balanced import PLAN, Balanced, agent, endpoint, http_response, infer, is_, new_balanced, until
from tests.integration.certificates import pair
from tests.integration.crowd import Crowd
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_in_api import SLICES, slice_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.integration.balanced import Process

pytestmark = pytest.mark.more

MANY = 8500
"""Connections of one client."""
SECOND_S = 1.0
"""Everyone else is answered within it."""
ROOMY = replace(PLAN, max_connections=300, queue_limit=300, source_share=50)
ROOM = memory_budget.haproxy_limits(PLAN, tls=False)


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    with crowd.files(18_000):
        async with new_balanced() as instance:
            await instance.start()
            yield instance


def peak_mib(balanced: Balanced) -> float:
    """The largest that HAProxy's worker has been."""
    [worker] = balanced.haproxy.workers()
    status = Path(f"/proc/{worker}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) / 1024


@dataclass
class Watch:
    """What another client meets meanwhile: the longest that it waited, by what it asked, and HAProxy's largest size."""

    slowest_s: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    most_mib: float = 0.0


@contextlib.asynccontextmanager
async def watched(balanced: Balanced) -> AsyncIterator[Watch]:
    """Another client asks on, over a new connection each time and over a channel that it keeps, both until the block ends."""
    watch, ports = Watch(), balanced.haproxy.ports

    async def timed(kind: str, request: asyncio.Future[object]) -> None:
        began = time.monotonic()
        try:
            await asyncio.wait_for(request, 5 * PATIENCE)
        finally:
            watch.slowest_s[kind] = max(watch.slowest_s.get(kind, 0.0), time.monotonic() - began)

    async def http() -> None:
        assert (await http_response(ports.http, "POST", "/v2/models/m/infer"))[0] == 200

    scraped_at = float("-inf")

    async def metrics() -> None:
        nonlocal scraped_at
        # Twice a second is what one source may do, and more than Prometheus does.
        if time.monotonic() - scraped_at > 0.6:
            scraped_at = time.monotonic()
            assert (await http_response(ports.metrics, "GET", "/metrics"))[0] == 200

    async def fresh() -> None:
        async with balanced.channel as channel:
            assert await infer(channel)

    async def look_on() -> None:
        async with balanced.channel as kept:
            while True:
                await asyncio.gather(
                    timed("http", asyncio.ensure_future(http())),
                    timed("a new channel", asyncio.ensure_future(fresh())),
                    timed("a kept channel", asyncio.ensure_future(infer(kept))),
                    timed("metrics", asyncio.ensure_future(metrics())),
                )
                watch.rounds += 1
                watch.most_mib = peak_mib(balanced)
                await asyncio.sleep(0.05)

    looking = asyncio.ensure_future(look_on())
    try:
        yield watch
        # Some more looks at what stands now.
        seen = watch.rounds
        while watch.rounds < seen + 5:
            await asyncio.wait([looking], timeout=0.1)
            if looking.done():
                looking.result()
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


@pytest.mark.parametrize(
    ("port", "says"),
    [
        ("http", crowd.ASKS_ONCE),
        ("http", b""),
        ("http", crowd.HALF_A_HEAD),
        ("grpc", crowd.preface()),
        ("grpc", crowd.preface() + crowd.call(1, "ModelInfer")[:40]),
        ("metrics", b"GET /metrics HTTP/1.1\r\nHost: m\r\n\r\n"),
    ],
    ids=["asked once", "silent", "half a head", "channels", "half a call", "metrics"],
)
async def test_8500_connections_of_one_client_leave_others_a_second(
    balanced: Balanced, port: str, says: bytes, record_testsuite_property: Callable[[str, object], None]
) -> None:
    await balanced.begin()
    many = Crowd("127.0.0.9", getattr(balanced.haproxy.ports, port))
    try:
        async with watched(balanced) as watch:
            for _ in range(10):
                await asyncio.to_thread(many.come, MANY // 10, says)
        most = {"http": ROOM.http, "grpc": ROOM.grpc, "metrics": memory_budget.MAX_METRICS_CONNECTIONS}[port]
        # Alone, a source may have the larger part; connections that asked are kept open up to the half.
        assert most // 3 < many.kept() <= most * 3 // 4 + 1
    finally:
        many.go()
    record_testsuite_property("crowd_mib_and_slowest_s", (watch.most_mib, max(watch.slowest_s.values())))
    assert max(watch.slowest_s.values()) < SECOND_S, watch
    assert watch.most_mib < HAPROXY_MEMORY_MIB
    assert balanced.haproxy.worker_exits() == 0


async def page_of(port: int, source: str = "127.0.0.1") -> tuple[int, str]:
    """Scrape HAProxy's metrics; return the status and the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n")
    answer = (await asyncio.wait_for(reader.read(-1), 5 * PATIENCE)).decode()
    writer.close()
    return int(answer.split(" ")[1]), answer


async def test_scrapes_of_one_source_leave_room_for_those_of_others(balanced: Balanced) -> None:
    wide = replace(PLAN, slots=(replace(PLAN.slots[0], capacity=64),))
    await balanced.begin(wide)
    port = balanced.haproxy.ports.metrics

    async def scrape(source: str) -> tuple[int, str]:
        return await page_of(port, source)

    status, page = await scrape("127.0.0.8")
    assert status == 200
    assert 'haproxy_server_status{proxy="http_a",server="s1",state="UP"} 1' in page
    # Servers without a pod would be most of the page.
    assert 'server="s2"' not in page
    answers = [(await scrape("127.0.0.9"))[0] for _ in range(40)]
    # Beyond four scrapes per second in all, a source has five in 10 s.
    assert answers.count(200) <= 20
    assert answers[-1] == 429
    assert [(await scrape("127.0.0.8"))[0] for _ in range(2)] == [200, 200]


async def test_readiness_is_that_of_the_front_ends(balanced: Balanced, tmp_path: Path) -> None:
    [pod] = balanced.pods
    runtime = balanced.haproxy.runtime
    async with agent(balanced, tmp_path, metrics_port=1) as running:
        running.api.put(SLICES, "m-server-a-x", slice_of("m-server-a", {endpoint(pod).pod: pod.address}))
        await until(lambda: running.is_("/healthz", 200), 10)
        await asyncio.to_thread(balanced.haproxy.start)
        await until(lambda: running.is_("/readyz", 200), 10)
        before = await requests_of(balanced)
        assert len(before) == 2
        for frontend in ("http", "grpc"):
            # The process and its runtime socket respond, and clients get no answer.
            await runtime._request(runtime.path, f"disable frontend {frontend}", 5)
            await until(lambda: running.is_("/readyz", 503), 10)
            assert (await running.probe("/readyz"))[1].decode() == f"HAProxy's front end {frontend} does not respond\n"
            await runtime._request(runtime.path, f"enable frontend {frontend}", 5)
            await until(lambda: running.is_("/readyz", 200), 10)
        # The checks are no requests.
        assert await requests_of(balanced) == before


async def requests_of(balanced: Balanced) -> list[str]:
    _, page = await page_of(balanced.haproxy.ports.metrics)
    lines = page.splitlines()
    return [line for line in lines if line.startswith('haproxy_frontend_http_requests_total{proxy="http"')] + [
        line for line in lines if line.startswith('haproxy_frontend_http_requests_total{proxy="grpc"')
    ]


async def test_a_full_balancer_stays_ready_and_reports_it(balanced: Balanced, tmp_path: Path) -> None:
    [pod] = balanced.pods
    crowds = [Crowd(f"127.0.0.{number}", balanced.haproxy.ports.http) for number in range(11, 17)]
    async with agent(balanced, tmp_path, metrics_port=1) as running:
        running.api.put(SLICES, "m-server-a-x", slice_of("m-server-a", {endpoint(pod).pod: pod.address}))
        await until(lambda: running.is_("/healthz", 200), 10)
        await asyncio.to_thread(balanced.haproxy.start)
        await until(lambda: running.is_("/readyz", 200), 10)
        try:
            # By the limits per source: 3,000 of the first, 500 of the second, 251 of each other.
            for each, count in zip(crowds, (3000, 500, 251, 251, 251, 251), strict=True):
                await asyncio.to_thread(each.come, count)
            await until(lambda: is_full(running), 5)
            # Longer than a port may be silent.
            for _ in range(7):
                assert (await running.probe("/readyz"))[0] == 200
                await asyncio.sleep(1)
            assert await is_full(running)
            assert (await running.probe("/readyz"))[0] == 200
        finally:
            for each in crowds:
                each.go()


async def is_full(running: Process) -> bool:
    return b"\nhalcyon_agent_connections_used_ratio 1\n" in (await running.probe("/metrics"))[1]


NEVER_ENDS = crowd.message(23_900, announced=2 * 23_900)
CALLS = 1000
"""Of one connection: more than it may have, and what it could have once."""


def channel_full(body: bytes, *, complete: bool = False, window: int = 65535) -> bytes:
    """A connection with all the calls that it may have and more, each with this body."""
    calls = (crowd.call(2 * number + 1, "ModelInfer", body, complete=complete) for number in range(CALLS))
    return crowd.preface(window=window) + b"".join(calls)


@pytest.mark.parametrize(
    ("body", "window"),
    [(NEVER_ENDS, 65535), (crowd.message(4000), 0)],
    ids=["bodies that never end", "answers that are never read"],
)
async def test_a_flood_of_calls_by_one_client_leaves_others_a_second(
    balanced: Balanced, body: bytes, window: int, record_testsuite_property: Callable[[str, object], None]
) -> None:
    await balanced.begin(ROOMY)
    many = Crowd("127.0.0.9", balanced.haproxy.ports.grpc)
    says = channel_full(body, complete=window == 0, window=window)
    try:
        async with watched(balanced) as watch:
            for _ in range(24):
                await asyncio.to_thread(many.come, 1, says)
    finally:
        many.go()
    record_testsuite_property("flood_mib_and_slowest_s", (watch.most_mib, max(watch.slowest_s.values())))
    assert max(watch.slowest_s.values()) < SECOND_S, watch
    assert watch.most_mib < HAPROXY_MEMORY_MIB, watch
    assert balanced.haproxy.worker_exits() == 0


async def test_a_flood_from_many_sources_keeps_memory_below_the_limit(balanced: Balanced) -> None:
    await balanced.begin(ROOMY)
    says = channel_full(NEVER_ENDS)
    crowds = [Crowd(f"127.0.7.{number}", balanced.haproxy.ports.grpc) for number in range(1, 41)]
    try:
        for each in crowds:
            await asyncio.to_thread(each.come, 1, says)
        assert peak_mib(balanced) < HAPROXY_MEMORY_MIB
    finally:
        for each in crowds:
            each.go()

    async def is_served() -> bool:
        return (await http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer"))[0] == 200

    await until(is_served)
    assert balanced.haproxy.worker_exits() == 0


async def test_256_calls_of_one_channel_are_answered_at_once(balanced: Balanced) -> None:
    [pod] = balanced.pods
    pod.hold = asyncio.Event()
    await balanced.begin(ROOMY)
    async with balanced.channel as channel:
        calls = [asyncio.ensure_future(infer(channel)) for _ in range(memory_budget.STREAMS_PER_CHANNEL)]
        await until(lambda: is_(lambda: pod.running == memory_budget.STREAMS_PER_CHANNEL))
        pod.hold.set()
        assert len(await asyncio.gather(*calls)) == memory_budget.STREAMS_PER_CHANNEL


async def test_a_source_that_opens_connections_under_pressure_keeps_none(balanced: Balanced) -> None:
    await balanced.begin()
    http = balanced.haproxy.ports.http
    assert "connection" not in (await http_response(http, "POST", "/v2/models/m/infer"))[1]
    many = Crowd("127.0.0.9", http)
    try:
        await asyncio.to_thread(many.come, ROOM.http // 2 + 1)
        assert (await http_response(http, "POST", "/v2/models/m/infer"))[1]["connection"] == "close"
    finally:
        many.go()


async def test_a_silent_crowd_before_tls_leaves_others_a_second(balanced: Balanced) -> None:
    served = pair()
    haproxy = balanced.haproxy
    (haproxy.directory / "certificate.pem").write_text(served.crt + served.key)
    listen = replace(haproxy.listen, tls=TlsFiles("certificate.pem"))
    balanced.pilot = HaproxyController(haproxy.runtime, haproxy.config, listen)
    await balanced.begin()
    trust = ssl.create_default_context(cadata=served.crt)
    trust.check_hostname = False
    many = Crowd("127.0.0.9", haproxy.ports.http)
    slowest_s = 0.0
    try:
        for _ in range(10):
            await asyncio.to_thread(many.come, MANY // 10)
            began = time.monotonic()
            reader, writer = await asyncio.open_connection("127.0.0.1", haproxy.ports.http, ssl=trust)
            writer.write(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            assert (await asyncio.wait_for(reader.readline(), 5 * PATIENCE)).startswith(b"HTTP/1.1 200")
            slowest_s = max(slowest_s, time.monotonic() - began)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        assert many.kept() <= memory_budget.haproxy_limits(PLAN, tls=True).http * 3 // 4 + 1
    finally:
        many.go()
    assert slowest_s < SECOND_S
    assert peak_mib(balanced) < HAPROXY_MEMORY_MIB


async def test_reads_of_one_client_share_the_queue_with_requests_of_others(balanced: Balanced) -> None:
    """Reads of statistics and metadata go to servers, too, so they wait in the same queue."""
    [pod] = balanced.pods
    pod.delay_s = 0.2
    await balanced.begin(PLAN)
    port = balanced.haproxy.ports.http
    statuses, stop = list[int](), asyncio.Event()

    async def reads() -> None:
        while not stop.is_set():
            statuses.append((await http_response(port, "GET", "/v2/models/m/stats"))[0])
            await asyncio.sleep(0.1)

    reading = [asyncio.create_task(reads()) for _ in range(60)]
    try:
        await asyncio.sleep(1)
        others = [await from_source("127.0.0.9", port) for _ in range(5)]
    finally:
        stop.set()
        await asyncio.gather(*reading)
    assert others == [200] * 5
    assert set(statuses) == {200, 429}
    # Reads are no demand.
    assert (await balanced.counters())[:2] == (5, 0)


async def from_source(address: str, port: int) -> int:
    """Send an inference request from this address, and return the status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        writer.write(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        return int((await asyncio.wait_for(reader.readline(), 20 * PATIENCE)).split()[1])
    finally:
        writer.close()
