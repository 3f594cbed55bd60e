"""Draining of a balancer pod before HAProxy stops: clients are disconnected, and held requests may reach a server."""

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

    A restart of the agent ends the drain: the balancer is then ready again, and clients stay connected.
    """

    def __init__(self, runtime: RuntimeSocket, stop_within_s: float) -> None:
        """Create an instance; `begin` starts the drain.

        Args:
            runtime: client of HAProxy's Runtime API.
            stop_within_s: time after the drain within which HAProxy must stop, in seconds. If it is still running then,
                the balancer becomes ready again.
        """
        self._runtime, self._stop_within_s = runtime, stop_within_s
        self._until = float("-inf")

    @property
    def is_leaving(self) -> bool:
        """Whether the balancer is draining.

        The value stays true after the drain until HAProxy stops, or until the time within which it must stop has
        passed.
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
        """Wait until HAProxy may stop: for `delay_s`, or longer while requests are held, but no later than `until`.

        A stopping HAProxy receives no new servers, so held requests would fail.
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
