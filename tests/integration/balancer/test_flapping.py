"""Servers, clients and processes that come and go at random, on the real HAProxy 3.0: nothing is lost and nothing is left over."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace

import aiohttp
import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
import pytest

from tests.integration.balanced import PLAN, TIMEOUT, Balanced, infer, new_balanced, until

pytestmark = pytest.mark.more

FLAPPING = replace(PLAN, queue_limit=150, queue_timeout_ms=12000, response_timeout_ms=12000, max_connections=64)
TIME_IS_OVER = "no server for model m became ready in time"
STEPS = 30


class Crowd:
    """Clients of both protocols; some of them lose patience."""

    def __init__(self, balanced: Balanced, chance: random.Random) -> None:
        self._balanced = balanced
        self._chance = chance
        self.answers: Counter[str] = Counter()
        self.over = False

    async def send_in_turn(self, session: aiohttp.ClientSession, channel: grpc.aio.Channel) -> None:
        while not self.over:
            by_http = self._chance.random() < 0.5
            try:
                async with asyncio.timeout(self._chance.choice([0.05, 0.5, 20.0, 20.0])):
                    self.answers[await (self._by_http(session) if by_http else self._by_grpc(channel))] += 1
            except TimeoutError:
                self.answers["given up"] += 1

    async def _by_http(self, session: aiohttp.ClientSession) -> str:
        async with session.post(self._balanced.url + "/v2/models/m/infer", data=b"{}") as response:
            answer = await response.json()
            return "served" if response.status == 200 else self._kind(answer["error"])

    async def _by_grpc(self, channel: grpc.aio.Channel) -> str:
        try:
            await infer(channel, within_s=20)
        except grpc.aio.AioRpcError as error:
            return self._kind(str(error.details()))
        return "served"

    @staticmethod
    def _kind(error: str) -> str:
        return "time is over" if error.startswith(TIME_IS_OVER) else error


async def test_flapping_servers_lose_no_patient_request_and_leave_no_leftovers() -> None:
    chance = random.Random(1)
    async with new_balanced() as balanced:
        pods = await balanced.start(2, delay_s=0.005)
        await balanced.begin(FLAPPING)
        crowd = Crowd(balanced, chance)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        # GOAWAY of a stopping process is answered by the client's own transparent retry, which is on by default.
        async with (
            aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session,
            balanced.connect(retries=True) as channel,
        ):
            clients = [asyncio.create_task(crowd.send_in_turn(session, channel)) for _ in range(30)]
            for step in range(STEPS):
                if step % 6 == 5:
                    balanced.pilot.accept(replace(FLAPPING, queue_limit=150 + step))
                await balanced.turn(pods if chance.random() < 0.4 else [])
                await asyncio.sleep(chance.random() * 0.4)
            crowd.over = True
            await balanced.turn(pods)
            await asyncio.gather(*clients)
        assert crowd.answers.keys() <= {"served", "given up", "time is over"}, crowd.answers
        assert crowd.answers["served"] > 100
        assert crowd.answers["given up"] > 10

        async def is_empty() -> bool:
            await balanced.turn(pods)
            reading = await balanced.haproxy.runtime.read()
            return (reading.held, reading.queued, reading.inflight) == (0, 0, 0)

        await until(is_empty)
        assert balanced.pilot.reloads >= STEPS // 6
        assert balanced.haproxy.worker_exits() == 0
