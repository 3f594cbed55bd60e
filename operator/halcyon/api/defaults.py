"""Defaults that depend on other fields or on the site: resolved at reconcile time and shown in the status.

Defaults that depend on nothing stand beside their field in `spec`.
"""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.spec import Spec

FALLBACK_BATCH = 8
"""Requests per instance that count as one batch where neither the spec nor anything else says how large a batch is."""


@dataclass(frozen=True)
class ResolvedTargets:
    """The targets in force."""

    queue_depth: int
    """Waiting requests per replica."""
    gpu_utilization: int | None
    """Percent; None where pods have no GPU."""


def batch_capacity(spec: Spec) -> int:
    """Requests that one replica computes at once: maxBatchSize x instances, of every GPU."""
    batch = (spec.batching.max_batch_size if spec.batching else None) or FALLBACK_BATCH
    return batch * (spec.runtime.instances_per_gpu or 1) * max(spec.runtime.gpu.count, 1)


def targets(spec: Spec) -> ResolvedTargets:
    """The targets of a spec that has `scaling`, with their defaults.

    Queue depth alone falls to nothing below saturation, so GPU utilisation is a target wherever there is a GPU.
    """
    given = spec.scaling.targets if spec.scaling else None
    has_gpu = spec.runtime.gpu.count > 0
    return ResolvedTargets(
        queue_depth=(given.queue_depth if given else None) or batch_capacity(spec),
        gpu_utilization=((given.gpu_utilization if given else None) or 80) if has_gpu else None,
    )


def server_connections(spec: Spec) -> int:
    """Most requests in flight from one balancer process to one server.

    Three batches in all keep Triton's batcher fed (measured: two starve it a little, one halves it); each process needs
    two, since it doesn't know what the others send.
    """
    capacity = batch_capacity(spec)
    return max(2 * capacity, -(-3 * capacity // spec.traffic.balancer_replicas))


def wanted_replicas(spec: Spec) -> int:
    """The count in force: spec.replicas, inside the limits of scaling where there is one."""
    if spec.scaling is None:
        return spec.replicas
    return min(max(spec.replicas, spec.scaling.min_replicas), spec.scaling.max_replicas)


def most_replicas(spec: Spec) -> int:
    """The highest count that the spec allows without being changed."""
    return max(spec.replicas, spec.scaling.max_replicas if spec.scaling else 0, 1)
