"""`spec.batching`: Triton's dynamic batching."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from halcyon.api.types import ApiModel, ListSet, Rule, duration_field


class QueuePolicy(ApiModel):
    """Policy of Triton's own queue, for all priority levels. If a policy is set, Triton can delay requests by 0.5 s."""

    timeout_action: Literal["Reject", "Delay"] | None = None
    """Action on a request that has waited in Triton's queue for longer than its timeout. `Reject`: the request fails
    with 503 or UNAVAILABLE. `Delay`: the request is executed after all others. Default: the action in the model's
    config.pbtxt, or else Reject."""
    default_timeout: duration_field("1ms", "1h") | None = None  # type: ignore[valid-type]
    """Maximum time (1ms to 1h) that a request waits in Triton's queue. Default: the timeout in the model's
    config.pbtxt, or else none."""
    allow_timeout_override: bool | None = None
    """Whether a request may set a shorter timeout for itself, in the request parameter `timeout`, in microseconds.
    Default: the setting in the model's config.pbtxt, or else false."""
    max_queue_size: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Maximum number of requests (1 to 100000) in Triton's queue. Further requests fail with 503 or UNAVAILABLE. Triton
    has no metric for these failures. Default: the size in the model's config.pbtxt, or else no limit."""


class Batching(ApiModel):
    """Triton's dynamic batching; setting this section turns it on."""

    max_batch_size: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Maximum number of rows in one batch, 1 to 65536. Default: `max_batch_size` in the model's config.pbtxt."""
    max_queue_delay: duration_field("0us", "1m") | None = None  # type: ignore[valid-type]
    """Maximum time (0us to 1m) that Triton waits for a batch to fill, for example `2ms`. With `0us`, Triton waits until
    an instance is free, and then forms a batch from all waiting requests. With any other delay, Triton forms batches
    before an instance is free, so batches are less full under load. Default: the delay in the model's config.pbtxt, or
    else none."""
    preferred_batch_sizes: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(min_length=1, max_length=16), ListSet()]
        | None
    ) = None
    """Batch sizes, in rows, that Triton executes without waiting for more requests. Set them only for models that are
    faster at certain batch sizes. None may be above maxBatchSize. Default: the sizes in the model's config.pbtxt."""
    preserve_ordering: bool | None = None
    """Whether responses are sent in the order in which the requests arrived, even if there are several instances.
    Default: the setting in the model's config.pbtxt."""
    priority_levels: Annotated[int, Field(ge=2, le=16)] | None = None
    """Number of priority levels (2 to 16) in Triton's queue. Requests of level 1 are executed first. A client sets the
    level in the request parameter `priority`. Priorities do not affect the balancer's queue, which is first in, first
    out. With priorities, Triton sometimes pauses for 0.5 s between two batches. Default: the levels in the model's
    config.pbtxt, or else none."""
    default_priority_level: Annotated[int, Field(ge=1, le=16)] | None = None
    """Priority level (1 to priorityLevels) of requests without a valid request parameter `priority`. Default:
    priorityLevels, which is the lowest priority."""
    queue_policy: QueuePolicy | None = None
    """Timeout and limit of Triton's own queue. With a queue policy, Triton sometimes pauses for 0.5 s between two
    batches. Prefer `traffic.queueLimit` and `traffic.queueTimeout`, which do not cause such pauses. Default: the policy
    in the model's config.pbtxt, or else none."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.maxBatchSize) || !has(self.preferredBatchSizes) || "
            "self.preferredBatchSizes.all(n, n <= self.maxBatchSize)",
            check=lambda m: (
                m.max_batch_size is None
                or m.preferred_batch_sizes is None
                or all(n <= m.max_batch_size for n in m.preferred_batch_sizes)
            ),
            message="spec.batching.preferredBatchSizes is {preferredBatchSizes} and has a size above "
            "spec.batching.maxBatchSize, which is {maxBatchSize}; for example maxBatchSize: 16, preferredBatchSizes: [8, 16]",
        ),
        Rule(
            cel="!has(self.defaultPriorityLevel) || has(self.priorityLevels)",
            check=lambda m: m.default_priority_level is None or m.priority_levels is not None,
            message="spec.batching.defaultPriorityLevel is {defaultPriorityLevel} but spec.batching.priorityLevels is not "
            "set; for example priorityLevels: 2, defaultPriorityLevel: 2",
        ),
        Rule(
            cel="!has(self.defaultPriorityLevel) || !has(self.priorityLevels) || "
            "self.defaultPriorityLevel <= self.priorityLevels",
            check=lambda m: (
                m.default_priority_level is None
                or m.priority_levels is None
                or m.default_priority_level <= m.priority_levels
            ),
            message="spec.batching.defaultPriorityLevel is {defaultPriorityLevel} and must not be above "
            "spec.batching.priorityLevels, which is {priorityLevels}; for example priorityLevels: 2, defaultPriorityLevel: 2",
        ),
        Rule(
            cel="!has(self.priorityLevels) || !has(self.preserveOrdering) || !self.preserveOrdering",
            check=lambda m: m.priority_levels is None or not m.preserve_ordering,
            message="spec.batching.priorityLevels is {priorityLevels} and spec.batching.preserveOrdering is true, which "
            "Triton rejects: with priorities, responses are not in the order of arrival; remove one of them",
        ),
    )
