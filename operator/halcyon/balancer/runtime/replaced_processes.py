"""HAProxy processes that no longer accept connections but still have requests, after a reload or while the pod stops.

They respond only through HAProxy's master process, and don't receive new servers. In these processes too, the agent
drains the servers of pods that leave, and ends gRPC streams before the process resets them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from halcyon.balancer.config import haproxy_cfg
from halcyon.balancer.runtime import server_assignment
from halcyon.balancer.runtime.haproxy_stats import HaproxyError
from halcyon.balancer.runtime.runtime_api import RejectedError
from halcyon.triton.json_log import log

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.model import ServerKey
    from halcyon.balancer.runtime.haproxy_stats import HaproxyStats
    from halcyon.balancer.runtime.runtime_api import RuntimeSocket
    from halcyon.triton.client import Endpoint

_END_STREAMS_S = 3.0
"""Time before a process resets its last requests at which the agent ends its streams, in seconds."""


@dataclass
class _Process:
    until: float
    """Time at which the process resets its last requests."""
    servers: dict[ServerKey, str]
    """Pod address of each server that takes requests."""


class ReplacedProcesses:
    """HAProxy processes of this pod that no longer accept connections."""

    def __init__(self, runtime: RuntimeSocket, clock: Callable[[], float]) -> None:
        """Create an instance without processes. `clock` returns the monotonic time, in seconds."""
        self._runtime, self._clock = runtime, clock
        self._processes: dict[int, _Process] = {}
        self._has_adopted = False

    def add(self, last: HaproxyStats, plan: BalancerPlan) -> None:
        """Add a process that ran `plan`, with its last statistics."""
        ready = {key: server.address for key, server in last.servers.items() if server.admin == "ready"}
        self._processes[last.process] = _Process(self._clock() + haproxy_cfg.hard_stop_ms(plan) / 1000, ready)

    async def adopt(self, plan: BalancerPlan, *, current: int) -> None:
        """Add the processes that were replaced before this agent started, and remove the current one.

        The time at which they reset their requests is unknown, and is computed as if they ran `plan`.
        """
        self._processes.pop(current, None)
        if self._has_adopted:
            return
        try:
            workers = await self._runtime.replaced(current)
        except HaproxyError as error:
            log("warning", "HAProxy's replaced processes are unknown; the next pass tries again", error=str(error))
            return
        self._has_adopted = True
        stops_at = self._clock() + haproxy_cfg.hard_stop_ms(plan) / 1000
        for process, (since_s, servers) in workers.items():
            self._processes.setdefault(process, _Process(stops_at - since_s, servers))

    async def remove_keys(self, digests: AbstractSet[str]) -> None:
        """Remove the API keys whose digests are not in `digests`.

        They are also removed from the current process, where connections stay open.
        """
        for process in (0, *self._processes):
            try:
                await self._runtime.remove_keys(digests, process=process)
            except HaproxyError as error:
                log("warning", "an HAProxy process may still accept removed API keys", error=str(error))

    async def update(
        self, endpoints: tuple[Endpoint, ...] | None, out: AbstractSet[str], *, passes_queue: bool
    ) -> None:
        """Drain pods that leave, and end streams before they are reset, so that clients get status 14, not CANCELLED.

        Args:
            endpoints: all server pods; None if they are unknown.
            out: names of pods that must not receive requests.
            passes_queue: whether another process accepts connections, to which queues can be passed on.
        """
        now = self._clock()
        for process, replaced in tuple(self._processes.items()):
            if now >= replaced.until:
                del self._processes[process]
                continue
            try:
                if endpoints is not None and (
                    commands := server_assignment.drains(
                        replaced.servers, endpoints, out=out, passes_queue=passes_queue
                    )
                ):
                    await self._runtime.apply(commands, process=process)
                    for command in commands:
                        replaced.servers.pop(command.key, None)
                if now >= replaced.until - _END_STREAMS_S:
                    await self._runtime.end_streams(process)
            except RejectedError:
                # It has ended.
                del self._processes[process]
            except HaproxyError as error:
                log("warning", "a replaced HAProxy process could not be changed", error=str(error))
