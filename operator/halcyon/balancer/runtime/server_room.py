"""Order of the commands that make HAProxy send waiting requests to servers with free capacity. Pure.

When a server becomes ready or its limits are set, HAProxy sends it at most `MAX_POLLED` waiting requests. Further
requests would wait until the server responds. The agent therefore sets the limits again as often as needed, even to the
same values.

Each of these commands goes to the server with the fewest requests in progress. If servers were filled one after the
other, one new pod would compute full batches while another stays idle.
"""

# a waiting request                                    | waits in
# goes to any server                                   | the queue of the back end
# goes to the server that its sticky header selects    | the queue of this server

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from halcyon.balancer.config.error_responses import PROTOCOLS
from halcyon.balancer.config.memory_budget import MAX_POLLED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halcyon.balancer.config.model import ServerKey
    from halcyon.balancer.runtime.haproxy_stats import BackendLoads


def fill_order(loads: BackendLoads, limits: Mapping[ServerKey, tuple[int, int]]) -> list[ServerKey]:
    """Return the servers whose limits must be set again, in order, so that waiting requests use their free capacity.

    A server is listed once for every `MAX_POLLED` requests that it can still take. The list is empty if no requests
    wait.

    Args:
        loads: HAProxy's current loads.
        limits: limits of the servers that take requests, for HTTP and gRPC.
    """
    if not any(map(any, loads.waiting.values())):
        return []
    anywhere = {slot: list(pair) for slot, pair in loads.waiting.items()}
    by_server = {key: list(loads.queued.get(key, (0, 0))) for key in loads.servers}
    for key, queued in by_server.items():
        for protocol, count in enumerate(queued):
            anywhere[key.slot][protocol] -= count
    # HAProxy sends nothing to a server that is down. If its limits were set, no other server would get the waiting requests.
    inflight = {
        key: list(loads.servers[key].inflight) for key in limits if key in loads.servers and key not in loads.down
    }
    servers = [(sum(used), key) for key, used in inflight.items()]
    heapq.heapify(servers)
    order: list[ServerKey] = []
    while servers:
        _, key = heapq.heappop(servers)
        sent = 0
        for protocol in range(len(PROTOCOLS)):
            room = min(MAX_POLLED, limits[key][protocol] - inflight[key][protocol])
            from_own = max(min(room, by_server[key][protocol]), 0)
            from_any = max(min(room - from_own, anywhere[key.slot][protocol]), 0)
            by_server[key][protocol] -= from_own
            anywhere[key.slot][protocol] -= from_any
            inflight[key][protocol] += from_own + from_any
            sent += from_own + from_any
        # A server that gets nothing now gets nothing later, because no requests are added to the queues.
        if sent:
            order.append(key)
            heapq.heappush(servers, (sum(inflight[key]), key))
    return order
