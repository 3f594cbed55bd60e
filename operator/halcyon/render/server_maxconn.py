"""Maximum number of requests in flight from one balancer process to one server (HAProxy's `maxconn` of a server).

Further requests wait in the balancer's queue. For models that Triton does not batch, `spec.traffic.maxConcurrency`, or
a limit that the agents determine, replaces this number.
"""

from __future__ import annotations

from halcyon.api.spec import Spec
from halcyon.api.spec.defaults import batch_capacity


def server_connections(spec: Spec) -> int:
    """Return the maximum number of requests in flight from one balancer process to one server.

    Three batches in total keep Triton's batcher supplied (measured: two starve it a little, one halves its throughput).
    Each process must send two batches, because it has no information about the requests of the other processes.
    """
    capacity = batch_capacity(spec)
    return max(2 * capacity, -(-3 * capacity // spec.traffic.balancer_replicas))


def finds_concurrency(spec: Spec) -> bool:
    """Return whether the agents determine how many requests a server may have in progress.

    If the model's own configuration enables batching, the agents don't determine it.
    """
    batching = spec.batching
    if batching is not None and (batching.priority_levels or batching.queue_policy is not None):
        return False  # The order and the length of the queue are those of Triton, so requests have to wait there.
    batch = spec.batching.max_batch_size if spec.batching else None
    return spec.traffic.max_concurrency is None and (batch is None or batch < 2)
