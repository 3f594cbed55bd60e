"""Process variables of HAProxy, which the agent sets and the rules of haproxy.cfg read.

A new HAProxy process, after a crash or a reload, has none of the values, and a new agent can't read the values that the
previous agent set. In both cases, all values are written once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halcyon.balancer.config.haproxy_cfg import STOPPING
from halcyon.balancer.config.queueing import RATE, SERVICE
from halcyon.balancer.config.retries import ONCE
from halcyon.balancer.runtime.haproxy_stats import HaproxyError
from halcyon.triton.json_log import log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halcyon.balancer.runtime.runtime_api import RuntimeSocket


class Variables:
    """Desired values of HAProxy's process variables, and the values that were last written."""

    def __init__(self, runtime: RuntimeSocket) -> None:
        """Create an instance in which all desired values are 0. Nothing is written to HAProxy."""
        self._runtime = runtime
        self._desired = dict.fromkeys((RATE, SERVICE, STOPPING, ONCE), 0)
        self._written: dict[str, int] = {}
        self._process: object = None

    def set(self, values: Mapping[str, int]) -> None:
        """Set the desired values. The next call of `write` writes them to HAProxy."""
        self._desired |= values

    async def write(self, process: object) -> None:
        """Write the values that the current HAProxy process does not have yet.

        `process` identifies the process (`HaproxyStats.identity`). A failure is logged, and the next call retries.
        """
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
