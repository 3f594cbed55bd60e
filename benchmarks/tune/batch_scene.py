"""A batch on real Triton servers behind Halcyon's balancers, and the events that interrupt it: the kinds of row 8.2."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.dataplane import tritons
from benchmarks.dataplane.tritons import Triton, Work
from benchmarks.dataplane.ways import Balancer
from halcyon.api.documents.batch_documents import BatchRecipe
from tests.ports import free_ports

_ENDS_WITHIN_S, _ZERO_S, _BESIDE_S = 30.0, 3.0, 2.0


class Door:
    """A TCP port that leads to one of the given addresses in turn, as a Service leads to its balancers."""

    def __init__(self) -> None:
        self.ways: Sequence[tuple[str, int]] = ()
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._next = 0
        self.port = 0
        threading.Thread(target=self._run, daemon=True).start()
        self._listening.wait()

    def _run(self) -> None:
        async def serve() -> None:
            server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            self._listening.set()
            await server.serve_forever()

        self._loop.run_until_complete(serve())

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self.ways:
            self._next += 1
            try:
                upstream = await asyncio.open_connection(*self.ways[self._next % len(self.ways)])
            except OSError:
                continue
            self._open.add(writer)
            try:
                await asyncio.gather(_carry(reader, upstream[1]), _carry(upstream[0], writer))
            finally:
                self._open.discard(writer)
            return
        writer.close()

    def reset(self) -> None:
        """Reset all open connections of clients, as a firewall does that has lost its state."""
        done = threading.Event()

        def act() -> None:
            for writer in self._open:
                connection = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            done.set()

        self._loop.call_soon_threadsafe(act)
        done.wait()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(2**16):
            writer.write(piece)
            await writer.drain()
    writer.close()


@dataclass(frozen=True)
class Place:
    """A data set, its results, and the door to the model."""

    folder: Path
    door: Door
    work: Work

    def recipe(self) -> BatchRecipe:
        """Return the recipe of a runner."""
        return BatchRecipe(
            owner="bench",
            name="bench",
            model=self.work.name,
            url=f"http://127.0.0.1:{self.door.port}",
            input=str(self.folder / "rows.npz"),
            output=str(self.folder / "out"),
            input_format="",
            output_format="",
            max_rows=self.work.max_batch,
        )

    def start(self, port: int) -> subprocess.Popen[bytes]:
        """Start a runner as its pod does."""
        own = {
            "HALCYON_PORT": str(port),
            "HALCYON_TERMINATION_LOG": str(self.folder / "log"),
            "PYTHONPATH": "operator:cli",
        }
        command = [sys.executable, "-m", "halcyon_batch", self.recipe().to_json()]
        return subprocess.Popen(command, env={**os.environ, **own}, stdout=subprocess.DEVNULL)

    def parts(self) -> int:
        """Return the number of parts that are written."""
        return len(list((self.folder / "out").glob("part-*")))


def serve(stack: contextlib.ExitStack, work: Work) -> Triton:
    """Start a server, which ends with the stack."""
    (server,) = stack.enter_context(tritons.running([work]))
    return server


class Scene:
    """A runner, a server, and the balancers between them."""

    def __init__(
        self,
        place: Place,
        balancers: Sequence[Balancer],
        stack: contextlib.ExitStack,
        server: Triton,
        rng: random.Random,
    ) -> None:
        self.place, self._balancers, self._stack, self._server, self._rng = place, balancers, stack, server, rng
        self.runner = self._start()
        stack.callback(lambda: self.runner.kill())  # noqa: PLW0108  # whichever is the last

    def _start(self) -> subprocess.Popen[bytes]:
        (port,) = free_ports(1)
        return self.place.start(port)

    def wait_parts(self, count: int) -> None:
        """Wait until so many parts are written, or the runner has ended."""
        while self.place.parts() < count and self.runner.poll() is None:
            time.sleep(0.02)

    async def kill_runner(self) -> None:
        """End the runner at once, as a lost node does."""
        self.runner.kill()
        await asyncio.to_thread(self.runner.wait)
        self.runner = self._start()

    async def delete_pod(self) -> None:
        """End the runner as the kubelet does."""
        self.runner.terminate()
        await asyncio.to_thread(self.runner.wait, _ENDS_WITHIN_S)
        self.runner = self._start()

    async def cut_off_node(self) -> None:
        """Stop the runner, start another one, and let the first one go on beside it for a while."""
        first = self.runner
        first.send_signal(signal.SIGSTOP)
        try:
            before, self.runner = self.place.parts(), self._start()
            await asyncio.to_thread(self.wait_parts, before + 2)
            first.send_signal(signal.SIGCONT)
            await asyncio.sleep(_BESIDE_S)
        finally:
            first.kill()
            await asyncio.to_thread(first.wait)

    async def kill_server(self) -> None:
        """End the server at once; another one has another address."""
        self._server.kill()
        await self._serve()

    async def go_to_zero(self) -> None:
        """Run without a server for a while."""
        self._server.kill()
        for balancer in self._balancers:
            balancer.endpoints([])
        await asyncio.sleep(_ZERO_S)
        await self._serve()

    async def roll_out(self) -> None:
        """Replace the server by another one that is ready before the first one leaves."""
        before = self._server
        await self._serve(leaving=[before.address])
        await asyncio.sleep(_BESIDE_S)
        before.kill()

    async def _serve(self, leaving: Sequence[str] = ()) -> None:
        self._server = await asyncio.to_thread(serve, self._stack, self.place.work)
        for balancer in self._balancers:
            balancer.endpoints([self._server.address], leaving=leaving)

    async def kill_balancer(self) -> None:
        """End a balancer's HAProxy, which its pod starts again."""
        haproxy = self._rng.choice(self._balancers).balanced.haproxy
        await asyncio.to_thread(haproxy.kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(haproxy.start)

    async def reset_connections(self) -> None:
        """Reset the runner's connections."""
        await asyncio.to_thread(self.place.door.reset)


EVENTS: Mapping[str, tuple[int, Callable[[Scene], Awaitable[Any]]]] = {
    "runner is killed": (12, Scene.kill_runner),
    "pod is deleted": (4, Scene.delete_pod),
    "node is cut off": (2, Scene.cut_off_node),
    "server is killed": (3, Scene.kill_server),
    "zero and back": (2, Scene.go_to_zero),
    "rollout": (2, Scene.roll_out),
    "balancer is killed": (3, Scene.kill_balancer),
    "connections are reset": (2, Scene.reset_connections),
}
"""Kinds of events: the number of times that each occurs, and its function."""
