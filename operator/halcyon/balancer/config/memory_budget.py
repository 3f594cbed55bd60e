"""The limits on HAProxy's connections, requests and buffers that keep its memory below its container's limit. Pure.

    2 x (PROCESS + lines x LINE) + connections x (CONNECTION + TLS) + requests x REQUEST + buffers x (BUFFER + REQUEST)
      + MARGIN  <=  HAPROXY_MEMORY_MIB

The process counts twice, because after a reload the old one stays until its last request has ended. A request counts once more with
each buffer, because HTTP/2 decodes the headers of a request into a buffer before any rule can reject it. A request behind a hop
(a stream, or a held one) is two requests. A line is one server of HAProxy.

Rules (`client_limits`) limit connections and requests. HAProxy itself limits the buffers (`tune.buffers.limit`), and reads nothing new
while none is free, so requests that it has already go on. That is the last resort. A connection in the middle of a head has one buffer,
a waiting request has two. The limit is above what one source can hold that way (`HaproxyLimits.lone_source`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from halcyon.api.documents.balancer_plan import HAPROXY_MEMORY_MIB

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan

# A request that may be retried is copied once, with its whole buffer, which takes a few microseconds. Smaller buffers make that cheaper
# and large requests (an image tensor has 600 KB) much more expensive, and a waiting one would block its gRPC channel sooner.
BUFFER_BYTES: Final = 32768
STREAMS_PER_CHANNEL: Final = 256
"""Maximum concurrent requests of one gRPC channel; more wait in the client."""
MAX_REQUESTS: Final = 3072
"""Maximum concurrent requests: incoming, waiting or being answered; those behind a hop count twice."""
MAX_STREAMS: Final = 1024
"""Maximum concurrent `ModelStreamInfer`; more are queued, as for a busy server."""
MAX_METRICS_CONNECTIONS: Final = 100
"""Maximum connections to HAProxy's own exporter."""

# KiB: docs/decisions/0039-room-for-other-clients.md has the measurements.
_PROCESS = 24 * 1024
_SERVER = 10
_HTTP, _GRPC = 6, 12
_TLS = 39
_REQUEST = 6
_MARGIN = 32 * 1024
"""Memory that the allocator keeps, and the kernel for received data that nothing has read."""


@dataclass(frozen=True)
class HaproxyLimits:
    """Limits of one HAProxy."""

    http: int
    """Connections of HTTP/1.1 clients."""
    grpc: int
    """Connections of gRPC clients."""
    buffers: int
    """Buffers of the process."""

    @property
    def connections(self) -> int:
        """Connections of the process: more than all front ends together can have, so that none takes another's share."""
        # A stream takes two through the process itself. Held requests share theirs.
        return self.http + self.grpc + MAX_METRICS_CONNECTIONS + 2 * MAX_STREAMS + MAX_REQUESTS // 16

    @property
    def lone_source(self) -> int:
        """Buffers of one source with three quarters of everything: each connection in the middle of a head, each request waiting."""
        return (self.http + self.grpc + 2 * MAX_REQUESTS) * 3 // 4


def haproxy_limits(plan: BalancerPlan, *, tls: bool, limit_mib: int = HAPROXY_MEMORY_MIB) -> HaproxyLimits:
    """Return the limits that fit the memory limit.

    Args:
        plan: has the number of servers.
        tls: clients use TLS, so a connection takes several times the memory, and fewer than half as many are allowed.
        limit_mib: memory of HAProxy's container.
    """
    http, grpc = (1800, 700) if tls else (4000, 1000)
    tls_kib = _TLS if tls else 0
    fixed = (
        2 * (_PROCESS + sum(slot.capacity for slot in plan.slots) * _SERVER)
        + http * (_HTTP + tls_kib)
        + grpc * (_GRPC + tls_kib)
        + MAX_METRICS_CONNECTIONS * _HTTP
        + 2 * MAX_STREAMS * _HTTP
        + (MAX_REQUESTS + STREAMS_PER_CHANNEL) * _REQUEST
        + _MARGIN
    )
    return HaproxyLimits(http, grpc, (limit_mib * 1024 - fixed) // (BUFFER_BYTES // 1024 + _REQUEST))
