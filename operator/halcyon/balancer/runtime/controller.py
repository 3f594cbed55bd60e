"""The controller that keeps HAProxy at the plan and the endpoints.

One pass reads HAProxy's state, decides with `server_assignment`, and writes the differences. It assumes nothing between passes: a
HAProxy restart, a failed reload and an agent restart are just differences that the next pass finds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from halcyon.balancer.config import haproxy_cfg
from halcyon.balancer.config.model import TlsFiles
from halcyon.balancer.log import log
from halcyon.balancer.runtime import server_assignment
from halcyon.balancer.runtime.process_variables import Variables
from halcyon.balancer.runtime.runtime_api import HaproxyError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.model import Listen
    from halcyon.balancer.runtime.runtime_api import HaproxyStats, RuntimeSocket
    from halcyon.balancer.runtime.server_assignment import AssignedServer, Endpoint
    from halcyon.balancer.secrets.mounted_secrets import MountedSecrets

RETRY_INTERVAL_S = 30.0
"""Delay before a configuration that HAProxy refused is tried again."""


@dataclass(frozen=True)
class _DesiredConfig:
    plan: BalancerPlan
    listen: Listen
    digest: str


class HaproxyController:
    """Controller of one HAProxy."""

    def __init__(
        self,
        runtime: RuntimeSocket,
        config_path: Path,
        listen: Listen,
        *,
        files: MountedSecrets | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the controller; nothing is read or written before the first pass.

        Args:
            runtime: HAProxy's sockets.
            config_path: path of haproxy.cfg.
            listen: ports and socket.
            files: mounted Secrets, checked in each pass; None if there are none.
            clock: monotonic, in seconds.
        """
        self._runtime = runtime
        self._config_path = config_path
        self._listen = listen
        self._files = files
        self._clock = clock
        self._wanted: _DesiredConfig | None = None
        self._serving: _DesiredConfig | None = None
        self._roomier: tuple[_DesiredConfig, str, _DesiredConfig | None] | None = None
        self._refused: tuple[str, float] | None = None
        self._refusal = ""
        self._lines: tuple[AssignedServer, ...] | None = None
        self._written = ""
        self._turn_lock = asyncio.Lock()
        self.variables = Variables(runtime)
        """Variables that HAProxy's rules read; each pass writes the changed ones."""
        self._answered_at = float("-inf")
        self.reading: HaproxyStats | None = None
        """Statistics of the last pass; None if HAProxy did not respond."""
        self.unplaced: tuple[Endpoint, ...] = ()
        """Ready pods without a server."""
        self.reloads = 0

    @property
    def written(self) -> bool:
        """Whether there is a configuration, so that HAProxy may start."""
        return bool(self._written) or self._config_path.exists()

    @property
    def in_use(self) -> int:
        """Number of servers that take requests."""
        return sum(line.state == "ready" for line in self._lines or ())

    def answered_within(self, limit_s: float) -> bool:
        """Return True if HAProxy responded within the last `limit_s` seconds."""
        return self._clock() - self._answered_at <= limit_s

    def accept(self, plan: BalancerPlan) -> None:
        """Use this plan from the next pass on.

        Raises:
            ConfigError: the plan can't be rendered as a configuration. The previous one stays.
        """
        self._wanted = _DesiredConfig(plan, self._listen, haproxy_cfg.digest(plan, listen=self._listen))

    @property
    def is_shut(self) -> bool:
        """Whether HAProxy runs without a certificate yet, so that no client can connect."""
        return self._serving is not None and self._serving.listen.tls == TlsFiles()

    @property
    def trouble(self) -> str:
        """Why HAProxy doesn't do everything that is configured; empty if it does."""
        return (self._files.trouble if self._files is not None else "") or self._refusal

    @property
    def expires(self) -> Mapping[str, float]:
        """Expiry of the certificate in use by Secret key, in seconds since the epoch; empty without certificates."""
        return self._files.expires if self._files is not None else {}

    async def turn(self, endpoints: tuple[Endpoint, ...] | None, *, out: AbstractSet[str] = frozenset()) -> None:
        """Run one pass towards the desired state.

        Args:
            endpoints: every pod; None while unknown, and then no server is added or removed.
            out: pods that must take no request.
        """
        async with self._turn_lock:
            self._look_at_files()
            wanted = self._wanted
            if wanted is None:
                return
            try:
                reading = await self._runtime.read()
                self._answered_at = self._clock()
            except HaproxyError:
                reading = None
            if self._lines is None:
                self._lines = server_assignment.adopt(reading.lines, now=self._clock()) if reading else ()
            if reading is None:
                self._serving = None
                self._lines = server_assignment.resize(self._lines, _capacities(wanted.plan))
            elif reading.config == wanted.digest:
                self._serving, self._refusal = wanted, ""
            elif (roomier := self._as_roomy(wanted, reading)) is not None:
                self._serving, self._refusal = roomier, ""
            else:
                reading = await self._reload(reading, wanted)
            try:
                await self._place(reading, endpoints, out, wanted)
            except HaproxyError as error:
                log("warning", "a change of HAProxy's servers failed; trying again", error=str(error))
            if reading is not None:
                await self.variables.tell(reading.process)
            self.reading = reading

    def _look_at_files(self) -> None:
        if self._files is None:
            return
        self._files.look()
        listen = replace(self._listen, tls=self._files.tls, keys=self._files.keys)
        if listen != self._listen:
            self._listen = listen
            if self._wanted is not None:
                self.accept(self._wanted.plan)

    def _as_roomy(self, wanted: _DesiredConfig, reading: HaproxyStats) -> _DesiredConfig | None:
        """Return the desired configuration with HAProxy's surplus servers if that is what HAProxy runs, else None.

        Servers left over by a smaller capacity wait for the next reload: a reload just for them would come while their pods leave.
        """
        known = self._roomier
        if known is None or known[0] is not wanted or known[1] != reading.config:
            known = self._roomier = (wanted, reading.config, _with_surplus_servers(wanted, reading))
        return known[2]

    async def _reload(self, reading: HaproxyStats, wanted: _DesiredConfig) -> HaproxyStats:
        now = self._clock()
        if self._refused and self._refused[0] == wanted.digest and now < self._refused[1]:
            return reading
        lines = server_assignment.resize(self._lines or (), _capacities(wanted.plan))
        before = self._written or self._read_config()
        self._write(wanted, lines)
        try:
            await self._runtime.reload()
            # From here on, the runtime socket belongs to the new worker.
            reading = await self._runtime.read()
        except HaproxyError as error:
            # If the master doesn't respond yet, the next pass tries again.
            if isinstance(error, RefusedError):
                self._refused = (wanted.digest, now + RETRY_INTERVAL_S)
                self._refusal = str(error)
            log("error", "HAProxy did not take its new configuration; the former one stays", error=str(error))
            self._lines = server_assignment.adopt(reading.lines, now=now)
            if before:
                self._store(before)
            return reading
        self._lines, self._serving, self._refused, self._refusal = lines, wanted, None, ""
        self.reloads += 1
        log("info", "HAProxy runs a new configuration", config=wanted.digest, process=reading.process)
        return reading

    async def _place(
        self,
        reading: HaproxyStats | None,
        endpoints: tuple[Endpoint, ...] | None,
        out: AbstractSet[str],
        wanted: _DesiredConfig,
    ) -> None:
        # Whose configuration the file may hold: the running one, or the one to start. None if a previous agent left it.
        owner = self._serving if reading else wanted
        lines = self._lines or ()
        if endpoints is None:
            if owner:
                self._write(owner, lines)
            return
        placement = server_assignment.place(
            lines,
            endpoints,
            reading.lines if reading else {},
            now=self._clock(),
            drain_s=(owner or wanted).plan.drain_ms / 1000,
            keep=bool((owner or wanted).plan.sticky_header),
            out=out,
        )
        if placement.unplaced and placement.unplaced != self.unplaced:
            names = [endpoint.pod for endpoint in placement.unplaced]
            log("warning", "no free server line for ready pods; the plan's capacity is too small", pods=names)
        self._lines, self.unplaced = placement.lines, placement.unplaced
        # The file first: if HAProxy restarts in between, it starts with the newer state.
        if owner:
            self._write(owner, placement.lines)
        if placement.commands:
            await self._runtime.apply(placement.commands)

    def _write(self, owner: _DesiredConfig, lines: tuple[AssignedServer, ...]) -> None:
        placed = {line.key: line.address for line in lines if line.state == "ready"}
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
    # The file is never half written.
    aside = path.with_suffix(".new")
    aside.write_text(text)
    aside.replace(path)


def _with_surplus_servers(wanted: _DesiredConfig, reading: HaproxyStats) -> _DesiredConfig | None:
    there = Counter(key.slot for key in reading.lines)
    planned = tuple(replace(slot, capacity=max(slot.capacity, there[slot.name])) for slot in wanted.plan.slots)
    if planned == wanted.plan.slots:
        return None
    plan = replace(wanted.plan, slots=planned)
    digest = haproxy_cfg.digest(plan, listen=wanted.listen)
    return _DesiredConfig(plan, wanted.listen, digest) if digest == reading.config else None


def _capacities(plan: BalancerPlan) -> dict[str, int]:
    return {slot.name: slot.capacity for slot in plan.slots}
