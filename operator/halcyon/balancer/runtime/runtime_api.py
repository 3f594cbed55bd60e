"""Client of HAProxy's Runtime API over unix sockets.

It reads HAProxy's state, and makes the few changes that are safe at run time.

The commands `add server` and `del server` are not used, because they have crashed HAProxy versions from 2.6 to 3.2 (haproxy issues
2378, 2298, 2323, 3177). Out of scope: decisions about servers, and the format of the responses (`haproxy_stats`).
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from halcyon.api.documents.balancer_plan import KEYS_FOLDER
from halcyon.balancer.config import latency_buckets, stickiness
from halcyon.balancer.config.api_keys import USAGE
from halcyon.balancer.config.client_limits import CAPPED, SLOW
from halcyon.balancer.config.error_responses import PROTOCOLS
from halcyon.balancer.config.model import Ports
from halcyon.balancer.config.queueing import COUNTERS, HELD_SERVER, HELD_SERVER_ID
from halcyon.balancer.runtime.class_load import class_load
from halcyon.balancer.runtime.haproxy_stats import (
    BackendLoads,
    HaproxyError,
    HaproxyStats,
    HeldRequests,
    WideCounters,
    parse,
    parse_held,
    parse_loads,
    parse_servers,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from halcyon.balancer.config.model import ServerKey
    from halcyon.balancer.runtime.server_assignment import Command

_SHOW_STAT = "show stat -1 7 -1"
SHOW = (
    f"show info;show servers state;{_SHOW_STAT};show table {COUNTERS};show held;show broken;"
    f"show table {latency_buckets.STREAMS};show table {USAGE}"
)
_KEY_FILE: Final = re.compile(rf"\((/\S+/{KEYS_FOLDER}-[0-9a-f]+\.map)\)")
"""Pattern that matches the path of each API key file in HAProxy's list of maps."""
_DIGEST: Final = re.compile(r"^0x\S+ ([0-9A-F]{64}) ", re.MULTILINE)
_WORKER = re.compile(r"^(?=\d+\s+worker\s+(\d+))(\d+)\s.*?\s(\d+)d(\d+)h(\d+)m(\d+)s", re.MULTILINE)
"""Line of a worker in the response to `show proc`: number of reloads since its start, process id, and time since its start."""
_VERBS = {"ready": "state ready", "drain": "state drain", "maint": "state maint"}


_SUCCESS: Final = ("changed from", "no need to change", "nothing changed", "No such table")
"""Parts of the responses of commands that have succeeded. All others have an empty response. There are no tables of sticky values
if routing is not sticky."""


class RejectedError(HaproxyError):
    """Error raised if HAProxy rejected a command."""


_CONNECT_RETRY_INTERVAL_S = 0.02


@dataclass(frozen=True)
class RuntimeSocket:
    """Client of the Runtime API of one HAProxy.

    Each call opens a new connection, so the client keeps working after an HAProxy restart.
    """

    path: str
    master_path: str
    ports: Ports = field(default_factory=Ports)
    timeout_s: float = 2.0
    reload_timeout_s: float = 15.0
    _wide: WideCounters = field(default_factory=WideCounters, compare=False, repr=False)

    async def read(self) -> HaproxyStats:
        """Return HAProxy's current state and counters.

        Raises:
            HaproxyError: HAProxy does not respond.
        """
        sent_at = time.time()
        # Each response ends with an empty line, and none contains another.
        answers = (await self._request(self.path, SHOW, self.timeout_s)).strip("\n").split("\n\n")
        # HAProxy created the responses between the two times; on a busy machine, both processes may have been delayed.
        return parse([answer.lstrip("\n") for answer in answers], at=(sent_at + time.time()) / 2, wide=self._wide)

    async def held_requests(self) -> HeldRequests:
        """Return how many requests HAProxy holds now, and how many it has held in total.

        This is a small part of `read`, for frequent polling.

        Raises:
            HaproxyError: HAProxy does not respond.
        """
        return parse_held(await self._request(self.path, "show held", self.timeout_s))

    async def loads(self, *, classes: bool = False, late: bool = False) -> BackendLoads:
        """Return the load and the limits of each server. This is a small part of `read`, for frequent polling.

        If `classes` is True, the result also contains the load of users and of batch inference. If `late` is True, it
        contains the number of late requests.

        Raises:
            HaproxyError: HAProxy does not respond.
        """
        commands = [_SHOW_STAT] + [f"show table {COUNTERS}"] * classes + ["show held"] * late
        answers = (await self._request(self.path, ";".join(commands), self.timeout_s)).strip("\n").split("\n\n")
        return replace(
            parse_loads(answers[0]),
            classes=class_load(answers[1] if len(answers) > 1 else "") if classes else None,
            late=parse_held(answers[-1]).late if late else 0,
        )

    async def sessions(self) -> str:
        """Return one line for each stream and one for each request in HAProxy (`show streams`, `show sess`).

        Raises:
            HaproxyError: HAProxy does not respond.
        """
        return await self._request(self.path, "show streams;show sess", self.timeout_s)

    async def end_sessions(self, sessions: Sequence[str], *, source: str, is_slow: bool, places: int) -> None:
        """End requests of a source by their identifiers, and limit the source. Ended requests are ignored.

        Args:
            sessions: identifiers of the requests.
            source: IP address of the source.
            is_slow: whether to reject large requests of the source for some time.
            places: maximum number of its requests in progress for some time; 0 for no limit.

        Raises:
            HaproxyError: HAProxy does not respond.
        """
        key = _as_ipv6(source)
        lines = [f"set table {SLOW} key {key} data.gpc0 1"] if is_slow else []
        lines += [f"set table {CAPPED} key {key} data.gpc0 {places}"] if places else []
        lines += [f"shutdown session {session}" for session in sessions]
        for start in range(0, len(lines), 64):
            await self._request(self.path, ";".join(lines[start : start + 64]), self.timeout_s)

    async def replaced(self, current: int) -> dict[int, tuple[int, dict[ServerKey, str]]]:
        """Return the workers that were replaced by reloads and are still running, by process id.

        The values are the seconds since the reload, and the pod address of each server that takes requests. `current`
        is the process id of the worker that replaced them.

        Raises:
            HaproxyError: the master process does not respond, or its response can't be parsed.
        """
        answer = await self._request(self.master_path, "show proc", self.timeout_s, closes=True)
        workers = sorted(tuple(map(int, numbers)) for numbers in _WORKER.findall(answer))
        if current not in (pid for _, pid, *_ in workers):
            raise HaproxyError(f"HAProxy's response to `show proc` has no worker {current}: {answer[:500]!r}")
        by_pid = {}
        since_s = 0
        for _, pid, days, hours, minutes, seconds in workers:
            if pid != current:
                state = await self._request(
                    self.master_path, f"@!{pid} show servers state", self.timeout_s, closes=True
                )
                servers = {
                    key: server.address for key, server in parse_servers(state).items() if server.admin == "ready"
                }
                by_pid[pid] = (since_s, servers)
            # The worker before this one was replaced when this one started.
            since_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        return by_pid

    async def end_streams(self, process: int) -> None:
        """End the gRPC streams of a worker that a reload has replaced. A worker that has already ended is ignored.

        Raises:
            HaproxyError: the master process does not respond.
        """
        streams = await self._request(self.master_path, f"@!{process} show streams", self.timeout_s, closes=True)
        sessions = [line.split()[1] for line in streams.splitlines() if line.startswith("stream ")]
        for start in range(0, len(sessions), 64):
            lines = [f"@!{process} shutdown session {session}" for session in sessions[start : start + 64]]
            await self._request(self.master_path, ";".join(lines), self.timeout_s, closes=True)

    async def set(self, variables: Mapping[str, int]) -> None:
        """Set HAProxy's process variables to integers, by name.

        Raises:
            HaproxyError: HAProxy does not respond, or a variable does not exist.
        """
        commands = ";".join(["experimental-mode on", *(f"set var {name} int({to})" for name, to in variables.items())])
        response = await self._request(self.path, commands, self.timeout_s)
        if response.strip():
            raise RejectedError(f"HAProxy rejected {commands!r}: {response.strip()}")

    async def remove_keys(self, digests: AbstractSet[str], *, process: int = 0) -> None:
        """Remove the API keys whose digests are not in `digests` from the current worker, or from a replaced one.

        Raises:
            HaproxyError: HAProxy does not respond.
        """
        path, prefix = (self.master_path, f"@!{process} ") if process else (self.path, "")
        maps = await self._request(path, f"{prefix}show map", self.timeout_s, closes=process > 0)
        for file in _KEY_FILE.findall(maps):
            entries = await self._request(path, f"{prefix}show map {file}", self.timeout_s, closes=process > 0)
            lines = [f"{prefix}del map {file} {digest}" for digest in _DIGEST.findall(entries) if digest not in digests]
            for start in range(0, len(lines), 64):
                await self._request(path, ";".join(lines[start : start + 64]), self.timeout_s, closes=process > 0)

    async def apply(self, commands: Iterable[Command], *, process: int = 0) -> None:
        """Run the commands in order in the current worker, or drain servers in a worker that a reload has replaced.

        Raises:
            HaproxyError: HAProxy does not respond, or rejects a command. The commands before the rejected one have
                taken effect.
        """
        path = self.master_path if process else self.path
        lines = [line for command in commands for line in self._command_lines(command)]
        if process:
            # `hold.lua` has this command, because a stopping process refuses `set server`.
            lines = [f"@!{process} {line.replace('set server', 'change server', 1)}" for line in lines]
        for start in range(0, len(lines), 64):
            chunk = lines[start : start + 64]
            answer = await self._request(path, ";".join(chunk), self.timeout_s, closes=process > 0)
            for response in filter(None, (part.strip() for part in answer.split("\n"))):
                if not any(text in response for text in _SUCCESS):
                    raise RejectedError(f"HAProxy rejected one of {chunk}: {response}")

    async def reload(self) -> None:
        """Make HAProxy start a new worker with the configuration file; the old worker finishes its requests.

        HAProxy's master process re-executes itself after a start and after a reload, and refuses connections during that time. This
        method waits until the master accepts connections.

        Raises:
            RejectedError: the new worker did not start; the old one keeps running.
            HaproxyError: the master process does not respond.
        """
        answer = await self._request(self.master_path, "reload", self.reload_timeout_s, refused_for_s=self.timeout_s)
        if not answer.startswith("Success=1"):
            raise RejectedError(f"HAProxy did not reload: {answer.strip()[-1000:]}")

    def _command_lines(self, command: Command) -> list[str]:
        key = command.key
        if command.verb in {"open", "close"}:
            # `change server` of `hold.lua` also sends it the whole queue, and `set server` only as many requests as HAProxy polls.
            change = "change server {} state ready" if command.verb == "open" else "set server {} state maint"
            return [change.format(f"{protocol}_{key.slot}/{HELD_SERVER}") for protocol in PROTOCOLS]
        servers = [(f"{protocol}_{key.slot}/s{key.number}", protocol) for protocol in PROTOCOLS]
        if command.verb == "limit":
            return [
                f"set maxconn server {server} {most}" for (server, _), most in zip(servers, command.limits, strict=True)
            ]
        if command.verb == "cut":
            return [f"shutdown sessions server {server}" for server, _ in servers]
        if command.verb == "address":
            port = {"http": self.ports.server_http, "grpc": self.ports.server_grpc}
            # The sticky values of the pod that the server had before would follow the server, and not the hash.
            forget = f"clear table {stickiness.table(key.slot)} data.server_id eq {key.number + HELD_SERVER_ID}"
            return [
                forget,
                *(f"set server {server} addr {command.address} port {port[protocol]}" for server, protocol in servers),
            ]
        # Enable the tracking server first. It becomes usable only with the tracked one, so both start to take requests together.
        order = reversed(servers) if command.verb == "ready" else servers
        return [f"set server {server} {_VERBS[command.verb]}" for server, _ in order]

    @staticmethod
    async def _request(
        path: str, commands: str, timeout_s: float, *, refused_for_s: float = 0.0, closes: bool = False
    ) -> str:
        """Return the responses. `closes` ends the connection from this side after the commands.

        The master process otherwise waits for more commands, except after a reload.
        """
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await _connect(path, refused_for_s)
                try:
                    writer.write(commands.encode() + b"\n")
                    if closes:
                        writer.write_eof()
                    return (await reader.read(-1)).decode()
                finally:
                    writer.close()
        except (OSError, UnicodeDecodeError) as error:
            raise HaproxyError(f"HAProxy does not respond at {path}: {error!r}") from error


def _as_ipv6(source: str) -> str:
    return source if ":" in source else f"::ffff:{source}"


async def _connect(path: str, refused_for_s: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the unix socket. If the connection is refused, retry for up to `refused_for_s` seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + refused_for_s
    while True:
        try:
            return await asyncio.open_unix_connection(path)
        except ConnectionRefusedError:
            if loop.time() >= until:
                raise
        await asyncio.sleep(_CONNECT_RETRY_INTERVAL_S)
