"""Task that ends requests waiting for their client, while requests of other clients wait for a server.

A place is one of the requests that a server may have in progress at the same time. A request keeps its place until its
response has left HAProxy. Some requests wait for their client:

- A request whose body is larger than a buffer goes to a server before its client has sent all of it.
- A response that is larger than a buffer stays at the server until its client reads it.
- A gRPC stream is open until its client ends it. It is idle while all its messages have been answered (`streams.lua`).

A few dozen such requests can take all places at a model's servers, even if each of them advances slowly.

A source is a client's address; IPv6 addresses are masked to /64. The agent acts while a request waits and no server has
a free place. A source may then hold more than its equal share of the places only if none of its requests has waited for
its client for `SLOW_S`. Of the requests above the share, those that have waited longest are ended, and with them the
source's incomplete requests that wait for a server. If there is only one source, it keeps all of its requests.

For `SLOW_FOR_S`, HAProxy then limits the source (`client_limits`). After an upload, requests that are larger than a
buffer are rejected. After a response or a stream, the source may have no more requests in progress than its share, and
its unread responses are ended at the next check.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from halcyon.balancer.config.client_limits import SLOW_FOR_S
from halcyon.balancer.config.error_responses import PROTOCOLS, Protocol
from halcyon.balancer.config.grpc_streams import FRONTEND
from halcyon.balancer.runtime.haproxy_stats import HaproxyError
from halcyon.triton.json_log import log

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from halcyon.balancer.config.model import ServerKey
    from halcyon.balancer.runtime.controller import HaproxyController
    from halcyon.balancer.runtime.haproxy_stats import BackendLoads
    from halcyon.balancer.runtime.runtime_api import RuntimeSocket

INTERVAL_S: Final = 0.5
QUICK_INTERVAL_S: Final = 0.2
"""Interval between two checks while a source is limited because of its responses, in seconds."""
SLOW_S: Final = 1.5
"""Time for which a request at a server may wait for its client while others wait, in seconds."""
REST_S: Final = 10.0
"""Time for which a stream may be idle before it counts as waiting for its client, in seconds."""
_STREAM: Final = re.compile(r"stream (?P<id>0x[0-9a-f]+) (?P<source>\S+) (?P<rest_ms>\d+)")
_LINE: Final = re.compile(
    r"(?P<id>0x[0-9a-f]+): proto=(?:tcp\S* src=(?P<source>\S+):(?P<port>\d+) fe=(?:http|grpc)"
    rf"|unix_stream src=\S+ fe={FRONTEND}) "
    r"be=(?P<protocol>http|grpc)_\S+ srv=(?P<server>\S+) "
    r".* scf=\[\d+,(?P<flags>[0-9a-f]+)h,fd=-?\d+,rex=[^,]*,wex=(?P<blocked>[^\]]*)\] scb=\[(?P<state>\d+),"
)
_COMPLETE: Final = 0x2
"""Flag on the client side of a request in HAProxy 3.0 (`SC_FL_EOI`): HAProxy has received the whole request."""
_ESTABLISHED: Final = "8"
"""State on the server side of a request in HAProxy 3.0 (`SC_ST_EST`): the response is not complete, so the request
keeps its place at the server."""

WaitsFor = Literal["upload", "response", "message"]


@dataclass(frozen=True)
class ClientRequest:
    """Client request in HAProxy that is at a server or waits for one."""

    session: str
    """HAProxy's identifier of the request, with the client's address and port (for streams, the word `stream`), because
    HAProxy reuses identifiers."""
    source: str
    protocol: Protocol
    is_waiting: bool
    is_complete: bool
    """Whether HAProxy has received the whole request. A stream is never complete."""
    waits_for: WaitsFor | None = None
    """Action of the client for which the request waits: sending the rest of it, reading its response, or sending a
    stream's next message; None if it doesn't wait for its client."""

    @property
    def id(self) -> str:
        """Identifier of the request in HAProxy's Runtime API."""
        return self.session.partition(" ")[0]


def parse(text: str) -> list[ClientRequest]:
    """Return the requests of clients in the responses to `show streams` and `show sess`."""
    streams, requests = dict[str, tuple[str, float]](), []
    for line in text.splitlines():
        if (stream := _STREAM.fullmatch(line)) is not None:
            streams[stream["id"]] = (stream["source"], int(stream["rest_ms"]) / 1000)
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        is_stream = match["source"] is None
        if is_stream and match["id"] not in streams:
            # It began after the list of streams.
            continue
        address, rest_s = streams[match["id"]] if is_stream else (match["source"], 0.0)
        is_complete = not is_stream and bool(int(match["flags"], 16) & _COMPLETE)
        is_waiting = match["server"] == "<none>"
        waits_for: WaitsFor | None = None
        if is_waiting:
            pass
        elif match["blocked"] and match["state"] == _ESTABLISHED:
            waits_for = "response"
        elif is_stream:
            waits_for = "message" if rest_s >= REST_S else None
        elif not is_complete:
            waits_for = "upload"
        protocol: Protocol = "http" if match["protocol"] == "http" else "grpc"
        session = f"{match['id']} {address} {match['port'] or 'stream'}"
        requests.append(ClientRequest(session, _source(address), protocol, is_waiting, is_complete, waits_for))
    return requests


def _source(address: str) -> str:
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    # On a port for both families, IPv4 addresses are mapped.
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False).network_address)


def full(loads: BackendLoads, ready: Collection[ServerKey]) -> dict[Protocol, int]:
    """Return the total number of places, for each protocol in which a request waits and no place is free.

    A place is one request that a server may have in progress. `ready` contains the servers that take requests.
    """
    totals: dict[Protocol, int] = {}
    for number, protocol in enumerate(PROTOCOLS):
        up = [load for key, load in loads.servers.items() if key in ready and key not in loads.down]
        places = sum(load.limits[number] for load in up)
        inflight = sum(load.inflight[number] for load in up)
        if any(waiting[number] for waiting in loads.waiting.values()) and inflight >= places > 0:
            totals[protocol] = places
    return totals


@dataclass(frozen=True)
class Excess:
    """Requests of one source to end, because it holds more than its share of the places at servers."""

    source: str
    share: int
    """Number of requests that the source may have at servers."""
    requests: tuple[ClientRequest, ...]

    @property
    def has_uploads(self) -> bool:
        """Whether any of these requests has not been completely sent by its client."""
        return any(request.waits_for == "upload" for request in self.requests)

    @property
    def has_others(self) -> bool:
        """Whether any of these requests has an unread response or is an idle stream."""
        return any(request.waits_for in ("response", "message") for request in self.requests)


def above_share(
    requests: Iterable[ClientRequest], places: Mapping[Protocol, int], slow: Mapping[str, float]
) -> list[Excess]:
    """Return the requests to end: for each source above its share, those that have waited longest for their client.

    The source's incomplete requests that wait for a server are ended as well. Otherwise they would take the free places
    before the requests of others.

    Args:
        requests: all requests at servers, and those that wait for one.
        places: total number of places at servers, for each protocol in which all places are taken.
        slow: time since which each slow request has waited for its client, by `ClientRequest.session`.
    """
    requests = list(requests)
    excesses = []
    for protocol, total in places.items():
        ours = [request for request in requests if request.protocol == protocol]
        sources = {request.source for request in ours}
        if len(sources) < 2:
            continue
        share = total // len(sources)
        held = Counter(request.source for request in ours if not request.is_waiting)
        for source in sorted(sources):
            own = [request for request in ours if request.source == source]
            waiting = sorted(
                (request for request in own if request.session in slow), key=lambda request: slow[request.session]
            )
            ended = waiting[: max(held[source] - share, 0)]
            if any(request.waits_for != "response" for request in ended):
                ended += [request for request in own if request.is_waiting and not request.is_complete]
            if ended:
                excesses.append(Excess(source, max(share, 1), tuple(ended)))
    return excesses


async def run(runtime: RuntimeSocket, controller: HaproxyController) -> None:
    """Until cancelled, end slow requests while others wait, if their source has more than its share of the places."""
    since: dict[str, float] = {}
    limited_until: dict[str, float] = {}
    clock = asyncio.get_running_loop().time
    while True:
        limited_until = {source: until for source, until in limited_until.items() if until > clock()}
        await asyncio.sleep(QUICK_INTERVAL_S if limited_until else INTERVAL_S)
        reading = controller.reading
        ready = {key for key, server in reading.servers.items() if server.admin == "ready"} if reading else ()
        places = full(reading.loads, ready) if reading else {}
        if not places:
            since.clear()
            continue
        try:
            requests = parse(await runtime.sessions())
            now = clock()
            waiting = {request.session: request for request in requests if request.waits_for}
            since = {session: since.get(session, now) for session in waiting}
            slow = {
                session: at
                for session, at in since.items()
                if now - at >= SLOW_S
                or (waiting[session].waits_for == "response" and waiting[session].source in limited_until)
            }
            for excess in above_share(requests, places, slow):
                await _end(runtime, excess)
                if excess.has_others:
                    limited_until[excess.source] = now + SLOW_FOR_S
        except HaproxyError as error:
            log("warning", "slow requests could not be ended; the next pass tries again", error=str(error))


async def _end(runtime: RuntimeSocket, excess: Excess) -> None:
    await runtime.end_sessions(
        [request.id for request in excess.requests],
        source=excess.source,
        is_slow=excess.has_uploads,
        places=excess.share if excess.has_others else 0,
    )
    log(
        "warning",
        "ended requests that waited for their clients, because other requests wait for a server",
        source=excess.source,
        requests=len(excess.requests),
    )
