"""Ends requests that clients do not finish sending, while requests of other clients wait for the servers that they hold.

A request whose body is larger than a buffer goes to a server before its client has sent all of it. Such a request takes
one of the server's places until the client has sent the rest, however slowly: some dozens of them stop a model.

A source is a client's address; IPv6 addresses are masked to /64. While a request waits and no server has a free place,
no source may hold more than its equal share of the places with requests that it has been sending for `SLOW_S`. The
oldest above the share are ended, and those of the source that wait. For some time, HAProxy then rejects requests of this source that are larger than a
buffer (`client_limits.slow_rules`). A source that is alone keeps all of its requests.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from halcyon.balancer.config.error_responses import PROTOCOLS, Protocol
from halcyon.balancer.runtime.haproxy_stats import HaproxyError
from halcyon.triton.json_log import log

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from halcyon.balancer.config.model import ServerKey
    from halcyon.balancer.runtime.controller import HaproxyController
    from halcyon.balancer.runtime.haproxy_stats import BackendLoads
    from halcyon.balancer.runtime.runtime_api import RuntimeSocket

INTERVAL_S: Final = 0.5
SLOW_S: Final = 1.5
"""Time for which a client may go on sending a request that is at a server while others wait, in seconds."""
_LINE: Final = re.compile(
    r"(?P<id>0x[0-9a-f]+): proto=tcp\S* src=(?P<source>\S+):(?P<port>\d+) fe=\S+ be=(?P<protocol>http|grpc)_\S+ srv=(?P<server>\S+) "
    r".* scf=\[\d+,(?P<flags>[0-9a-f]+)h,"
)
_COMPLETE: Final = 0x2
"""Flag of a client's side in HAProxy 3.0 (`SC_FL_EOI`): the whole request has been received."""


@dataclass(frozen=True)
class Upload:
    """A request in HAProxy that is at a server, or waits for one."""

    session: str
    """Address and port of the client and HAProxy's identifier, which alone may be used again."""
    source: str
    protocol: Protocol
    is_waiting: bool
    is_sending: bool
    """Whether HAProxy has not received the whole request."""

    @property
    def id(self) -> str:
        """Identifier in HAProxy's Runtime API."""
        return self.session.partition(" ")[0]


def parse(text: str) -> list[Upload]:
    """Return the requests of clients in the response to `show sess`."""
    found = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is not None:
            source = _source(match["source"])
            protocol: Protocol = "http" if match["protocol"] == "http" else "grpc"
            is_sending = not int(match["flags"], 16) & _COMPLETE
            session = f"{match['id']} {match['source']} {match['port']}"
            found.append(Upload(session, source, protocol, match["server"] == "<none>", is_sending))
    return found


def _source(address: str) -> str:
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    # On a port for both families, IPv4 addresses are mapped.
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False).network_address)


def full(loads: BackendLoads, ready: Collection[ServerKey]) -> dict[Protocol, int]:
    """Return the number of places at servers, for each protocol in which a request waits and no place is free.

    `ready` has the servers that take requests. All others have no places.
    """
    found: dict[Protocol, int] = {}
    for number, protocol in enumerate(PROTOCOLS):
        up = [load for key, load in loads.servers.items() if key in ready and key not in loads.down]
        places = sum(load.limits[number] for load in up)
        inflight = sum(load.inflight[number] for load in up)
        if any(waiting[number] for waiting in loads.waiting.values()) and inflight >= places > 0:
            found[protocol] = places
    return found


def above_share(uploads: Iterable[Upload], places: Mapping[Protocol, int], slow: Mapping[str, float]) -> list[Upload]:
    """Return the requests to end: of each source above its share, those that it has been sending for the longest time.

    Its unfinished requests that wait end, too. Otherwise they would take the free places before the requests of others.

    Args:
        uploads: all requests at servers, and those that wait.
        places: number of places at servers, for each protocol that is full.
        slow: since when each slow session has been sending at a server.
    """
    found = []
    for protocol, total in places.items():
        ours = [upload for upload in uploads if upload.protocol == protocol]
        sources = {upload.source for upload in ours}
        if len(sources) < 2:
            continue
        held = Counter(upload.source for upload in ours if not upload.is_waiting)
        for source in sorted(sources):
            sending = [upload for upload in ours if upload.source == source and upload.session in slow]
            sending.sort(key=lambda upload: slow[upload.session])
            ended = sending[: max(held[source] - total // len(sources), 0)]
            if ended:
                ended += [
                    upload for upload in ours if upload.source == source and upload.is_waiting and upload.is_sending
                ]
            found += ended
    return found


async def run(runtime: RuntimeSocket, controller: HaproxyController) -> None:
    """Look for slow requests while requests wait, and end those above the share of their source, until cancelled."""
    since: dict[str, float] = {}
    clock = asyncio.get_running_loop().time
    while True:
        await asyncio.sleep(INTERVAL_S)
        reading = controller.reading
        ready = {key for key, server in reading.servers.items() if server.admin == "ready"} if reading else ()
        places = full(reading.loads, ready) if reading else {}
        if not places:
            since.clear()
            continue
        try:
            uploads = parse(await runtime.sessions())
            now = clock()
            sending = {upload.session for upload in uploads if upload.is_sending and not upload.is_waiting}
            since = {session: since.get(session, now) for session in sending}
            slow = {session: at for session, at in since.items() if now - at >= SLOW_S}
            ended = above_share(uploads, places, slow)
            if ended:
                await _end(runtime, ended)
        except HaproxyError as error:
            log("warning", "slow requests could not be ended; the next look tries again", error=str(error))


async def _end(runtime: RuntimeSocket, ended: Sequence[Upload]) -> None:
    sources = Counter(upload.source for upload in ended)
    await runtime.end_sessions([upload.id for upload in ended], slow=list(sources))
    for source, count in sources.items():
        log(
            "warning",
            "ended requests that their client did not finish sending, because others wait",
            source=source,
            requests=count,
        )
