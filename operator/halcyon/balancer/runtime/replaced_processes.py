"""HAProxy processes that a reload has replaced, and that still answer requests.

They know nothing of pods that come or leave, nor of API keys that are removed, so the controller's changes are made in them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from halcyon.balancer.runtime import server_assignment
from halcyon.balancer.runtime.haproxy_stats import HaproxyError
from halcyon.balancer.runtime.runtime_api import RejectedError
from halcyon.triton.json_log import log

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from halcyon.balancer.config.model import ServerKey
    from halcyon.balancer.runtime.runtime_api import RuntimeSocket
    from halcyon.triton.client import Endpoint

_END_STREAMS_S = 3.0
"""Time before a replaced HAProxy process resets its last requests at which its streams are ended, in seconds."""


@dataclass
class _Process:
    until: float
    """Time at which it resets its last requests."""
    servers: dict[ServerKey, str]
    """Address of the pod for each server that takes requests."""


class ReplacedProcesses:
    """Replaced processes of HAProxy that still run."""

    def __init__(self, runtime: RuntimeSocket, clock: Callable[[], float]) -> None:
        """Create the list, which is unknown before `find`. `clock` returns the monotonic time, in seconds."""
        self._runtime, self._clock = runtime, clock
        self._processes: dict[int, _Process] | None = None

    def add(self, process: int, servers: dict[ServerKey, str], *, stops_after_s: float) -> None:
        """Add a process that a reload has just replaced, with the address of the pod for each server that takes requests."""
        self._processes = {**(self._processes or {}), process: _Process(self._clock() + stops_after_s, servers)}

    async def find(self, current: int, *, stops_after_s: float) -> None:
        """Find the processes that were replaced before this agent started, if that wasn't done yet.

        `current` is the process that has replaced them. Their own time limit is unknown, and is assumed to be `stops_after_s`.
        """
        if self._processes is not None:
            return
        try:
            found = await self._runtime.replaced(current)
        except HaproxyError as error:
            log("warning", "HAProxy's replaced processes are unknown; the next pass tries again", error=str(error))
            return
        stops_at = self._clock() + stops_after_s
        self._processes = {
            process: _Process(stops_at - since_s, servers) for process, (since_s, servers) in found.items()
        }

    async def remove_keys(self, kept: AbstractSet[str]) -> None:
        """Remove API keys whose digests are not in `kept`, also from the current process, whose connections stay open."""
        for process in (0, *(self._processes or {})):
            try:
                await self._runtime.remove_keys(kept, process=process)
            except HaproxyError as error:
                log("warning", "an HAProxy process may still accept removed API keys", error=str(error))

    async def update(self, endpoints: tuple[Endpoint, ...] | None, out: AbstractSet[str]) -> None:
        """Drain pods that leave, and end streams before they are reset.

        Clients of such streams get status 14, and not CANCELLED.

        Args:
            endpoints: all server pods; None if they are unknown.
            out: names of pods that must not receive requests.
        """
        now = self._clock()
        processes = self._processes or {}
        for number, process in tuple(processes.items()):
            if now >= process.until:
                del processes[number]
                continue
            try:
                if endpoints is not None and (
                    commands := server_assignment.drains(process.servers, endpoints, out=out)
                ):
                    await self._runtime.apply(commands, process=number)
                    for command in commands:
                        process.servers.pop(command.key, None)
                if now >= process.until - _END_STREAMS_S:
                    await self._runtime.end_streams(number)
            except RejectedError:
                # It has ended.
                del processes[number]
            except HaproxyError as error:
                log("warning", "a replaced HAProxy process could not be changed", error=str(error))
