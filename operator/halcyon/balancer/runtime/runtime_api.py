"""HAProxy's Runtime API over its unix sockets: its state, and the few changes that are safe while it runs.

`add server` and `del server` are missing on purpose: they have crashed HAProxy versions from 2.6 to 3.2 (haproxy issues
2378, 2298, 2323, 3177). Out of scope: decisions.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from halcyon.balancer.config import latency_buckets
from halcyon.balancer.config.error_responses import PROTOCOLS
from halcyon.balancer.config.model import Ports, ServerKey
from halcyon.balancer.config.queueing import COUNTERS
from halcyon.balancer.runtime.server_assignment import AdminState, Command, ServerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from halcyon.balancer.config.latency_buckets import Latency

_FORCED_MAINT = 0x01
_FORCED_DRAIN = 0x08
_BACKEND = re.compile(r"(http|grpc)_([a-z])")
_SERVER = re.compile(r"s([0-9]{1,5})")
_GPC = re.compile(r" gpc([0-9]{1,2})=([0-9]+)")
_HELD = re.compile(r"held=([0-9]+) came=([0-9]+)")
_BROKEN = re.compile(r"broken=([0-9]+)")
_QCUR, _SCUR = 2, 4
_SHOW = f"show info;show servers state;show stat -1 6 -1;show table {COUNTERS};show held;show broken"
_VERBS = {"ready": "state ready", "drain": "state drain", "maint": "state maint"}


class HaproxyError(OSError):
    """HAProxy did not respond, or its response is invalid."""


class RejectedError(HaproxyError):
    """HAProxy responded with an error."""


@dataclass(frozen=True)
class HaproxyStats:
    """State and counters of one HAProxy process."""

    at: float
    """Time of the response, in seconds since the epoch."""
    process: int
    """Process id. A different one means that all state and counters were lost."""
    config: str
    """Digest of the running configuration, as made by `haproxy_cfg.digest`."""
    servers: Mapping[ServerKey, ServerState] = field(default_factory=dict)
    queued: int = 0
    """Requests queued until a server has free capacity, both protocols."""
    held: int = 0
    """Requests held for the first server, both protocols."""
    inflight: int = 0
    """Requests in progress on servers."""
    requests: int = 0
    rejected: int = 0
    errors: int = 0
    answered: int = 0
    """Responses of servers, including their own failures. A stream counts as of its first response."""
    service_ms: int = 0
    """Total time that servers took for those, until the response headers."""
    latency: Mapping[str, Latency] = field(default_factory=dict)
    """The same by slot, as latency histograms."""
    clients: Latency | None = None
    """Latency of those as clients see it, from the arrival of the request."""
    held_total: int = 0
    """All requests that were ever held for the first server."""
    retried: int = 0
    """Requests that were retried, or that needed more than one connection attempt."""
    broken: int = 0
    """Streams cut because their server went away, or because they outlasted its drain."""


@dataclass(frozen=True)
class HeldRequests:
    """Requests that found no server."""

    held: int
    """Requests held now."""
    total: int
    """Counter of all held requests of this process."""


def parse(answers: Sequence[str], *, at: float) -> HaproxyStats:
    """Parse the answers to `show info`, `show servers state`, `show stat`, `show table`, `show held` and `show broken`.

    Raises:
        HaproxyError: an answer doesn't have HAProxy 3.0's format.
    """
    try:
        info, state, stat, table, held_text, streams = answers
        fields = dict(row.split(": ", 1) for row in info.splitlines() if ": " in row)
        sessions, queued = _stat(stat)
        counts = {int(index): int(count) for index, count in _GPC.findall(table)}
        requests, rejected, errors, retried = (counts.get(index, 0) for index in range(4))
        slots, held = latency_buckets.read(counts), parse_held(held_text)
        return HaproxyStats(
            at=at,
            process=int(fields["Pid"]),
            config=fields.get("description", ""),
            servers=_lines(state, sessions),
            queued=queued,
            held=held.held,
            held_total=held.total,
            inflight=sum(sessions.values()),
            requests=requests,
            rejected=rejected,
            errors=errors,
            answered=sum(slot.answered for slot in slots.values()),
            service_ms=sum(slot.total_ms for slot in slots.values()),
            latency=slots,
            clients=latency_buckets.read_clients(counts),
            retried=retried,
            broken=_broken(streams),
        )
    except (ValueError, IndexError, KeyError) as error:
        raise HaproxyError(f"HAProxy's response can't be parsed: {error!r}") from error


def parse_held(answer: str) -> HeldRequests:
    """Parse the answer to `show held`.

    Raises:
        HaproxyError: the answer is not in the expected format.
    """
    match = _HELD.search(answer)
    if not match:
        raise HaproxyError(f"HAProxy's response can't be parsed: {answer[:80]!r}; expected, for example, held=0 came=0")
    return HeldRequests(int(match[1]), int(match[2]))


def _broken(answer: str) -> int:
    match = _BROKEN.search(answer)
    if not match:
        raise HaproxyError(f"HAProxy's response can't be parsed: {answer[:80]!r}; expected, for example, broken=0")
    return int(match[1])


def _stat(text: str) -> tuple[dict[tuple[str, ServerKey], int], int]:
    sessions: dict[tuple[str, ServerKey], int] = {}
    queued = 0
    for row in text.splitlines():
        columns = row.split(",", _SCUR + 1)
        backend = _BACKEND.fullmatch(columns[0])
        if not backend:
            continue
        queued += int(columns[_QCUR])
        if server := _SERVER.fullmatch(columns[1]):
            sessions[backend[1], ServerKey(backend[2], int(server[1]))] = int(columns[_SCUR])
    return sessions, queued


def _lines(text: str, sessions: Mapping[tuple[str, ServerKey], int]) -> dict[ServerKey, ServerState]:
    by_protocol: dict[ServerKey, list[tuple[str, AdminState]]] = {}
    for row in text.splitlines():
        columns = row.split(" ", 7)
        if len(columns) < 8 or not (backend := _BACKEND.fullmatch(columns[1])):
            continue
        if server := _SERVER.fullmatch(columns[3]):
            key = ServerKey(backend[2], int(server[1]))
            by_protocol.setdefault(key, []).append((columns[4], _admin(int(columns[6]))))
    return {
        key: ServerState(
            address=states[0][0] if len({address for address, _ in states}) == 1 else "",
            admin=states[0][1] if len({admin for _, admin in states}) == 1 else "mixed",
            sessions=sum(sessions.get((protocol, key), 0) for protocol in PROTOCOLS),
        )
        for key, states in by_protocol.items()
    }


def _admin(bits: int) -> AdminState:
    # Only what was forced on this very server: state inherited from a tracked server follows by itself.
    if bits & _FORCED_MAINT:
        return "maint"
    return "drain" if bits & _FORCED_DRAIN else "ready"


_CONNECT_RETRY_INTERVAL_S = 0.02


@dataclass(frozen=True)
class RuntimeSocket:
    """Client of one HAProxy. Each call is one connection, so a HAProxy restart needs no recovery."""

    path: str
    master_path: str
    ports: Ports = field(default_factory=Ports)
    timeout_s: float = 2.0
    reload_timeout_s: float = 15.0

    async def read(self) -> HaproxyStats:
        """Return HAProxy's current state and counters.

        Raises:
            HaproxyError: HAProxy does not respond.
        """
        sent_at = time.time()
        # Answers end with an empty line, and no answer contains one.
        answers = (await self._request(self.path, _SHOW, self.timeout_s)).strip("\n").split("\n\n")
        # The answers were made somewhere in between, and on a busy machine either side may have waited.
        return parse([answer.lstrip("\n") for answer in answers], at=(sent_at + time.time()) / 2)

    async def held_requests(self) -> HeldRequests:
        """Return the held requests: a small part of `read`, for frequent polling.

        Raises:
            HaproxyError: HAProxy does not respond.
        """
        return parse_held(await self._request(self.path, "show held", self.timeout_s))

    async def set(self, variables: Mapping[str, int]) -> None:
        """Set process variables.

        Raises:
            HaproxyError: HAProxy does not respond, or has no such variable.
        """
        commands = ";".join(["experimental-mode on", *(f"set var {name} int({to})" for name, to in variables.items())])
        response = await self._request(self.path, commands, self.timeout_s)
        if response.strip():
            raise RejectedError(f"HAProxy rejected {commands!r}: {response.strip()}")

    async def apply(self, commands: Iterable[Command]) -> None:
        """Run `commands` in their order.

        Raises:
            HaproxyError: HAProxy does not respond, or refuses one; those before it have taken effect.
        """
        lines = [line for command in commands for line in self._command_lines(command)]
        for start in range(0, len(lines), 64):
            chunk = lines[start : start + 64]
            answer = await self._request(self.path, ";".join(chunk), self.timeout_s)
            for response in filter(None, (part.strip() for part in answer.split("\n"))):
                # Success is silent, except that a changed address is confirmed.
                if (
                    "changed from" not in response
                    and "no need to change" not in response
                    and "nothing changed" not in response
                ):
                    raise RejectedError(f"HAProxy rejected one of {chunk}: {response}")

    async def reload(self) -> None:
        """Start a new worker with the configuration in the file; the old worker finishes its requests.

        The master re-executes itself after a start and after a reload, and refuses connections meanwhile; this method waits for it.

        Raises:
            RejectedError: the new worker did not start; the old one keeps running.
            HaproxyError: the master does not respond.
        """
        answer = await self._request(self.master_path, "reload", self.reload_timeout_s, refused_for_s=self.timeout_s)
        if not answer.startswith("Success=1"):
            raise RejectedError(f"HAProxy did not reload: {answer.strip()[-1000:]}")

    def _command_lines(self, command: Command) -> list[str]:
        key = command.key
        servers = [(f"{protocol}_{key.slot}/s{key.number}", protocol) for protocol in PROTOCOLS]
        if command.verb == "cut":
            return [f"shutdown sessions server {server}" for server, _ in servers]
        if command.verb == "address":
            port = {"http": self.ports.server_http, "grpc": self.ports.server_grpc}
            return [f"set server {server} addr {command.address} port {port[protocol]}" for server, protocol in servers]
        # To enable, the tracking server comes first: it follows the tracked one, and both come into use at the same moment.
        order = reversed(servers) if command.verb == "ready" else servers
        return [f"set server {server} {_VERBS[command.verb]}" for server, _ in order]

    @staticmethod
    async def _request(path: str, commands: str, timeout_s: float, *, refused_for_s: float = 0.0) -> str:
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await _connect(path, refused_for_s)
                try:
                    writer.write(commands.encode() + b"\n")
                    return (await reader.read(-1)).decode()
                finally:
                    writer.close()
        except (OSError, UnicodeDecodeError) as error:
            raise HaproxyError(f"HAProxy does not respond at {path}: {error!r}") from error


async def _connect(path: str, refused_for_s: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect; retry a refused connection for up to `refused_for_s`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + refused_for_s
    while True:
        try:
            return await asyncio.open_unix_connection(path)
        except ConnectionRefusedError:
            if loop.time() >= until:
                raise
        await asyncio.sleep(_CONNECT_RETRY_INTERVAL_S)
