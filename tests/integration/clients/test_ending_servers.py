"""Clients that keep their connections, while real Triton servers end or close connections behind the real HAProxy 3.0."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import grpc.aio  # type: ignore[import-untyped]  # grpcio has no types
import pytest

from benchmarks.dataplane import tritons, ways
from benchmarks.dataplane.tritons import Triton, Work
from benchmarks.right.client_models import Balancer, balancer, endpoint
from tests.integration.waiting import PATIENCE

pytestmark = pytest.mark.more

MODEL = "m"
PLAN = replace(ways.plan(MODEL), drain_ms=10000)
BODY = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}]}
TAKES_S = 0.05


def terminate(server: Triton) -> None:
    """Send SIGTERM to Triton, as the kubelet does."""
    assert server.process is not None
    parent = server.process.pid
    [child] = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)


async def over_http(address: str, *, until: Callable[[], bool], answers: Counter[str]) -> None:
    """Send one request after the other on one connection."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
        while not until():
            try:
                async with session.post(f"http://{address}/v2/models/{MODEL}/infer", json=BODY) as response:
                    answers[f"http {response.status} {'' if response.status == 200 else await response.text()}"] += 1
            except aiohttp.ClientError as error:
                answers[f"http {error!r}"] += 1


async def over_grpc(address: str, *, until: Callable[[], bool], answers: Counter[str]) -> None:
    """Send one request after the other on one channel."""
    request = tritons.request_body(MODEL)[5:]
    async with grpc.aio.insecure_channel(address, options=[("grpc.enable_retries", 0)]) as channel:
        call = channel.unary_unary(tritons.METHOD)
        while not until():
            try:
                await call(request, timeout=30)
                answers["grpc OK"] += 1
            except grpc.aio.AioRpcError as error:
                answers[f"grpc {error.code().name} {error.details()}"] += 1


@asynccontextmanager
async def clients(balanced: Balancer, count: int = 4) -> AsyncIterator[Counter[str]]:
    """Run this many clients of each protocol, and yield their answers, which are complete after the context."""
    answers, is_over = Counter[str](), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(over_http(balanced.http, until=is_over.is_set, answers=answers))
            group.create_task(over_grpc(balanced.grpc, until=is_over.is_set, answers=answers))
        yield answers
        is_over.set()


def assert_all_answered(answers: Counter[str]) -> None:
    assert set(answers) == {"http 200 ", "grpc OK"}, answers
    assert min(answers.values()) >= 20, answers


async def test_each_request_of_a_kept_connection_is_placed_by_itself() -> None:
    with tritons.running([Work(MODEL, TAKES_S * 1000)] * 2) as servers:
        async with balancer(servers, PLAN) as balanced:
            async with clients(balanced, 1) as answers:
                await asyncio.sleep(3)
            responses = (await balanced.haproxy.runtime.read()).loads.responses.values()
        assert_all_answered(answers)
        shares = [server.answered() for server in servers]
    assert min(shares) >= 0.3 * sum(shares), shares
    assert sorted(responses)[-2:] == sorted(shares), responses


async def test_a_server_that_is_scaled_down_loses_no_request() -> None:
    with tritons.running([Work(MODEL, TAKES_S * 1000)] * 2, arguments=["--exit-timeout-secs=10"]) as servers:
        async with balancer(servers, PLAN) as balanced, clients(balanced) as answers:
            await asyncio.sleep(1.5)
            for _ in range(3):
                await balanced.controller.run_pass((endpoint(servers[0], terminating=True), endpoint(servers[1])))
                await asyncio.sleep(0.3)
            terminate(servers[0])
            await asyncio.sleep(2)
        assert_all_answered(answers)


async def test_the_only_server_is_replaced_without_a_lost_request() -> None:
    with tritons.running([Work(MODEL, TAKES_S * 1000)] * 2, arguments=["--exit-timeout-secs=10"]) as (old, new):
        async with balancer([old], PLAN) as balanced, clients(balanced) as answers:
            await asyncio.sleep(1)
            for endpoints in (
                (endpoint(old), endpoint(new)),
                (endpoint(old, terminating=True), endpoint(new)),
                (endpoint(old, terminating=True), endpoint(new)),
            ):
                await balanced.controller.run_pass(endpoints)
                await asyncio.sleep(0.5)
            terminate(old)
            await asyncio.sleep(1.5)
        assert_all_answered(answers)


async def test_a_server_that_ends_before_anyone_is_notified_loses_no_request() -> None:
    with tritons.running([Work(MODEL, TAKES_S * 1000)] * 2, arguments=["--exit-timeout-secs=10"]) as servers:
        async with balancer(servers, PLAN) as balanced, clients(balanced) as answers:
            await asyncio.sleep(1)
            terminate(servers[0])
            await asyncio.sleep(2.5)
        assert_all_answered(answers)


async def test_a_server_that_closes_its_connections_after_a_time_loses_no_request() -> None:
    arguments = ["--grpc-max-connection-age=500"]
    with tritons.running([Work(MODEL, TAKES_S * 1000)] * 2, arguments=arguments) as servers:
        async with balancer(servers, PLAN) as balanced, clients(balanced) as answers:
            await asyncio.sleep(6)
        assert_all_answered(answers)


async def test_a_request_in_progress_ends_although_its_server_is_asked_to_end() -> None:
    with tritons.running([Work(MODEL, 3000)], arguments=["--exit-timeout-secs=30"]) as [server]:
        async with balancer([server], PLAN) as balanced, aiohttp.ClientSession() as session:
            url = f"http://{balanced.http}/v2/models/{MODEL}/infer"
            began = time.monotonic()

            async def send() -> int:
                async with session.post(url, json=BODY) as response:
                    return response.status

            sent = asyncio.create_task(send())
            await asyncio.sleep(1)
            terminate(server)
            assert await sent == 200
            assert 2.5 < time.monotonic() - began < 10 * PATIENCE


async def test_a_new_server_gets_its_share_of_a_channel_within_a_second() -> None:
    with tritons.running([Work(MODEL, TAKES_S * 1000)] * 2) as (old, new):
        async with balancer([old], PLAN) as balanced, clients(balanced) as answers:
            await asyncio.sleep(1)
            await balanced.controller.run_pass((endpoint(old), endpoint(new)))
            before = new.answered()
            await asyncio.sleep(1)
            assert new.answered() - before >= 10
        assert_all_answered(answers)
