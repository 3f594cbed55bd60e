"""A balancer that is going to stop, on the real HAProxy 3.0: its clients go before it does, and nobody loses a request."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import grpc  # type: ignore[import-untyped]  # grpcio has no types
import grpc.aio  # type: ignore[import-untyped]  # same
import pytest

from halcyon.balancer.config.haproxy_cfg import STOPPING
from tests import figures
from tests.integration.balanced import PLAN, Balanced, agent, endpoint, http_response, infer, is_, new_balanced, until
from tests.integration.waiting import PATIENCE
from tests.unit.balancer.stand_in_api import SLICES, slice_of
from tests.unit.balancer.stand_ins import SERVICE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.integration.balanced import Process
    from tests.unit.balancer.stand_ins import Pod

pytestmark = pytest.mark.more

INFER = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nUser-Agent: t\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
async def balanced() -> AsyncIterator[Balanced]:
    async with new_balanced() as instance:
        yield instance


async def closes(balanced: Balanced, target: str = "/v2/models/m/infer") -> bool:
    """The answer on a new connection says that it is this connection's last."""
    _, headers, _ = await http_response(balanced.haproxy.ports.http, "POST", target)
    return headers.get("connection") == "close"


async def say(balanced: Balanced, *, stopping: bool) -> None:
    balanced.pilot.variables.set({STOPPING: int(stopping)})
    await balanced.turn()


async def test_every_http_answer_of_a_stopping_balancer_closes_its_connection(balanced: Balanced) -> None:
    await balanced.begin(replace(PLAN, queue_limit=1, queue_timeout_ms=20000, response_timeout_ms=20000))
    held = asyncio.create_task(http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer"))
    await until(lambda: is_(lambda: not held.done()))

    async def waits() -> bool:
        return (await balanced.haproxy.runtime.held_requests()).held == 1

    await until(waits)
    assert not await closes(balanced, "/nothing")
    await say(balanced, stopping=True)
    for target, status in (("/nothing", 404), ("/v2/models/m/infer", 429), ("/v2", 405)):
        code, headers, _ = await http_response(balanced.haproxy.ports.http, "POST", target)
        assert (code, headers["connection"]) == (status, "close"), target
    [pod] = await balanced.start()
    await balanced.turn()
    status, headers, _ = await held
    assert (status, headers["connection"]) == (200, "close")
    reader, writer = await asyncio.open_connection("127.0.0.1", balanced.haproxy.ports.http)
    writer.write(INFER)
    # The end of the stream, not of the answer: HAProxy has closed.
    assert pod.address.encode() in await asyncio.wait_for(reader.read(), 5 * PATIENCE)
    writer.close()
    await say(balanced, stopping=False)
    assert not await closes(balanced)


async def test_a_replaced_process_receives_the_stop_too(balanced: Balanced) -> None:
    await balanced.start()
    await balanced.begin()
    await say(balanced, stopping=True)
    balanced.pilot.accept(replace(PLAN, queue_limit=21))
    await balanced.turn()
    await balanced.turn()
    assert balanced.pilot.reloads == 1
    assert await closes(balanced)
    balanced.haproxy.kill()
    await asyncio.to_thread(balanced.haproxy.start)
    assert not await closes(balanced)
    await balanced.turn()
    assert await closes(balanced)


@dataclass
class Place:
    """Where a Service leads at a time: new connections go there, old ones stay where they are."""

    port: int
    failures: list[str] = field(default_factory=list)
    answered: int = 0
    over: bool = False

    async def keep_asking(self) -> None:
        """One client of HTTP/1.1 that keeps its connection for as long as it may, and repeats nothing."""
        while not self.over:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    await self._stay(reader, writer)
                finally:
                    writer.close()
            except (OSError, asyncio.IncompleteReadError) as error:
                self.failures.append(repr(error))

    async def _stay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not self.over:
            writer.write(INFER)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length"))
            await reader.readexactly(length)
            self.answered += 1
            if not head.startswith("http/1.1 200"):
                self.failures.append(head)
            if "connection: close" in head:
                return
            await asyncio.sleep(0.01)

    async def keep_calling(self, channel: grpc.aio.Channel) -> None:
        while not self.over:
            try:
                await infer(channel)
                self.answered += 1
            except grpc.aio.AioRpcError as error:
                self.failures.append(f"{error.code().name} {error.details()}")
            await asyncio.sleep(0.01)


async def test_a_balancer_that_stops_under_load_loses_nothing_and_is_gone_soon(balanced: Balanced) -> None:
    async with new_balanced() as other:
        for each in (balanced, other):
            await each.start(2, delay_s=0.005)
            await each.begin(replace(PLAN, drain_ms=4000, queue_timeout_ms=20000, response_timeout_ms=20000))
        ports = [each.haproxy.ports for each in (balanced, other)]
        both = "ipv4:" + ",".join(f"127.0.0.1:{each.grpc}" for each in ports)
        place = Place(ports[0].http)
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "m")]
        async with grpc.aio.insecure_channel(both, options=options) as channel:
            clients = [asyncio.create_task(place.keep_asking()) for _ in range(4)]
            clients += [asyncio.create_task(place.keep_calling(channel)) for _ in range(4)]
            await until(lambda: is_(lambda: place.answered > 100))
            await say(balanced, stopping=True)
            before = place.answered
            # It is still where the Service leads, and takes who comes.
            await until(lambda: is_(lambda: place.answered > before + 50))
            place.port = ports[1].http
            served_here = sum(pod.http_count for pod in balanced.pods)
            await until(lambda: is_(lambda: place.answered > before + 150))
            moved = sum(pod.http_count for pod in balanced.pods)
            await until(lambda: is_(lambda: place.answered > before + 250))
            assert moved - served_here <= len(clients)
            assert sum(pod.http_count for pod in balanced.pods) == moved, "nobody kept a connection"
            process = balanced.haproxy.process
            assert process is not None
            process.send_signal(signal.SIGUSR1)
            # GOAWAY at the next request of each channel; then no client is left. Well before `hard-stop-after` (65 s).
            await asyncio.wait_for(asyncio.to_thread(process.wait), 10 * PATIENCE)
            after = place.answered
            await until(lambda: is_(lambda: place.answered > after + 100))
            place.over = True
            await asyncio.gather(*clients)
        assert place.failures == []
        assert balanced.haproxy.worker_exits() == 0


def show(running: Process, *pods: Pod) -> None:
    """Have the API server say that these are there."""
    running.api.put(SLICES, "m-server-a-x", slice_of("m-server-a", {endpoint(pod).pod: pod.address for pod in pods}))


async def test_a_draining_agent_reports_it_at_once_and_can_take_it_back(balanced: Balanced, tmp_path: Path) -> None:
    [pod] = await balanced.start()
    async with agent(balanced, tmp_path, metrics_port=1, stop_within_s=5.0) as running:
        show(running, pod)
        await until(lambda: running.is_("/healthz", 200), 10)
        await asyncio.to_thread(balanced.haproxy.start)
        await until(lambda: running.is_("/readyz", 200), 10)
        assert not await closes(balanced)
        loop = asyncio.get_running_loop()
        began = loop.time()
        drained = asyncio.create_task(running.drain(2))
        await until(lambda: running.is_("/readyz", 503), 1)
        await until(lambda: closes(balanced), 1)
        assert (await drained)[0] == 200
        assert loop.time() - began >= 2.0, "HAProxy is not stopped before that"
        assert await closes(balanced)
        await until(lambda: running.is_("/readyz", 200), 5)

        async def stays() -> bool:
            return not await closes(balanced)

        await until(stays, 5)


async def test_an_agent_that_is_killed_while_it_drains_leaves_nothing_behind(
    balanced: Balanced, tmp_path: Path
) -> None:
    [pod] = await balanced.start()
    async with agent(balanced, tmp_path / "first", metrics_port=1) as running:
        show(running, pod)
        await until(lambda: running.is_("/healthz", 200), 10)
        await asyncio.to_thread(balanced.haproxy.start)
        await until(lambda: running.is_("/readyz", 200), 10)
        drained = asyncio.create_task(running.drain(30))
        await until(lambda: closes(balanced), 3)
        running.process.kill()
        with contextlib.suppress(OSError):
            await drained
        assert await closes(balanced)
    async with agent(balanced, tmp_path / "second", metrics_port=1) as running:
        show(running, pod)
        await until(lambda: running.is_("/readyz", 200), 10)

        async def stays() -> bool:
            return not await closes(balanced)

        await until(stays, 5)


async def test_a_killed_haproxy_is_restored_within_a_second_of_its_start(balanced: Balanced, tmp_path: Path) -> None:
    pods = await balanced.start(3)
    addresses = {pod.address for pod in pods}
    async with agent(balanced, tmp_path, metrics_port=1) as running:
        show(running, *pods)
        await until(lambda: running.is_("/healthz", 200), 10)
        await asyncio.to_thread(balanced.haproxy.start)

        async def in_use() -> set[str]:
            lines = (await balanced.haproxy.runtime.read()).servers.values()
            return {line.address for line in lines if line.admin == "ready"}

        async def has(expected: set[str]) -> bool:
            return await in_use() == expected

        await until(lambda: has(addresses), 10)
        # With the API server away: what was known last is what is rebuilt.
        await running.api.stop()
        balanced.haproxy.kill()
        stale = balanced.haproxy.config.read_text().replace(pods[0].address, pods[1].address)
        balanced.haproxy.config.write_text(stale)
        await asyncio.to_thread(balanced.haproxy.start)
        figures.record("rebuilt_after_s", await until(lambda: has(addresses), 3))
        async with balanced.channel as channel:
            assert (
                bytes(await channel.unary_unary(SERVICE + "ModelInfer")(b"x", timeout=5 * PATIENCE)).decode()
                in addresses
            )
