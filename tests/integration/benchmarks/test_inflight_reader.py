"""The reader of the requests in flight on each pod, on the real HAProxy 3.0. Its program runs here, and not in a balancer's pod."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, cast

import pytest
from typing_extensions import override

from benchmarks.eyes import SCRIPT, InflightReader
from tests.integration.balanced import http_response, new_balanced
from tests.integration.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from demo.kube import Kube

pytestmark = pytest.mark.more


class LocalReader(InflightReader):
    """A reader that starts the program on this machine."""

    def __init__(self, socket: Path) -> None:
        super().__init__(cast("Kube", None), "")
        self._socket = socket

    @override
    def command(self) -> list[str]:
        return [sys.executable, "-c", SCRIPT, str(self._socket)]


async def test_requests_in_flight_are_counted_by_pod() -> None:
    async with new_balanced() as balanced:
        held = asyncio.Event()
        pods = await balanced.start(2, hold=held)
        await balanced.begin()
        async with LocalReader(balanced.haproxy.directory / "haproxy.sock") as reader:
            await reader.until(lambda counts: counts == {pod.address: 0 for pod in pods}, limit_s=5 * PATIENCE)
            request = asyncio.create_task(http_response(balanced.haproxy.ports.http, "POST", "/v2/models/m/infer"))
            await reader.until(lambda counts: sorted(counts.values()) == [0, 1], limit_s=5 * PATIENCE)
            held.set()
            assert (await request)[0] == 200
            await reader.until(lambda counts: list(counts.values()) == [0, 0], limit_s=5 * PATIENCE)
