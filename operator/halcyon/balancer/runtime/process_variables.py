"""Process variables that the agent sets in a running HAProxy, and that rules of haproxy.cfg read.

A new HAProxy process has none of them, whether after a crash or a reload. A new agent doesn't know which values the previous one has
set. In both cases everything is written once.
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
    """Variables of one HAProxy."""

    def __init__(self, runtime: RuntimeSocket) -> None:
        """Write nothing before `write`; all values are 0 until `set` sets others."""
        self._runtime = runtime
        self._desired = dict.fromkeys((RATE, SERVICE, STOPPING, ONCE), 0)
        self._written: dict[str, int] = {}
        self._process: int | None = None

    def set(self, values: Mapping[str, int]) -> None:
        """Set the values that the next `write` writes to HAProxy."""
        self._desired |= values

    async def write(self, process: int) -> None:
        """Write the values that this process doesn't have yet. A failure is logged, and the next call tries again."""
        if process != self._process:
            self._process, self._written = process, {}
        changed = {name: value for name, value in self._desired.items() if self._written.get(name) != value}
        if not changed:
            return
        try:
            await self._runtime.set(changed)
        except HaproxyError as error:
            log("warning", "HAProxy's variables could not be set; they will be retried", error=str(error))
            return
        self._written |= changed
