"""How many connections, requests and buffers HAProxy may have, so that its memory stays below its container's limit. Pure.

    2 x (PROCESS + lines x LINE) + connections x (CONNECTION + TLS) + requests x REQUEST + buffers x (BUFFER + REQUEST)
      + MARGIN  <=  HAPROXY_MEMORY_MIB

The process counts twice, because after a reload the former one is there too until its last request has ended; and a request once more
with each buffer, because HTTP/2 decodes the headers of a request into a buffer before any rule can refuse it. A request that passes a
hop (a stream, or one that is held for the first server) is two requests.

Rules (`pressure`) bound connections and requests. HAProxy itself bounds the buffers (`tune.buffers.limit`), and reads nothing new
while none is left, so what it has goes on. That is the last resort: a connection in the middle of a head has one buffer, a request
that waits has two, and the limit is above what one source can hold so (`Room.lone_source`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from halcyon.api.documents.balancer_plan import HAPROXY_MEMORY_MIB

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan

# What may be sent again is copied once, a whole buffer of it, which is a few microseconds. Smaller ones make that cheaper and large
# requests (a tensor of an image has 600 KB) much dearer, and one that waits would sooner block all others of its gRPC channel.
BUFFER_BYTES: Final = 32768
STREAMS_PER_CHANNEL: Final = 256
"""Requests of one gRPC channel at the same time; more wait in the client."""
MAX_REQUESTS: Final = 3072
"""Requests at the same time, whether they come, wait or are answered; those behind a hop count twice."""
MAX_STREAMS: Final = 1024
"""`ModelStreamInfer` at the same time; more wait, as for room in a server."""
METRICS_CONNECTIONS: Final = 100
"""Connections to HAProxy's own exporter."""

# KiB: docs/decisions/0039-room-for-other-clients.md has the measurements.
_PROCESS = 24 * 1024
_LINE = 10
_HTTP, _GRPC = 6, 12
_TLS = 39
_REQUEST = 6
_MARGIN = 32 * 1024
"""What the allocator keeps, and the kernel for what it has received and nobody has read."""


@dataclass(frozen=True)
class Room:
    """The most that one HAProxy has."""

    http: int
    """Connections of clients of HTTP/1.1."""
    grpc: int
    """Connections of clients of gRPC."""
    buffers: int
    """Buffers of the process."""

    @property
    def connections(self) -> int:
        """Connections of the process: more than all front ends together can have, so that none takes another's room."""
        # A stream takes two through the process itself. Requests that are held share theirs.
        return self.http + self.grpc + METRICS_CONNECTIONS + 2 * MAX_STREAMS + MAX_REQUESTS // 16

    @property
    def lone_source(self) -> int:
        """Buffers of one source that has three quarters of all: each connection in the middle of a head, each request waiting."""
        return (self.http + self.grpc + 2 * MAX_REQUESTS) * 3 // 4


def room(plan: BalancerPlan, *, tls: bool, limit_mib: int = HAPROXY_MEMORY_MIB) -> Room:
    """What fits below the limit.

    Args:
        plan: says how many server lines there are.
        tls: clients speak TLS, so a connection is several times as dear, and there are fewer than half as many.
        limit_mib: memory of HAProxy's container.
    """
    http, grpc = (1800, 700) if tls else (4000, 1000)
    each = _TLS if tls else 0
    fixed = (
        2 * (_PROCESS + sum(slot.capacity for slot in plan.slots) * _LINE)
        + http * (_HTTP + each)
        + grpc * (_GRPC + each)
        + METRICS_CONNECTIONS * _HTTP
        + 2 * MAX_STREAMS * _HTTP
        + (MAX_REQUESTS + STREAMS_PER_CHANNEL) * _REQUEST
        + _MARGIN
    )
    return Room(http, grpc, (limit_mib * 1024 - fixed) // (BUFFER_BYTES // 1024 + _REQUEST))
