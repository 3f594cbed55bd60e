"""Limits on HAProxy's connections, requests and buffers that keep its memory below the container's limit. Pure.

    2 x (PROCESS + servers x SERVER) + connections x (CONNECTION + TLS) + requests x REQUEST + buffers x (BUFFER + REQUEST)
      + MARGIN  <=  HAPROXY_MEMORY_MIB

In this formula:
- The process counts twice, because after a reload the old process runs until its last request has ended.
- `servers` is the number of servers in haproxy.cfg.
- Each buffer includes one more request, because HTTP/2 decodes request headers into a buffer before any rule can reject the request.
- A stream or a held HTTP/1.1 request counts as two requests, because it passes through HAProxy twice.
- `connections` includes one HTTP/2 connection for each request, to its server or, while it is held, to the process itself.

The rules of `client_limits` limit connections and requests. As a last resort, HAProxy itself limits the buffers
(`tune.buffers.limit`): while none is free, it reads no new data and completes the requests that it already has. The
limit should hardly ever be reached, because HAProxy 3.0 then lets some requests wait for seconds, even when buffers are
free again. A connection on which a request head is incomplete uses one buffer. A waiting request uses two, and so does
a request for which no rule has been evaluated yet (`BURST_BUFFERS`). The limit exceeds the number of buffers that a
single source can use in these ways (`HaproxyLimits.lone_source`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from halcyon.api.documents.balancer_plan import HAPROXY_MEMORY_MIB

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan

# HAProxy copies the whole buffer of a request that may be retried, which takes a few microseconds. Smaller buffers would make this copy
# cheaper, but large requests (an image tensor has 600 KB) much more expensive. A waiting request would also block its gRPC channel
# sooner.
BUFFER_BYTES: Final = 32768
STREAMS_PER_CHANNEL: Final = 256
"""Maximum number of concurrent requests on one gRPC channel; further requests wait in the client."""
MAX_POLLED: Final = 4
"""Maximum number of connections from which HAProxy reads before it evaluates the rules for their requests."""
BURST_BUFFERS: Final = 2 * MAX_POLLED * STREAMS_PER_CHANNEL
"""Maximum number of buffers for requests whose rules have not been evaluated yet. Each request uses one buffer for the
head and one for the body."""
MAX_REQUESTS: Final = 3072
"""Maximum number of concurrent requests in HAProxy in any state. A request that passes through HAProxy twice counts as two."""
MAX_LOWER: Final = 512
"""Maximum number of concurrent requests of batch inference, if the plan allows batch inference. It reduces the users'
maximum."""
MAX_STREAMS: Final = 1024
"""Maximum number of concurrent gRPC streams (`ModelStreamInfer`); further streams are queued."""
MAX_MOVED: Final = 256
"""Maximum number of queued requests that a back end passes on when its last server is removed. Each of them counts as
an additional connection and an additional request."""
MAX_METRICS_CONNECTIONS: Final = 100
"""Maximum number of connections to HAProxy's own Prometheus exporter."""

# All in KiB; docs/decisions/0039-room-for-other-clients.md has the measurements.
_PROCESS = 24 * 1024
_SERVER = 10
_HTTP, _GRPC = 6, 12
_TLS = 39
_REQUEST = 6
_MARGIN = 32 * 1024
"""Memory that HAProxy cannot use, in KiB: memory that the allocator has not returned, or that the kernel uses for data
that HAProxy has not read."""


@dataclass(frozen=True)
class HaproxyLimits:
    """Limits on connections and buffers of one HAProxy process."""

    http: int
    """Maximum number of connections from HTTP/1.1 clients."""
    grpc: int
    """Maximum number of connections from gRPC clients."""
    buffers: int
    """Maximum number of buffers of the HAProxy process."""

    @property
    def connections(self) -> int:
        """Maximum number of connections of the HAProxy process.

        It exceeds the sum of all front ends, so that each can reach its own limit.
        """
        # A stream uses two connections from the process to itself, a held HTTP/1.1 request one; it counts as two requests.
        return self.http + self.grpc + MAX_METRICS_CONNECTIONS + 2 * MAX_STREAMS + MAX_REQUESTS // 2 + 2 * MAX_MOVED

    @property
    def lone_source(self) -> int:
        """Maximum number of buffers that one source can use with three quarters of all connections and requests.

        In this worst case, each of its connections has an incomplete request head, each of its requests waits, and more
        requests arrive.
        """
        return (self.http + self.grpc + 2 * MAX_REQUESTS) * 3 // 4 + BURST_BUFFERS


def users_requests(plan: BalancerPlan) -> int:
    """Return the maximum number of concurrent requests of users, without those of batch inference."""
    return MAX_REQUESTS - (MAX_LOWER if plan.has_lower_class else 0)


def haproxy_limits(plan: BalancerPlan, *, tls: bool, limit_mib: int = HAPROXY_MEMORY_MIB) -> HaproxyLimits:
    """Return the limits that keep HAProxy below its memory limit.

    Args:
        plan: the balancer's plan, which determines the number of servers.
        tls: whether clients use TLS. A TLS connection takes several times the memory, so fewer than half as many are allowed.
        limit_mib: memory limit of HAProxy's container, in MiB.
    """
    http, grpc = (1800, 700) if tls else (4000, 1000)
    tls_kib = _TLS if tls else 0
    fixed = (
        2 * (_PROCESS + sum(slot.capacity for slot in plan.slots) * _SERVER)
        + http * (_HTTP + tls_kib)
        + grpc * (_GRPC + tls_kib)
        + MAX_METRICS_CONNECTIONS * _HTTP
        # Each request has a connection of its own to its server. A stream counts as two requests, and its two connections from the process
        # to itself take as much as one to a server.
        + MAX_REQUESTS * _GRPC
        + (MAX_REQUESTS + STREAMS_PER_CHANNEL) * _REQUEST
        # Both protocols of each slot.
        + 2 * len(plan.slots) * MAX_MOVED * (_GRPC + _REQUEST)
        + _MARGIN
    )
    return HaproxyLimits(http, grpc, (limit_mib * 1024 - fixed) // (BUFFER_BYTES // 1024 + _REQUEST))
