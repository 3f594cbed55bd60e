"""Checks that HAProxy's front ends accept clients. HAProxy's runtime socket does not show this.

Each front end also listens on a unix socket. The agent connects to it and sends the HTTP/2 connection preface, to which
HAProxy responds with its settings. The preface is not a request, so HAProxy neither counts nor logs it. No certificate
is needed.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from halcyon.balancer.config.error_responses import PROTOCOLS, Protocol
from halcyon.balancer.config.frontends import check_socket

if TYPE_CHECKING:
    from pathlib import Path

INTERVAL_S: Final = 1.0
_TIMEOUT_S: Final = 1.0
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""Connection preface of an HTTP/2 client, followed by an empty SETTINGS frame."""


class FrontEndChecks:
    """Checks whether the front ends of the HAProxy in this pod accept clients."""

    def __init__(self, run_dir: Path) -> None:
        """Create the checks. Initially, every front end counts as having just responded."""
        self._run_dir = run_dir
        self._answered_at: dict[Protocol, float] = dict.fromkeys(PROTOCOLS, time.monotonic())

    async def run(self) -> None:
        """Check all front ends until cancelled."""
        while True:
            await asyncio.gather(*map(self._check, PROTOCOLS))
            await asyncio.sleep(INTERVAL_S)

    def silent(self, limit_s: float) -> tuple[Protocol, ...]:
        """Return the names of the front ends that have not responded within the last `limit_s` seconds."""
        since = time.monotonic() - limit_s
        return tuple(protocol for protocol, at in self._answered_at.items() if at < since)

    async def _check(self, protocol: Protocol) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(self._run_dir / check_socket(protocol))
                try:
                    writer.write(_PREFACE)
                    if await reader.read(1):
                        self._answered_at[protocol] = time.monotonic()
                finally:
                    writer.transport.abort()
        except OSError:
            return
