"""Connections of one port: which are accepted, which are replaced, which are kept open after a response. Pure, no sockets.

| a connection is                        | limits                                                                     |
| -------------------------------------- | -------------------------------------------------------------------------- |
| unidentified: no request on it had a   | `unidentified` in all; from half of that on, `per_source` for each source  |
| known caller                           | address                                                                    |
| identified, in a request or a stream   | none here: agents' streams are limited per model, pages' streams by seats  |
| identified and idle                    | `idle` in all, `idle_per_caller` for each caller; one more is not refused  |
|                                        | but closed after its response                                              |

Agents behind one NAT, the API server and an ingress share an address, so an address counts only under pressure, and only until the
caller is known. A new connection beyond a limit replaces an idle one, if one may be replaced:

- of its own source, if that is at its limit, and only after `MIN_REPLACEABLE_S`: a client that has just connected gets its turn;
- else of the source with the most, at once if that has at least two more; a source with few always gets in.

Out of scope: timeouts and sockets (`listener`).
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

MIN_REPLACEABLE_S = 3.0
"""A connection without a request for this long may be replaced. Honest clients send their first request within milliseconds; a
connection that is kept open for a next request can be re-created."""
IPV6_PREFIX = 64
"""Prefix length of IPv6 addresses that count as one source: one node or pod has many addresses within its network."""

Limit = Literal["source", "all"]
"""The limit that a refused connection exceeded."""


@dataclass(frozen=True)
class PortLimits:
    """Maximum connections of a port, besides streams. A TLS connection costs 44 KiB, some 80 KiB during its handshake."""

    unidentified: int = 256
    per_source: int = 32
    idle: int = 256
    idle_per_caller: int = 64

    @property
    def pressure(self) -> int:
        """Number of unidentified connections from which on the number per source is limited."""
        return self.unidentified // 2


DEFAULT_LIMITS: Final = PortLimits()


@dataclass(eq=False)
class Connection:
    """One connection."""

    source: str
    idle_since: float
    """Time of its acceptance or its last response."""
    caller: str = ""
    """Caller of the last identified request on it; empty if unidentified."""
    in_request: bool = False
    has_streamed: bool = False
    is_counted_idle: bool = False
    closed: bool = False


@dataclass
class Connections:
    """The open connections of one port. `now` is monotonic, in seconds."""

    limits: PortLimits = field(default_factory=PortLimits)
    unidentified: int = 0
    _by_source: dict[str, dict[Connection, None]] = field(default_factory=dict)
    """Unidentified ones, oldest first."""
    _idle: Counter[str] = field(default_factory=Counter)
    """Identified and idle ones, by caller."""
    _idle_total: int = 0

    def admit(self, source: str, now: float) -> tuple[Connection, Connection | None] | Limit:
        """Accept a connection from this source.

        Returns:
            The connection, and the one that must be closed for it; or the limit because of which it is refused.
        """
        own = self._by_source.get(source, {})
        full, crowded = self.unidentified >= self.limits.unidentified, len(own) >= self.limits.per_source
        replaced: Connection | None = None
        if full or (crowded and self.unidentified >= self.limits.pressure):
            most = own if crowded else max(self._by_source.values(), key=len)
            replaced = _replaceable(most, now, at_once=len(most) > len(own) + 1)
            if replaced is None:
                return "source" if crowded else "all"
            self.end(replaced)
        connection = Connection(source, now)
        self._by_source.setdefault(source, {})[connection] = None
        self.unidentified += 1
        return connection, replaced

    def begin_request(self, connection: Connection) -> None:
        """Record that a complete request head has arrived."""
        connection.in_request = True
        self._uncount_idle(connection)

    def identify(self, connection: Connection, caller: str) -> None:
        """Record the caller of the request."""
        self._forget_source(connection)
        connection.caller = caller

    def begin_stream(self, connection: Connection) -> None:
        """Record that the response is a stream: its handler has admitted the caller and limits such streams."""
        self._forget_source(connection)
        connection.has_streamed = True

    def end_request(self, connection: Connection, now: float) -> bool:
        """Record that the response is ready; return whether the connection may be kept open for the next request."""
        connection.in_request, connection.idle_since = False, now
        if connection.closed or connection.has_streamed:
            return False
        if not connection.caller:
            return self.unidentified < self.limits.pressure
        if self._idle_total >= self.limits.idle or self._idle[connection.caller] >= self.limits.idle_per_caller:
            return False
        connection.is_counted_idle = True
        self._idle[connection.caller] += 1
        self._idle_total += 1
        return True

    def end(self, connection: Connection) -> None:
        """Record that it is closed. A second call changes nothing."""
        connection.closed = True
        self._forget_source(connection)
        self._uncount_idle(connection)

    def _forget_source(self, connection: Connection) -> None:
        same = self._by_source.get(connection.source, {})
        if connection in same:
            del same[connection]
            self.unidentified -= 1
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
    """Return what counts as one source: an IPv4 address, or the network of an IPv6 address."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped or ipaddress.ip_network((parsed, IPV6_PREFIX), strict=False))
    return str(parsed)


def _replaceable(connections: dict[Connection, None], now: float, *, at_once: bool) -> Connection | None:
    """Return the longest open connection of a source that may be replaced, or None."""
    idle = (one for one in connections if not one.in_request)
    return next((one for one in idle if at_once or now - one.idle_since >= MIN_REPLACEABLE_S), None)
