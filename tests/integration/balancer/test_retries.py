"""Requests that are sent again to another server, on the real HAProxy 3.0, and those that are not."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
import pytest

from halcyon.balancer.config.retries import MAX_BYTES, ONCE
from halcyon.balancer.runtime.rate_feedback import RateFeedback
from halcyon.balancer.runtime.retry_budget import MIN_RETRIES
from tests.integration.balanced import PLAN, TIMEOUT, Balanced, infer, new_balanced, until
from tests.unit.balancer.stand_ins import Pod, close

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from halcyon.api.documents.balancer_plan import BalancerPlan

pytestmark = pytest.mark.more

ROOMY = replace(PLAN, max_connections=64, queue_limit=200)


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as instance:
        yield instance


class Breaking(Pod):
    """A pod that is ready, and ends each connection in the middle of a request, as one does that is killed then."""

    broken = 0

    async def start(self, *, with_grpc: bool = True) -> Breaking:
        await super().start(with_grpc=False)
        self._breaking = await asyncio.start_server(self._break, self.address, self.grpc_port) if with_grpc else None
        return self

    async def stop(self) -> None:
        if self._breaking is not None:
            await close(self._breaking)
        await super().stop()

    async def _answer(self, method: str, target: str, request: str, fields: dict[str, str]) -> tuple[int, str]:
        if method == "POST":
            self.broken += 1
            raise ConnectionError
        return await super()._answer(method, target, request, fields)

    async def _break(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A preface and settings come first; then a request.
        settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
        writer.write(settings)
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError):
            seen = b""
            while b"\x00\x00\x00\x01" not in seen.partition(b"SM\r\n\r\n")[2] and len(seen) < 400:
                chunk = await reader.read(65536)
                if not chunk:
                    break
                seen += chunk
            self.broken += 1
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self._writers.discard(writer)


async def begin(balanced: Balanced, plan: BalancerPlan = ROOMY) -> Breaking:
    """Two pods: one that answers, one that breaks off."""
    await balanced.start(1)
    ports = balanced.haproxy.ports
    other = balanced.pod()
    breaking = await Breaking(other.address, ports.server_http, ports.server_grpc).start()
    balanced.pods.append(breaking)
    await balanced.begin(plan)
    return breaking


async def post(balanced: Balanced, body: bytes, *, late: bool = False) -> int:
    async def slowly() -> AsyncIterator[bytes]:
        yield body[:1]
        await asyncio.sleep(0.05)
        yield body[1:]

    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        url = balanced.url + "/v2/models/m/infer"
        headers = {"Content-Length": str(len(body))}
        async with session.post(url, data=slowly() if late else body, headers=headers if late else None) as response:
            await response.read()
            return response.status


async def call(channel: grpc.aio.Channel) -> str:
    try:
        await infer(channel)
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"


async def test_a_request_is_retried_whenever_its_server_breaks_off(
    balanced: Balanced,
) -> None:
    breaking = await begin(balanced)
    assert [await post(balanced, b"x" * 100) for _ in range(10)] == [200] * 10
    assert [await post(balanced, b"x" * 100, late=True) for _ in range(10)] == [200] * 10
    assert [await post(balanced, b"x" * (MAX_BYTES - 1), late=True) for _ in range(10)] == [200] * 10
    met = breaking.broken
    assert met > 5, "leastconn gives both their share"
    async with balanced.channel as channel:
        assert [await call(channel) for _ in range(20)] == ["OK"] * 20
    assert breaking.broken > met
    reading = await balanced.haproxy.runtime.read()
    assert (reading.errors, reading.rejected) == (0, 0)
    assert reading.retried == breaking.broken


async def test_a_body_that_does_not_fit_is_sent_once(balanced: Balanced) -> None:
    breaking = await begin(balanced)
    statuses = [await post(balanced, b"x" * 200_000) for _ in range(12)]
    assert statuses.count(502) == breaking.broken > 0
    assert statuses.count(200) == 12 - breaking.broken
    assert (await balanced.haproxy.runtime.read()).errors == breaking.broken


async def test_requests_of_a_sequence_are_sent_once(balanced: Balanced) -> None:
    breaking = await begin(balanced, replace(ROOMY, sequences=True))
    statuses = [await post(balanced, b"x" * 100) for _ in range(12)]
    assert statuses.count(502) == breaking.broken > 0


async def test_forbidden_retries_spare_only_requests_that_no_server_has_seen(balanced: Balanced) -> None:
    breaking = await begin(balanced)
    balanced.pilot.variables.set({ONCE: 1})
    await balanced.turn()
    statuses = [await post(balanced, b"x" * 100) for _ in range(12)]
    assert statuses.count(502) == breaking.broken > 0
    # A refused connection has cost nobody anything.
    await breaking.stop()
    balanced.pods.remove(breaking)
    assert [await post(balanced, b"x" * 100) for _ in range(6)] == [200] * 6


async def test_the_agent_forbids_retries_while_more_than_a_tenth_of_requests_fail(
    balanced: Balanced,
) -> None:
    breaking = await begin(balanced)
    pacing = RateFeedback(balanced.pilot.variables)

    async def look(now: float) -> None:
        await pacing.update(PLAN, await balanced.haproxy.runtime.read(), {}, servers=2, now=now)

    await look(0.0)
    statuses = [await post(balanced, b"x") for _ in range(3 * MIN_RETRIES)]
    assert set(statuses) == {200}
    await look(1.0)
    met = breaking.broken
    statuses = [await post(balanced, b"x") for _ in range(MIN_RETRIES)]
    assert statuses.count(502) == breaking.broken - met > 0
    # What fails now counts on: it stays forbidden until servers are well again.
    await look(11.5)
    await breaking.stop()
    balanced.pods.remove(breaking)
    await balanced.turn()
    assert [await post(balanced, b"x") for _ in range(3)] == [200] * 3
    await look(22.0)
    await look(23.0)
    again = Breaking(breaking.address, breaking.http_port, breaking.grpc_port)
    balanced.pods.append(await again.start())
    await balanced.turn()
    await balanced.turn()
    statuses = []

    async def is_met() -> bool:
        # Where HAProxy has found this address dead meanwhile, its next check takes it in; and of two, either may be asked.
        statuses.append(await post(balanced, b"x"))
        return again.broken > 0

    await until(is_met)
    assert set(statuses) == {200}
