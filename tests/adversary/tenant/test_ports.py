"""Clients of the operator's other ports, and a model's own server, in the hands of a tenant."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from prometheus_client import CollectorRegistry

from halcyon.control.runtime import http_endpoints
from halcyon.dashboard.authorization import MAX_REVIEWS_PER_S, Authorizer
from halcyon.kube import kinds
from halcyon.kube.auth.callers import User
from halcyon.kube.auth.reviews import ApiServerReviews
from halcyon.kube.client import KubeClient
from halcyon.metricsapi.connections import PortLimits
from halcyon.triton.client import MAX_PAGE_BYTES, TritonClient
from halcyon.triton.errors import TritonError
from tests.adversary.tenant.loop_time import loop_time
from tests.integration.served_ports import served, unverified

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def server(*routes: tuple[str, str, Handler]) -> AsyncIterator[TestServer]:
    app = web.Application()
    app.add_routes([web.route(*route) for route in routes])
    running = TestServer(app)
    async with running:
        yield running


async def test_reviews_never_delay_other_requests() -> None:
    """An API server that answers no review: a ConfigMap is read nevertheless."""
    forever, waiting = asyncio.Event(), 0

    async def review(_: web.Request) -> web.Response:
        nonlocal waiting
        waiting += 1
        await forever.wait()
        return web.json_response({})

    async def respond(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": "one"}})

    reviews, other = ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review), ("GET", "/{rest:.*}", respond)
    async with server(reviews, other) as running:
        client = KubeClient(ApiClient(Configuration(host=str(running.make_url("")))))
        reviewed = [asyncio.create_task(ApiServerReviews(client).user(f"garbage-{n}")) for n in range(100)]
        async with asyncio.timeout(5):
            while not waiting:  # noqa: ASYNC110  # a counter of the other side
                await asyncio.sleep(0.01)
            assert await client.get(kinds.CONFIG_MAP, "ns", "one") is not None
        for task in reviewed:
            task.cancel()
        await asyncio.gather(*reviewed, return_exceptions=True)
        forever.set()
        await client.close()


@pytest.mark.parametrize(
    "sent", [None, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"], ids=["silence", "a request"]
)
async def test_handshakes_of_one_source_leave_the_port_to_others(sent: bytes | None) -> None:
    """A TLS handshake takes a millisecond of the operator's one thread; a source alone could take all of it."""
    tls, done = unverified(), 0
    with served(limits=PortLimits(requests_per_s=10, requests_burst=20)) as site:

        async def connects(source: str) -> bool:
            try:
                async with asyncio.timeout(1):
                    reader, writer = await asyncio.open_connection(
                        "127.0.0.1", site.https, ssl=tls, local_addr=(source, 0)
                    )
                    try:
                        if sent is not None:
                            writer.write(sent)
                            return bool(await reader.read(1))
                        return True
                    finally:
                        writer.transport.abort()
            except (OSError, TimeoutError):
                return False

        began = time.monotonic()
        while time.monotonic() < began + 4:
            done += sum(await asyncio.gather(*(connects("127.0.7.1") for _ in range(10))))
        passed_s = time.monotonic() - began
        # Those that have begun at the same time count when they end.
        assert 20 <= done <= 20 + 10 * passed_s + 20
        assert await connects("127.0.7.2")


async def test_scrapes_at_the_same_time_share_one_page() -> None:
    rendered, begun = 0, asyncio.Event()

    async def of_models() -> str:
        nonlocal rendered
        rendered += 1
        await begun.wait()
        return "#" * 1_000_000 + "\n"

    app = http_endpoints.build(CollectorRegistry(), live={}, ready={}, model_metrics=of_models)
    async with TestServer(app) as running, aiohttp.ClientSession() as session:
        url = running.make_url("/metrics")

        async def scrape() -> tuple[int, int]:
            async with session.get(url) as answer:
                return answer.status, len(await answer.read())

        scrapes = [asyncio.create_task(scrape()) for _ in range(2 * http_endpoints.MAX_READERS)]
        await asyncio.sleep(0.5)
        begun.set()
        responses = await asyncio.gather(*scrapes)
        assert rendered == 1
        assert sorted(status for status, _ in responses) == [200] * 16 + [503] * 16
        assert {size for status, size in responses if status == 200} == {1_000_001}


@pytest.mark.parametrize("size", [MAX_PAGE_BYTES, 8 * MAX_PAGE_BYTES])
async def test_a_large_page_of_a_server_is_parsed_off_the_loop(size: int) -> None:
    line = 'nv_inference_count{model="m",version="1"} 1\n'
    metrics = (line * (size // len(line))).encode()
    batch = {"batch_size": 1, "compute_infer": {"count": 1, "ns": 1}}
    text = json.dumps({"model_stats": [{"name": "m", "batch_stats": [batch] * (size // 80)}]}).encode()

    async def page(request: web.Request) -> web.Response:
        return web.Response(body=metrics if request.path == "/metrics" else text)

    async with server(("GET", "/{rest:.*}", page)) as running, aiohttp.ClientSession() as session:
        assert running.port is not None
        client = TritonClient(session, "m", running.port, running.port)
        with loop_time() as measured:
            for read in (client.metrics("127.0.0.1"), client.batches("127.0.0.1", pod="m-a-0")):
                if size > MAX_PAGE_BYTES:
                    with pytest.raises(TritonError, match="which is the limit"):
                        await read
                else:
                    await read
        assert measured.longest_s < 0.02


async def test_a_page_of_one_namespace_costs_few_reviews() -> None:
    """The dashboard's page is rendered each second, and 1,000 namespaces have models."""
    now, reviews = 0.0, 0

    class Reviews:
        covers_all = True

        async def user(self, token: str) -> User:
            return User(token)

        async def may_see(self, user: User, *, namespace: str, name: str = "") -> bool:
            nonlocal reviews
            del user, name
            reviews += 1
            return namespace == "ns1"

    access = Authorizer(Reviews(), clock=lambda: now, namespaces=lambda: {f"ns{n}" for n in range(1000)})
    for _ in range(400):
        now += 1.0
        assert await access.visible_namespaces(User("u")) == frozenset({"ns1"})
    assert reviews / 400 < 1.5 * MAX_REVIEWS_PER_S
