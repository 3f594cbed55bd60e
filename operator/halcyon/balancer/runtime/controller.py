"""Controller that reconciles the running HAProxy with the plan and the endpoints.

A pass reads HAProxy's state, computes the desired state with `server_assignment`, and writes the differences. It relies on no state
from earlier passes. After an HAProxy restart, a failed reload or an agent restart, the next pass therefore restores the desired state.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from halcyon.balancer.config import haproxy_cfg
from halcyon.balancer.config.model import TlsFiles
from halcyon.balancer.runtime import server_assignment
from halcyon.balancer.runtime.concurrency import Concurrency
from halcyon.balancer.runtime.haproxy_stats import HaproxyError
from halcyon.balancer.runtime.process_variables import Variables
from halcyon.balancer.runtime.replaced_processes import ReplacedProcesses
from halcyon.balancer.runtime.runtime_api import RejectedError
from halcyon.balancer.runtime.server_assignment import Command
from halcyon.balancer.runtime.server_room import fill_order
from halcyon.triton.json_log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.model import Listen
    from halcyon.balancer.runtime.class_load import ClassLoad
    from halcyon.balancer.runtime.haproxy_stats import BackendLoads, HaproxyStats
    from halcyon.balancer.runtime.runtime_api import RuntimeSocket
    from halcyon.balancer.runtime.server_assignment import AssignedServer
    from halcyon.balancer.secrets.mounted_secrets import MountedSecrets
    from halcyon.triton.client import Endpoint

RETRY_INTERVAL_S = 30.0
"""Time after which the controller again loads a configuration that HAProxy rejected, in seconds."""


@dataclass(frozen=True)
class _DesiredConfig:
    plan: BalancerPlan
    listen: Listen
    digest: str


class HaproxyController:
    """Controller of the HAProxy in the agent's pod."""

    def __init__(
        self,
        runtime: RuntimeSocket,
        config_path: Path,
        listen: Listen,
        *,
        files: MountedSecrets | None = None,
        concurrency: Concurrency | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the controller. It reads and writes nothing before the first pass.

        Args:
            runtime: client of HAProxy's Runtime API.
            config_path: path of haproxy.cfg.
            listen: listen addresses and files of HAProxy.
            files: mounted Secrets, checked for changes by each pass; None if there are none.
            concurrency: concurrency limits of the servers. Default: those of the only balancer of a model.
            clock: returns the monotonic time, in seconds.
        """
        self._runtime = runtime
        self._config_path = config_path
        self._listen = listen
        self._files = files
        self._concurrency = concurrency or Concurrency()
        self._clock = clock
        self._desired: _DesiredConfig | None = None
        self._serving: _DesiredConfig | None = None
        self._surplus: tuple[_DesiredConfig, str, _DesiredConfig | None] | None = None
        self._rejected: tuple[str, float] | None = None
        self._rejection = ""
        self._servers: tuple[AssignedServer, ...] | None = None
        self._written = ""
        self._replaced = ReplacedProcesses(runtime, clock)
        self._pass_lock = asyncio.Lock()
        self.variables = Variables(runtime)
        """HAProxy's process variables, which its rules read. Each pass writes those that have changed."""
        self._answered_at = float("-inf")
        self._is_reloading = False
        self.reading: HaproxyStats | None = None
        """HAProxy's statistics from the last pass; None if HAProxy did not respond."""
        self.unplaced: tuple[Endpoint, ...] = ()
        """Ready pods to which no HAProxy server could be assigned."""
        self.reloads = 0
        self.classes: ClassLoad | None = None
        """Requests of users and of batch inference at the last call of `share`; None if there is no batch inference."""

    @property
    def written(self) -> bool:
        """Whether haproxy.cfg has been written, so that HAProxy may start."""
        return bool(self._written) or self._config_path.exists()

    @property
    def in_use(self) -> int:
        """Number of HAProxy servers that take requests."""
        return sum(server.state == "ready" for server in self._servers or ())

    @property
    def shares_pods(self) -> bool:
        """Whether the current plan requires the model's balancers to exchange their loads.

        The limits of the pods are then divided among the balancers according to the loads.
        """
        return self._serving is not None and self._serving.plan.exchanges_loads

    def answered_within(self, limit_s: float) -> bool:
        """Return True if HAProxy responded within the last `limit_s` seconds, or is being reloaded.

        During a reload, the previous worker serves until the new one has started, but the agent can't read its state.
        """
        return self._is_reloading or self._clock() - self._answered_at <= limit_s

    def accept(self, plan: BalancerPlan) -> None:
        """Use the given plan, starting with the next pass.

        Raises: ConfigError: the plan cannot be rendered as haproxy.cfg. The previous plan remains in use.
        """
        self._desired = _DesiredConfig(plan, self._listen, haproxy_cfg.digest(plan, listen=self._listen))

    @property
    def is_shut(self) -> bool:
        """Whether HAProxy runs without its TLS certificate, so that no client can connect yet."""
        return self._serving is not None and self._serving.listen.tls == TlsFiles()

    @property
    def problem(self) -> str:
        """Reason why HAProxy isn't running the desired configuration; empty if it is."""
        return (self._files.problems if self._files is not None else "") or self._rejection

    @property
    def expires(self) -> Mapping[str, float]:
        """Expiry time of each certificate in use, by key of its Secret, in seconds since the epoch.

        The mapping is empty if there are no certificates.
        """
        return self._files.expires if self._files is not None else {}

    async def run_pass(self, endpoints: tuple[Endpoint, ...] | None, *, out: AbstractSet[str] = frozenset()) -> None:
        """Run one pass: read HAProxy's state, and write what differs from the desired state.

        Args:
            endpoints: all server pods; None if unknown, in which case no server is added or removed.
            out: names of pods that must not receive requests.
        """
        async with self._pass_lock:
            self._refresh_files()
            desired = self._desired
            if desired is None:
                return
            reading = await self._read((self._serving or desired).plan)
            self._match_servers(reading, desired)
            if reading is None:
                self._serving = None
            elif reading.config == desired.digest:
                self._serving, self._rejection = desired, ""
            elif (surplus := self._with_surplus(desired, reading)) is not None:
                self._serving, self._rejection = surplus, ""
            else:
                reading = await self._reload(reading, desired)
            try:
                await self._place(reading, endpoints, out, desired)
            except HaproxyError as error:
                log("warning", "a change of HAProxy's servers failed; it will be retried", error=str(error))
            if reading is not None:
                await self.variables.write(reading.identity)
            await self._replaced.update(endpoints, out, passes_queue=reading is not None)
            self.reading = reading

    async def share(self) -> None:
        """Adjust the limits of the servers to the loads of all balancers.

        This is the part of a pass that is cheap enough for frequent calls.

        Raises:
            HaproxyError: HAProxy does not respond; the next pass retries.
        """
        async with self._pass_lock:
            if self._serving is not None and self._servers:
                plan = self._serving.plan
                loads = await self._runtime.loads(classes=plan.has_lower_class, late=plan.objective_ms > 0)
                self.classes = loads.classes
                changed, filling = self._limit_commands(plan, self._servers, loads)
                if changed or filling:
                    await self._runtime.apply([*changed, *filling])

    async def _read(self, plan: BalancerPlan) -> HaproxyStats | None:
        """Return HAProxy's state; None if it does not respond. `plan` is the plan of the running process."""
        try:
            reading = await self._runtime.read()
        except HaproxyError:
            if self.reading is not None:
                # If HAProxy stops, it completes its requests, but only the master process responds.
                self._replaced.add(self.reading, plan)
            return None
        self._answered_at = self._clock()
        if self.reading is not None and self.reading.identity != reading.identity:
            # The response to a reload was lost, or HAProxy has restarted.
            self._replaced.add(self.reading, plan)
        await self._replaced.adopt(plan, current=reading.process)
        return reading

    def _match_servers(self, reading: HaproxyStats | None, desired: _DesiredConfig) -> None:
        """Resize the assignment of pods to fit the servers of the running or the next configuration."""
        servers = self._servers or ()
        if reading is None:
            # Keep the states of the servers if possible: HAProxy may respond again with all of its sessions.
            if Counter(server.key.slot for server in servers) != Counter(_capacities(desired.plan)):
                self._servers = server_assignment.resize(servers, _capacities(desired.plan))
        elif {server.key for server in servers} != reading.servers.keys():
            # A previous agent assigned the pods, or the response to a reload was lost.
            self._servers = server_assignment.adopt(reading.servers, now=self._clock())

    def _limit_commands(
        self, plan: BalancerPlan, servers: tuple[AssignedServer, ...], loads: BackendLoads
    ) -> tuple[list[Command], list[Command]]:
        """Return the commands that set changed limits, and those that send waiting requests to free servers.

        The latter must come after all other commands, because a server to which no pod is assigned yet takes no
        requests.
        """
        limits = self._concurrency.limits(plan, servers, loads, self._clock())
        changed = [
            Command(key, "limit", limits=desired)
            for key, desired in limits.items()
            if key in loads.servers and loads.servers[key].limits != desired
        ]
        return changed, [Command(key, "limit", limits=limits[key]) for key in fill_order(loads, limits)]

    def _refresh_files(self) -> None:
        if self._files is None:
            return
        self._files.refresh()
        listen = replace(self._listen, tls=self._files.tls, keys=self._files.keys)
        if listen != self._listen:
            self._listen = listen
            if self._desired is not None:
                self.accept(self._desired.plan)

    def _with_surplus(self, desired: _DesiredConfig, reading: HaproxyStats) -> _DesiredConfig | None:
        """Return HAProxy's configuration if it differs from `desired` only by additional servers; otherwise None.

        Additional servers remain after the plan's capacity was reduced, until a reload for another reason. A reload
        only to remove them would occur while their pods are stopping.
        """
        cached = self._surplus
        if cached is None or cached[0] is not desired or cached[1] != reading.config:
            cached = self._surplus = (desired, reading.config, _with_surplus_servers(desired, reading))
        return cached[2]

    async def _reload(self, reading: HaproxyStats, desired: _DesiredConfig) -> HaproxyStats:
        now = self._clock()
        if self._rejected and self._rejected[0] == desired.digest and now < self._rejected[1]:
            return reading
        servers = server_assignment.resize(self._servers or (), _capacities(desired.plan))
        before = self._written or self._read_config()
        replaced, plan = reading, (self._serving or desired).plan
        if self._files is not None and desired.listen.keys is not None:
            await self._replaced.remove_keys(self._files.digests)
        self._write(desired, servers)
        try:
            self._is_reloading = True
            await self._runtime.reload()
            # From here on, the new worker serves the runtime socket.
            reading = await self._runtime.read()
        except HaproxyError as error:
            if isinstance(error, RejectedError):
                self._rejected = (desired.digest, now + RETRY_INTERVAL_S)
                self._rejection = str(error)
                message = "HAProxy did not load its new configuration; the previous one stays in use"
                log("error", message, error=str(error))
            else:
                log(
                    "warning",
                    "HAProxy's response to a reload was lost; the next pass reloads again if necessary",
                    error=str(error),
                )
            if before:
                self._store(before)
            return reading
        finally:
            self._is_reloading = False
        self._servers, self._serving, self._rejected, self._rejection = servers, desired, None, ""
        self.reloads += 1
        self._replaced.add(replaced, plan)
        log("info", "HAProxy runs a new configuration", config=desired.digest, process=reading.process)
        return reading

    async def _place(
        self,
        reading: HaproxyStats | None,
        endpoints: tuple[Endpoint, ...] | None,
        out: AbstractSet[str],
        desired: _DesiredConfig,
    ) -> None:
        # The configuration to write with the servers' states: the running one if HAProxy runs, else the one with which it
        # starts. None if a previous agent wrote the running configuration.
        owner = self._serving if reading else desired
        servers = self._servers or ()
        if endpoints is None:
            if owner:
                self._write(owner, servers)
            return
        placement = server_assignment.place(
            servers,
            endpoints,
            reading.servers if reading else {},
            now=self._clock(),
            drain_s=(owner or desired).plan.drain_ms / 1000,
            keep=bool((owner or desired).plan.sticky_header),
            out=out,
            open_holds=reading.open_holds if reading else frozenset(),
        )
        if placement.unplaced and placement.unplaced != self.unplaced:
            names = [endpoint.pod for endpoint in placement.unplaced]
            log("warning", "no free HAProxy server for ready pods; the plan's capacity is too small", pods=names)
        self._servers, self.unplaced = placement.servers, placement.unplaced
        # Write the file before the commands: if HAProxy restarts in between, it starts with the newer state.
        if owner:
            self._write(owner, placement.servers)
        self._concurrency.place(endpoints)
        # A server has its limit before it takes requests.
        changed, filling = (
            self._limit_commands((owner or desired).plan, placement.servers, reading.loads) if reading else ([], [])
        )
        if changed or filling or placement.commands:
            await self._runtime.apply([*changed, *placement.commands, *filling])

    def _write(self, owner: _DesiredConfig, servers: tuple[AssignedServer, ...]) -> None:
        placed = {server.key: server.address for server in servers if server.state == "ready"}
        text = haproxy_cfg.render(owner.plan, listen=owner.listen, placed=placed)
        if text != self._written:
            self._store(text)

    def _store(self, text: str) -> None:
        for name, lua in haproxy_cfg.LUA.items():
            _replace(self._config_path.with_name(name), lua)
        _replace(self._config_path, text)
        self._written = text

    def _read_config(self) -> str:
        return self._config_path.read_text() if self._config_path.exists() else ""


def _replace(path: Path, text: str) -> None:
    # Rename the finished file, so that HAProxy never reads an incomplete one.
    new_path = path.with_suffix(".new")
    new_path.write_text(text)
    new_path.replace(path)


def _with_surplus_servers(desired: _DesiredConfig, reading: HaproxyStats) -> _DesiredConfig | None:
    running = Counter(key.slot for key in reading.servers)
    planned = tuple(replace(slot, capacity=max(slot.capacity, running[slot.name])) for slot in desired.plan.slots)
    if planned == desired.plan.slots:
        return None
    plan = replace(desired.plan, slots=planned)
    digest = haproxy_cfg.digest(plan, listen=desired.listen)
    return _DesiredConfig(plan, desired.listen, digest) if digest == reading.config else None


def _capacities(plan: BalancerPlan) -> dict[str, int]:
    return {slot.name: slot.capacity for slot in plan.slots}
