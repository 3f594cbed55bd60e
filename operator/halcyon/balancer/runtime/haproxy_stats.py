"""State and counters of one HAProxy process, parsed from the responses of its Runtime API.

Out of scope: the requests to HAProxy (`runtime_api`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from halcyon.balancer.config import latency_buckets
from halcyon.balancer.config.error_responses import PROTOCOLS
from halcyon.balancer.config.model import ServerKey
from halcyon.balancer.config.queueing import HELD_SERVER
from halcyon.balancer.runtime import class_load
from halcyon.balancer.runtime.class_load import ClassLoad, LowerStats
from halcyon.balancer.runtime.server_assignment import AdminState, ServerState
from halcyon.balancer.runtime.shares import PodLoad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from halcyon.balancer.config.latency_buckets import Latency

_FORCED_MAINT = 0x01
_FORCED_DRAIN = 0x08
_BACKEND = re.compile(r"(http|grpc)_([a-z])")
_SERVER = re.compile(r"s([0-9]{1,5})")
_HELD = re.compile(r"held=([0-9]+) came=([0-9]+)(?: late=([0-9]+))?")
_BROKEN = re.compile(r"broken=([0-9]+)")
_QCUR, _SCUR, _SLIM, _STOT, _STATUS, _RESPONSES = 2, 4, 6, 7, slice(17, 18), slice(39, 45)
"""Columns of HAProxy's response to `show stat`. `_RESPONSES` are the columns with the numbers of responses by
status."""
_CLIENT = re.compile(r" key=([-._a-zA-Z0-9]{1,253}) ")
_USAGE = re.compile(r" (http_req_cnt|bytes_in_cnt|bytes_out_cnt)=([0-9]+)")
_ABORTED = 50
"""Column of HAProxy's response to `show stat` with the number of responses that a server did not complete. HAProxy
counts a request here without sending an error if the response had begun, or if the connection to the server was
reused."""
_WRAP = 2**32
_MAX_UNWRAPPED_S = 3600
"""Time in which no counter of requests can wrap, in seconds. Even a million requests per second take 71 minutes to
reach 2^32."""
_STREAMS_OFFSET = 100
"""Offset added to the numbers of the counters of streams. It distinguishes them from the counters in `COUNTERS`."""


class HaproxyError(OSError):
    """Error raised if HAProxy did not respond, or if its response cannot be parsed."""


class WideCounters:
    """HAProxy's 32-bit counters of one process, continued beyond their overflow.

    No counter grows by 2^32 between two reads, so the growth modulo 2^32 is exact. Counters must be continued before
    they are subtracted from each other: if only one of two has wrapped, their difference is wrong for hours or days,
    until the other wraps too. Counters of a histogram start at 0 here if the process ran before this agent started,
    because some of them may have wrapped already.
    """

    def __init__(self) -> None:
        """Create an instance without counters."""
        self._process: object = None
        self._wide: dict[int, int] = {}
        self._base: dict[int, int] = {}
        """Value that is subtracted from each counter, so that it starts at 0; by counter number."""
        self._retries = self._repeated = self._rejected = self._unrepeated = 0

    def read(self, process: object, counters: Mapping[int, int], *, uptime_s: int) -> dict[int, int]:
        """Return the counters by number, continued beyond their overflow.

        `process` is the identity of the HAProxy process. For a new process, the counters start again at 0.
        """
        if process != self._process:
            self._process, self._wide, self._base = process, {}, {}
            self._retries = self._repeated = self._rejected = self._unrepeated = 0
            if uptime_s > _MAX_UNWRAPPED_S:
                self._base = {number: value for number, value in counters.items() if number >= latency_buckets.FIRST}
        for number, value in counters.items():
            previous = self._wide.get(number, 0)
            self._wide[number] = previous + (value - self._base.get(number, 0) - previous) % _WRAP
        return dict(self._wide)

    def repeated(self, rejected: int, retries: int) -> tuple[int, int]:
        """Return two counters that never fall: rejected requests that clients retried, and all other rejected requests.

        gRPC clients also retry requests that were rejected by a server and not by HAProxy. A retry is therefore counted
        only while there are requests rejected by HAProxy that were not retried yet.

        Args:
            rejected: HAProxy's counter of rejected requests.
            retries: HAProxy's counter of requests that clients retried.
        """
        self._repeated += min(retries - self._retries, rejected - self._repeated)
        self._retries = retries
        unrepeated = rejected - self._repeated
        self._rejected += max(unrepeated - self._unrepeated, 0)
        self._unrepeated = unrepeated
        return self._repeated, self._rejected


@dataclass(frozen=True)
class BackendLoads:
    """Load of the back ends of all slots in one HAProxy process.

    Each pair of numbers is (HTTP, gRPC).
    """

    waiting: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Number of queued requests in each slot."""
    queued: Mapping[ServerKey, tuple[int, int]] = field(default_factory=dict)
    """Number of requests that wait for a specific server, by server; servers without any are left out. `waiting`
    includes these requests."""
    servers: Mapping[ServerKey, PodLoad] = field(default_factory=dict)
    responses: Mapping[ServerKey, int] = field(default_factory=dict)
    """Number of responses whose headers have arrived, by server, for HTTP and gRPC together."""
    down: frozenset[ServerKey] = frozenset()
    """Servers to which HAProxy sends no requests, because their pods fail its health checks or refuse connections."""
    classes: ClassLoad | None = None
    """Requests of users and of batch inference; None if they were not read."""
    aborted: int = 0
    """Number of HTTP requests that were lost at a server and got no error response, or only part of a response."""
    late: int = 0
    """Number of late requests, which wait behind all others (`late.lua`); 0 if it was not read. `waiting` does not
    include them."""


@dataclass(frozen=True)
class ClientUsage:
    """Usage by one client of a model with API keys since HAProxy started."""

    requests: int
    """Number of inference requests, including those that were rejected."""
    received_bytes: int
    """Number of bytes in the requests that HAProxy passed on, including headers."""
    sent_bytes: int
    """Number of bytes in the responses, including headers."""


@dataclass(frozen=True)
class HaproxyStats:
    """State and counters of one HAProxy process."""

    at: float
    """Time of HAProxy's response, in seconds since the epoch."""
    process: int
    """Process id of HAProxy's worker. After a restart of the container, a new worker usually has the same id."""
    config: str
    """Digest of the configuration that HAProxy runs, as computed by `haproxy_cfg.digest`."""
    started_s: int = 0
    """Time at which the process started, in seconds since the epoch."""
    servers: Mapping[ServerKey, ServerState] = field(default_factory=dict)
    queued: int = 0
    """Number of requests that are queued because all servers are at their limit, for HTTP and gRPC together. It
    includes late requests, which wait behind all others."""
    held: int = 0
    """Number of requests that are held until a server is up, for HTTP and gRPC together."""
    inflight: int = 0
    """Number of requests in progress at servers, without those of batch inference."""
    requests: int = 0
    rejected: int = 0
    errors: int = 0
    unavailable: int = 0
    """Number of requests that a server, rather than HAProxy, answered with 503 or gRPC UNAVAILABLE, for example because
    its queue is full."""
    answered: int = 0
    """Number of responses from servers, including error responses. A stream is counted at its first response."""
    service_ms: int = 0
    """Total time of the requests in `answered`, in milliseconds. The time of a request is measured from sending it to a
    server until the response headers arrive."""
    latency: Mapping[str, Latency] = field(default_factory=dict)
    """Latency histogram of the servers' responses, for each slot."""
    clients: Latency | None = None
    """Latency histogram of the servers' responses from the clients' point of view, measured from the arrival of the
    request."""
    first_events: Latency | None = None
    """Histogram of the time until the first event of streams, measured from the arrival of the request."""
    held_total: int = 0
    """Number of requests that this process has held since it started."""
    client_retries: int = 0
    """Number of requests that clients retried after a rejection, at most one retry for each. For HTTP it is an
    estimate."""
    rejected_demand: int = 0
    """Number of rejected requests that are included in `demand`. A request that a client retried counts once."""
    retried: int = 0
    """Number of requests that HAProxy retried, or that needed more than one connection attempt."""
    loads: BackendLoads = field(default_factory=BackendLoads)
    """Load and limits of each HAProxy server."""
    connections_used: float = 0.0
    """Share of the maximum number of connections that is in use, for the client port with the highest share."""
    open_holds: frozenset[str] = frozenset()
    """Slots whose server `held` (`queueing`) is not in maintenance, in at least one protocol."""
    broken: int = 0
    """Number of streams that were cut because their server disappeared, or because they did not end within its drain time."""
    lower: LowerStats | None = None
    """Statistics of batch inference; None if there has been no batch inference request yet."""

    usage: Mapping[str, ClientUsage] = field(default_factory=dict)
    """Usage by each client, by the name of its API key; empty if the model has no API keys."""

    @property
    def identity(self) -> tuple[int, int]:
        """Process id and start time. If the pair changes, HAProxy has restarted and lost all state and counters."""
        return self.process, self.started_s

    @property
    def demand(self) -> int:
        """Number of requests, not counting retries by clients after a rejection."""
        return self.requests - self.client_retries


@dataclass(frozen=True)
class HeldRequests:
    """Numbers of requests that HAProxy holds, or has held, because no server was up."""

    held: int
    """Number of requests that are held now."""
    total: int
    """Number of requests that this HAProxy process has held since it started."""
    late: int = 0
    """Number of late requests that wait now. These requests are not held."""


def parse(answers: Sequence[str], *, at: float, wide: WideCounters) -> HaproxyStats:
    """Parse the responses to the commands of `runtime_api.SHOW`.

    `wide` stores the counters of earlier responses and continues them beyond their overflow.

    Raises:
        HaproxyError: a response does not have the format of HAProxy 3.0.
    """
    try:
        info, state, stat, table, held_text, broken, streams, usage = answers
        fields = dict(row.split(": ", 1) for row in info.splitlines() if ": " in row)
        loads = parse_loads(stat)
        sessions = {key: sum(load.inflight) for key, load in loads.servers.items()}
        process, started_s = int(fields["Pid"]), int(fields["Start_time_sec"])
        classes = class_load.class_load(table)
        now = class_load.all_counters(table)
        now |= {_STREAMS_OFFSET + index: count for index, count in class_load.counters(streams).items()}
        counts = wide.read((process, started_s), now, uptime_s=int(fields["Uptime_sec"]))
        requests, rejected, errors, retried, unavailable, retries = (counts.get(index, 0) for index in range(6))
        client_retries, rejected_demand = wide.repeated(rejected, retries)
        slots, held = latency_buckets.read(counts), parse_held(held_text)
        return HaproxyStats(
            at=at,
            process=process,
            config=fields.get("description", ""),
            started_s=started_s,
            servers=parse_servers(state, sessions),
            queued=sum(map(sum, loads.waiting.values())) + held.late,
            loads=replace(loads, late=held.late),
            held=held.held,
            held_total=held.total,
            inflight=max(sum(sessions.values()) - classes.sent, 0),
            lower=class_load.lower_stats(counts, classes),
            requests=requests,
            rejected=rejected,
            errors=errors + loads.aborted,
            unavailable=unavailable,
            answered=sum(slot.answered for slot in slots.values()),
            service_ms=sum(slot.total_ms for slot in slots.values()),
            latency=slots,
            clients=latency_buckets.read_clients(counts),
            retried=retried,
            first_events=latency_buckets.read_streams(
                {number - _STREAMS_OFFSET: count for number, count in counts.items() if number >= _STREAMS_OFFSET}
            ),
            client_retries=client_retries,
            rejected_demand=rejected_demand,
            broken=_broken(broken),
            connections_used=_connections_used(stat),
            open_holds=_open_holds(state),
            usage=parse_usage(usage),
        )
    except (ValueError, IndexError, KeyError, ZeroDivisionError) as error:
        raise HaproxyError(f"HAProxy's response can't be parsed: {error!r}") from error


def parse_held(answer: str) -> HeldRequests:
    """Parse the response to `show held`.

    Raises:
        HaproxyError: the response does not have the expected format.
    """
    match = _HELD.search(answer)
    if not match:
        raise HaproxyError(f"HAProxy's response can't be parsed: {answer[:80]!r}; expected, for example, held=0 came=0")
    return HeldRequests(int(match[1]), int(match[2]), int(match[3] or 0))


def parse_usage(table: str) -> dict[str, ClientUsage]:
    """Parse the response to `show table` for the table of clients. Return each client's usage, by client name."""
    usage = {}
    for row in table.splitlines():
        if name := _CLIENT.search(row):
            numbers = {key: int(value) for key, value in _USAGE.findall(row)}
            usage[name[1]] = ClientUsage(numbers["http_req_cnt"], numbers["bytes_in_cnt"], numbers["bytes_out_cnt"])
    return dict(sorted(usage.items()))


def _broken(answer: str) -> int:
    match = _BROKEN.search(answer)
    if not match:
        raise HaproxyError(f"HAProxy's response can't be parsed: {answer[:80]!r}; expected, for example, broken=0")
    return int(match[1])


def parse_loads(text: str) -> BackendLoads:
    """Parse the response to `show stat` for back ends and servers.

    Raises:
        HaproxyError: the response does not have the format of HAProxy 3.0.
    """
    waiting: dict[str, list[int]] = {}
    servers: dict[ServerKey, list[tuple[int, int, int]]] = {}
    queued: dict[ServerKey, list[int]] = {}
    responses: dict[ServerKey, int] = {}
    down: set[ServerKey] = set()
    aborted = 0
    try:
        for row in text.splitlines():
            columns = row.split(",", _RESPONSES.stop)
            if not (backend := _BACKEND.fullmatch(columns[0])):
                continue
            slot, index = backend[2], PROTOCOLS.index(backend[1])
            waiting.setdefault(slot, [0, 0])[index] += int(columns[_QCUR])
            if server := _SERVER.fullmatch(columns[1]):
                key = ServerKey(slot, int(server[1]))
                if waits := int(columns[_QCUR]):
                    queued.setdefault(key, [0, 0])[index] = waits
                if "".join(columns[_STATUS]).startswith("DOWN"):
                    down.add(key)
                responses[key] = responses.get(key, 0) + sum(int(column or 0) for column in columns[_RESPONSES])
                pair = servers.setdefault(key, [(0, 0, 0), (0, 0, 0)])
                pair[index] = (int(columns[_SCUR]), int(columns[_SLIM] or 0), int(columns[_STOT]))
            elif backend[1] == "http" and columns[1] == "BACKEND":
                # For gRPC, streams would count, too, and clients themselves repeat a request that got no response.
                aborted += sum(int(column or 0) for column in row.split(",", _ABORTED + 1)[_ABORTED : _ABORTED + 1])
    except (ValueError, IndexError) as error:
        raise HaproxyError(f"HAProxy's response can't be parsed: {error!r}") from error
    loads = {
        key: PodLoad((http[0], grpc[0]), (http[1], grpc[1]), http[2] + grpc[2] - http[0] - grpc[0])
        for key, (http, grpc) in servers.items()
    }
    return BackendLoads(
        {slot: (pair[0], pair[1]) for slot, pair in waiting.items()},
        {key: (pair[0], pair[1]) for key, pair in queued.items()},
        loads,
        responses,
        frozenset(down),
        aborted=aborted,
    )


def parse_servers(text: str, sessions: Mapping[ServerKey, int] | None = None) -> dict[ServerKey, ServerState]:
    """Parse the response to `show servers state`. `sessions` has the number of requests at each server."""
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
            sessions=(sessions or {}).get(key, 0),
        )
        for key, states in by_protocol.items()
    }


def _connections_used(text: str) -> float:
    rows = (row.split(",", _STOT) for row in text.splitlines())
    ports = [row for row in rows if row[0] in PROTOCOLS and row[1] == "FRONTEND"]
    return max((int(row[_SCUR]) / int(row[_SLIM]) for row in ports), default=0.0)


def _open_holds(text: str) -> frozenset[str]:
    rows = (row.split(" ", 7) for row in text.splitlines())
    return frozenset(
        backend[2]
        for columns in rows
        if len(columns) == 8 and columns[3] == HELD_SERVER and not int(columns[6]) & _FORCED_MAINT
        if (backend := _BACKEND.fullmatch(columns[1]))
    )


def _admin(bits: int) -> AdminState:
    # Only state that was set on this server itself counts. State inherited from the tracked server changes with that server.
    if bits & _FORCED_MAINT:
        return "maint"
    return "drain" if bits & _FORCED_DRAIN else "ready"
