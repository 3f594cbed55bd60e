"""Maximum number of requests in flight from one balancer process to one server: `maxconn` in HAProxy.

Further requests wait in the balancer's queue. For models that Triton does not batch, `spec.traffic.maxConcurrency` or a
limit determined by the agents replaces this number.
"""

from __future__ import annotations

from halcyon.api.spec import Spec
from halcyon.api.spec.defaults import batch_capacity


def server_connections(spec: Spec) -> int:
    """Return the maximum number of requests in flight from one balancer process to one server.

    Three batches over all balancers keep Triton's batcher busy (measured: with two it sometimes idles, one halves its
    throughput). Each process may send at least two, because it doesn't know the requests of the other processes.
    """
    capacity = batch_capacity(spec)
    return max(2 * capacity, -(-3 * capacity // spec.traffic.balancer_replicas))


def finds_concurrency(spec: Spec) -> bool:
    """Return whether the agents determine how many requests a server may have in progress.

    They don't for a spec that sets `maxConcurrency`, batching, or the order or length of Triton's queue.
    """
    batching = spec.batching
    if batching is not None and (batching.priority_levels or batching.queue_policy is not None):
        return False  # The order and the length of the queue are those of Triton, so requests have to wait there.
    batch = spec.batching.max_batch_size if spec.batching else None
    return spec.traffic.max_concurrency is None and (batch is None or batch < 2)
