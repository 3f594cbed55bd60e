"""What the agent tells a running HAProxy by variables of its process, which rules of haproxy.cfg look at.

A process that has started knows none of it, whether after a crash or a reload. And an agent that has started doesn't know what
the one before it told: so both are told everything once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halcyon.balancer.config.haproxy_cfg import STOPPING
from halcyon.balancer.config.queueing import RATE, SERVICE
from halcyon.balancer.config.retries import ONCE
from halcyon.balancer.log import log
from halcyon.balancer.runtime.runtime_api import HaproxyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halcyon.balancer.runtime.runtime_api import RuntimeSocket


class Variables:
    """Those of one HAProxy."""

    def __init__(self, runtime: RuntimeSocket) -> None:
        """Nothing is told before `tell`; until something else is wanted, all are 0."""
        self._runtime = runtime
        self._wanted = dict.fromkeys((RATE, SERVICE, STOPPING, ONCE), 0)
        self._known: dict[str, int] = {}
        self._process: int | None = None

    def want(self, values: Mapping[str, int]) -> None:
        """From the next `tell` on, these have these values."""
        self._wanted |= values

    async def tell(self, process: int) -> None:
        """Tell what this process doesn't know yet. A failure is logged, and made good by the next call."""
        if process != self._process:
            self._process, self._known = process, {}
        news = {name: value for name, value in self._wanted.items() if self._known.get(name) != value}
        if not news:
            return
        try:
            await self._runtime.set(news)
        except HaproxyError as error:
            log("warning", "HAProxy did not take its variables; trying again", error=str(error))
            return
        self._known |= news
