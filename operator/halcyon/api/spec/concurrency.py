"""Rules on `spec.traffic.maxConcurrency` and `spec.scaling.targets.concurrency`, with the fields that they depend on."""

from __future__ import annotations

from typing import Any, Final

from halcyon.api.types import Rule


def _batch(spec: Any) -> int:  # a Spec; that module imports this one
    return (spec.batching.max_batch_size if spec.batching else None) or 1


def _most_accepted(spec: Any) -> int | None:
    """Return the most requests that a pod accepts; None unless the spec limits both Triton's queue and its batches."""
    policy = spec.batching.queue_policy if spec.batching else None
    if policy is None or policy.max_queue_size is None or spec.batching.max_batch_size is None:
        return None
    return int(policy.max_queue_size + _batch(spec) * spec.runtime.instances)


RULES: Final = (
    Rule(
        cel="self.traffic.mode == 'Balancer' || !has(self.scaling) || !has(self.scaling.targets.concurrency)",
        check=lambda m: m.traffic.mode == "Balancer" or m.scaling is None or m.scaling.targets.concurrency is None,
        message="spec.scaling.targets.concurrency is {scaling.targets.concurrency} but spec.traffic.mode is {traffic.mode}: only "
        "balancers count the requests in progress; set mode: Balancer, or another target, for example gpuUtilization: 80",
    ),
    Rule(
        cel="!has(self.traffic.maxConcurrency) || !has(self.batching) || !has(self.batching.maxBatchSize) || "
        "self.traffic.maxConcurrency >= self.batching.maxBatchSize",
        check=lambda m: m.traffic.max_concurrency is None or m.traffic.max_concurrency >= _batch(m),
        message="spec.traffic.maxConcurrency is {traffic.maxConcurrency} and must be at least spec.batching.maxBatchSize, which is "
        "{batching.maxBatchSize}, or no batch fills; for example maxConcurrency: 64, maxBatchSize: 32",
    ),
    Rule(
        cel="!has(self.traffic.maxConcurrency) || !has(self.batching) || !has(self.batching.queuePolicy) || "
        "!has(self.batching.queuePolicy.maxQueueSize) || !has(self.batching.maxBatchSize) || "
        "self.traffic.maxConcurrency <= self.batching.queuePolicy.maxQueueSize + self.batching.maxBatchSize * "
        "(has(self.runtime.instancesPerGPU) ? self.runtime.instancesPerGPU : 1) * "
        "(has(self.runtime.gpu) && self.runtime.gpu.count > 1 ? self.runtime.gpu.count : 1)",
        check=lambda m: (
            m.traffic.max_concurrency is None
            or (most := _most_accepted(m)) is None
            or m.traffic.max_concurrency <= most
        ),
        message="spec.traffic.maxConcurrency is {traffic.maxConcurrency}, but a pod accepts only "
        "spec.batching.queuePolicy.maxQueueSize, which is {batching.queuePolicy.maxQueueSize}, and one batch in each instance; "
        "Triton rejects the others; for example maxConcurrency: 64, maxQueueSize: 100",
    ),
)
"""Rules that involve several parts of the spec."""
