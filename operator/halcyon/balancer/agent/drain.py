"""Draining of a balancer pod: before HAProxy stops, clients are disconnected and held requests are sent to a server."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from halcyon.balancer.runtime.haproxy_stats import HaproxyError

if TYPE_CHECKING:
    from halcyon.balancer.runtime.runtime_api import RuntimeSocket

HELD_POLL_INTERVAL_S = 0.15
"""Interval at which the agent polls HAProxy for held requests while no server is in use, in seconds."""


class BalancerDrain:
    """Connection draining of one balancer.

    If the agent itself restarts during a drain, the drain ends: the balancer is ready again, and clients stay
    connected.
    """

    def __init__(self, runtime: RuntimeSocket, stop_within_s: float) -> None:
        """Create an instance; `begin` starts the drain.

        Args:
            runtime: client of HAProxy's Runtime API.
            stop_within_s: time within which HAProxy must stop after the drain, in seconds. If it still runs then, the
                drain no longer counts, and the balancer is ready again.
        """
        self._runtime, self._stop_within_s = runtime, stop_within_s
        self._until = float("-inf")

    @property
    def is_leaving(self) -> bool:
        """Whether the balancer is draining.

        The value stays true after the drain, until HAProxy stops or the time for its stop has passed.
        """
        return time.monotonic() < self._until

    def begin(self, longest_s: float) -> float:
        """Begin a drain that lasts at most `longest_s` seconds.

        Return the latest monotonic time at which it ends.
        """
        until = time.monotonic() + longest_s
        self._until = max(self._until, until + self._stop_within_s)
        return until

    async def finish(self, delay_s: float, until: float) -> None:
        """Wait until HAProxy may stop. This takes `delay_s`, or longer if requests are held, but ends at `until`.

        A stopping HAProxy does not receive new servers, so held requests would fail.
        """
        await asyncio.sleep(delay_s)
        while await self._may_hold():
            if time.monotonic() >= until:
                break
            await asyncio.sleep(HELD_POLL_INTERVAL_S)
        self._until = time.monotonic() + self._stop_within_s

    async def _may_hold(self) -> bool:
        """Return whether HAProxy holds requests, or may hold some because it is too busy to respond."""
        try:
            return (await self._runtime.held_requests()).held > 0
        except HaproxyError as error:
            return isinstance(error.__cause__, TimeoutError)
