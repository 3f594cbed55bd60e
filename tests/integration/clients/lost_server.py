"""Requests at a server whose node is lost without a word: no packet to or from it arrives.

    unshare --net python -m tests.integration.clients.lost_server

The namespace keeps the packet filter away from other processes, and ends with this one. Prints the outcomes as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import grpc.aio  # type: ignore[import-untyped]  # grpcio has no types

from halcyon.balancer.config.retries import MAX_BYTES
from tests.integration.balanced import PLAN, Balanced, infer, is_, new_balanced, until

RESPONSE_TIMEOUT_MS = 120_000
SLOW_S = 40.0
"""Time that the server that is not lost takes for one request."""
_PLAN = replace(PLAN, max_connections=64, queue_limit=200, response_timeout_ms=RESPONSE_TIMEOUT_MS)


@dataclass
class Clients:
    """An HTTP client and a gRPC client of the balancer."""

    url: str
    session: aiohttp.ClientSession
    channel: grpc.aio.Channel

    async def post(self, size: int) -> dict[str, Any]:
        began, status, pod = time.monotonic(), 0, None
        # HAProxy closes the client's connection without a response if a used connection to the server ends.
        with contextlib.suppress(aiohttp.ServerDisconnectedError):
            async with self.session.post(self.url, data=b"x" * size) as response:
                await response.read()
                status, pod = response.status, response.headers.get("X-Pod")
        return {"status": status, "pod": pod, "s": time.monotonic() - began}

    async def call(self) -> dict[str, Any]:
        began = time.monotonic()
        try:
            await infer(self.channel, within_s=RESPONSE_TIMEOUT_MS / 1000)
            code = "OK"
        except grpc.aio.AioRpcError as error:
            code = error.code().name
        return {"status": code, "s": time.monotonic() - began}

    def start(self) -> list[asyncio.Task[dict[str, Any]]]:
        """Start a small request, one that can't be retried, and a gRPC call."""
        coroutines = (self.post(10), self.post(2 * MAX_BYTES), self.call())
        return [asyncio.create_task(coroutine) for coroutine in coroutines]


async def run() -> dict[str, Any]:
    """Lose one of two servers, and return the outcomes of the requests by where they were then."""
    async with new_balanced() as balanced, aiohttp.ClientSession() as session, balanced.channel as channel:
        clients = Clients(f"{balanced.url}/v2/models/m/infer", session, channel)
        [lost] = await balanced.start()
        await balanced.begin(_PLAN)
        await _checked(balanced)
        await asyncio.gather(*clients.start())  # leaves idle connections to the server
        lost.delay_s = SLOW_S
        executing = clients.start()
        await until(lambda: is_(lambda: lost.running == len(executing)))
        [alive] = await balanced.start(delay_s=SLOW_S)
        await _checked(balanced)
        slow = asyncio.create_task(clients.post(10))
        await until(lambda: is_(lambda: bool(alive.running)))
        alive.delay_s = 0.0
        for direction in ("--source", "--destination"):
            command = ["iptables", "--wait", "--insert", "INPUT", direction, lost.address, "--jump", "DROP"]
            await asyncio.to_thread(subprocess.run, command, check=True)
        outcomes = {
            "executing": await asyncio.gather(*executing),
            "slow": [await slow],
            "later": await asyncio.gather(*clients.start()),
        }
    return outcomes | {"alive": alive.address}


async def _checked(balanced: Balanced) -> None:
    """Assign the pods to servers, and wait until HAProxy has checked them."""
    await balanced.turn()
    await asyncio.sleep(1.5)
    await balanced.turn()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(run())))
