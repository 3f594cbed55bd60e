"""Connection limits of one port: which connections to accept, to replace, and to keep open after a response. Pure.

The limits depend on the state of a connection: unidentified, identified with a request or a stream, or identified and
idle.

Agents behind one NAT, the API server and an Ingress can share an address. Therefore connections are limited per address
only under pressure, and only until the caller is authenticated.

A new connection above a limit replaces an older one that has no request, if such a connection exists:

- If the source of the new connection is at its limit, a connection of the same source is replaced. It must be older
  than `MIN_REPLACEABLE_S`, so that clients have time for their first request. If nothing was received on it,
  `MIN_SILENT_S` suffices.
- Otherwise a connection of the source with the most connections is replaced, at once if that source has at least two
  more. Sources with few connections are therefore always accepted.

A connection that is rejected here may wait. Out of scope: waiting (`waiting_connections`), timeouts and sockets
(`listener`).
"""

# | state of the connection                | limits                                                                      |
# | -------------------------------------- | --------------------------------------------------------------------------- |
# | unidentified: no request on it had an  | `unidentified` in total; if seven eighths of these are in use, also         |
# | authenticated caller yet               | `per_source` for each source address; `requests_per_s` for each source      |
# | identified, with a request or a stream | none here: streams of agents are limited per model, of pages per replica    |
# | identified and idle                    | `idle` in total and `idle_per_caller` for each caller; above a limit, a     |
# |                                        | connection is closed after its response                                     |

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from halcyon.metricsapi.source_counts import SourceCounts

MIN_REPLACEABLE_S = 3.0
"""Time without a request after which a connection may be replaced, in seconds. Normal clients send their first request
within milliseconds, and can reopen a connection that was kept open for further requests."""
MIN_SILENT_S = 0.5
"""Time after which a connection may be replaced if nothing was received on it, in seconds. Clients send the first bytes of
their TLS handshake or request as soon as they are connected. A busy operator reads them later, so it first checks whether
any have arrived."""
IPV6_PREFIX = 64
"""Prefix length of IPv6 networks that count as one source, because a node or pod can have many addresses in its network."""

Limit = Literal["source", "all"]
"""Limit that a rejected connection exceeded. It is the limit of the connection's source, or that of all connections."""


@dataclass(frozen=True)
class PortLimits:
    """Limits on the connections of a port, not counting streams.

    A TLS connection takes about 31 KiB, and about 80 KiB during its handshake.
    """

    unidentified: int = 256
    per_source: int = 32
    idle: int = 256
    idle_per_caller: int = 64
    waiting: int = 1024
    """Maximum number of accepted sockets that wait until the limits allow them (`waiting_connections`)."""
    requests_per_s: float = 50.0
    """Average rate of requests of unidentified callers per source, in requests per second.

    The first request of a connection counts when the connection is accepted, so a TLS handshake without a request
    counts, too. Above the rate, connections are closed after their response, and new ones wait.
    """
    requests_burst: float = 512.0
    """Maximum burst of requests of unidentified callers per source. It is more than `unidentified`, so that agents that
    reconnect at once are not delayed."""

    @property
    def pressure(self) -> int:
        """Number of unidentified connections at which the limit per source, `per_source`, begins to apply.

        It is close to the limit in total, so that many agents behind one address can reconnect at once.
        """
        return self.unidentified * 7 // 8

    @property
    def keepalive_limit(self) -> int:
        """Number of unidentified connections at which they are no longer kept open after a response."""
        return self.unidentified // 2


DEFAULT_LIMITS: Final = PortLimits()


@dataclass(eq=False, slots=True)
class Connection:
    """State of one connection that is needed for the limits."""

    source: str
    idle_since: float
    """Time of the last response on the connection, on the caller's clock, in seconds. Before the first response, it is
    the time at which the first bytes were received, or at which the connection was accepted."""
    caller: str = ""
    """Name of the last authenticated caller on this connection; empty if no caller has been authenticated yet."""
    is_silent: bool = True
    """Whether nothing was received on the connection yet."""
    has_input: Callable[[], bool] = lambda: False
    """Function that returns True if bytes have arrived that were not received yet, because the operator is busy."""
    is_prepaid: bool = True
    """Whether the connection's first request, which is counted on acceptance, has had no response yet."""
    in_request: bool = False
    has_streamed: bool = False
    is_counted_idle: bool = False
    closed: bool = False

    def begin_input(self, now: float) -> None:
        """Record that bytes were received on the connection. Further calls have no effect."""
        if self.is_silent:
            self.is_silent, self.idle_since = False, now


@dataclass
class Connections:
    """Open connections of one port. In all methods, `now` is the monotonic time in seconds."""

    limits: PortLimits = field(default_factory=PortLimits)
    _by_source: dict[str, dict[Connection, None]] = field(default_factory=dict)
    """Connections without an authenticated caller, by source, oldest first."""
    _counts: SourceCounts = field(default_factory=SourceCounts)
    """Number of these connections by source."""
    _idle: Counter[str] = field(default_factory=Counter)
    """Number of idle connections of each authenticated caller."""
    _idle_total: int = 0

    @property
    def unidentified(self) -> int:
        """Number of connections without an authenticated caller."""
        return self._counts.total

    def admit(self, source: str, now: float) -> tuple[Connection, Connection | None] | Limit:
        """Accept or reject a new connection from this source.

        Returns:
            The new connection and the connection to close in exchange, which may be None. If the new connection is
                rejected, the exceeded limit.
        """
        siblings = self._by_source.get(source, {})
        full, crowded = self.unidentified >= self.limits.unidentified, len(siblings) >= self.limits.per_source
        replaced: Connection | None = None
        if full or (crowded and self.unidentified >= self.limits.pressure):
            most = siblings if crowded else self._by_source.get(self._counts.most() or "", {})
            replaced = _replaceable(most, now, at_once=len(most) > len(siblings) + 1)
            if replaced is None:
                return "source" if crowded else "all"
            self.end(replaced)
        connection = Connection(source, now)
        self._by_source.setdefault(source, {})[connection] = None
        self._counts.add(source)
        return connection, replaced

    def begin_request(self, connection: Connection) -> None:
        """Record that a complete request head has arrived on the connection."""
        connection.in_request = True
        self._uncount_idle(connection)

    def identify(self, connection: Connection, caller: str) -> None:
        """Record the caller of a request on this connection, after the caller was authenticated."""
        self._forget_source(connection)
        connection.caller = caller

    def begin_stream(self, connection: Connection) -> None:
        """Record that the response is a stream, whose handler has authorized the caller and limits the streams."""
        self._forget_source(connection)
        connection.has_streamed = True

    def end_request(self, connection: Connection, now: float) -> bool:
        """Record that the response is ready. Return True if the connection may stay open for another request."""
        connection.in_request, connection.idle_since = False, now
        if connection.closed or connection.has_streamed:
            return False
        if not connection.caller:
            return self.unidentified < self.limits.keepalive_limit
        if self._idle_total >= self.limits.idle or self._idle[connection.caller] >= self.limits.idle_per_caller:
            return False
        connection.is_counted_idle = True
        self._idle[connection.caller] += 1
        self._idle_total += 1
        return True

    def end(self, connection: Connection) -> None:
        """Record that the connection is closed. Further calls have no effect."""
        connection.closed = True
        self._forget_source(connection)
        self._uncount_idle(connection)

    def _forget_source(self, connection: Connection) -> None:
        same = self._by_source.get(connection.source, {})
        if connection in same:
            del same[connection]
            self._counts.remove(connection.source)
            if not same:
                del self._by_source[connection.source]

    def _uncount_idle(self, connection: Connection) -> None:
        if connection.is_counted_idle:
            connection.is_counted_idle = False
            self._idle_total -= 1
            self._idle[connection.caller] -= 1
            if not self._idle[connection.caller]:
                del self._idle[connection.caller]


def source_of(address: str) -> str:
    """Return the source to which an address belongs: for IPv4 the address itself, for IPv6 its network."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped or ipaddress.ip_network((parsed, IPV6_PREFIX), strict=False))
    return str(parsed)


def _replaceable(connections: dict[Connection, None], now: float, *, at_once: bool) -> Connection | None:
    """Return the oldest connection of a source that may be replaced. Return None if there is none."""
    for connection in connections:
        least_s = MIN_SILENT_S if connection.is_silent else MIN_REPLACEABLE_S
        is_idle = now - connection.idle_since >= least_s and not connection.has_input()
        if not connection.in_request and (at_once or is_idle):
            return connection
    return None
