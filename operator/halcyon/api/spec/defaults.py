"""Defaults that depend on other fields or on the site. They are resolved at reconcile time and shown in the status.

Defaults that depend on nothing are declared with their field in `spec`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from halcyon.api.spec import Spec, routing_mode
from halcyon.api.spec.scaling import Scaling
from halcyon.api.types import duration_s, duration_us

FALLBACK_BATCH = 8
"""Batch size that is assumed if the spec sets no maxBatchSize, in requests per instance."""
QUEUE_LIMIT = 200
"""Number of requests that may wait in one balancer pod if the spec sets no limit. It does not apply if requests are
rejected because of their latency."""
QUEUE_TIMEOUT_MS = 60_000
"""Maximum time that a request waits for a server, in milliseconds, if the spec sets none."""
MAX_QUEUE_TIMEOUT_MS = 3_600_000
"""Maximum time that a request may wait for a server, in milliseconds: the largest value of spec.traffic.queueTimeout."""
START_MARGIN = 1.5
"""Factor between the last measured start time of a pod and the time that a request waits for a pod to start."""
IDLE_AFTER_S = 300.0
"""Time without a request after which a model with minReplicas 0 scales to zero, in seconds, if the spec sets none."""


@dataclass(frozen=True)
class ResolvedTargets:
    """Scaling targets per replica after defaults are applied."""

    queue_depth: int
    """Target number of queued requests per replica."""
    gpu_utilization: int | None
    """Target GPU utilisation of a replica, in percent; None if pods have no GPU."""
    concurrency: int | None = None
    """Target number of requests in progress or waiting per replica; None if the user set no such target."""
    metric: int | None = None
    """Target per replica for the result of the site's Prometheus query; None if the user set no such target."""


def batch_capacity(spec: Spec) -> int:
    """Return the number of requests that one replica executes at once: maxBatchSize x instances per GPU x GPUs."""
    batch = (spec.batching.max_batch_size if spec.batching else None) or FALLBACK_BATCH
    return batch * spec.runtime.instances


def targets(spec: Spec) -> ResolvedTargets:
    """Return the scaling targets, with their defaults, of a spec that has `scaling`."""
    # With a GPU, its utilisation is always a target, because the queue depth falls to nothing below saturation.
    requested = spec.scaling.targets if spec.scaling else None
    has_gpu = spec.runtime.gpus > 0
    return ResolvedTargets(
        queue_depth=(requested.queue_depth if requested else None) or batch_capacity(spec),
        gpu_utilization=((requested.gpu_utilization if requested else None) or 80) if has_gpu else None,
        concurrency=requested.concurrency if requested else None,
        metric=requested.metric.value if requested and requested.metric else None,
    )


def policy(spec: Spec) -> Literal["Planner", "Rules"]:
    """Return the policy that determines the number of replicas, for a spec that has `scaling`."""
    return (spec.scaling.policy if spec.scaling else None) or "Planner"


def objective_s(spec: Spec) -> float | None:
    """Return the latency objective that applies, in seconds.

    Return None if the spec has no objective, or if its policy is Rules, which ignores the objective.
    """
    latency = spec.scaling.targets.latency if spec.scaling and policy(spec) == "Planner" else None
    return None if latency is None else duration_s(latency)


def overload_mode(spec: Spec) -> Literal["Reject", "Wait"]:
    """Return the action on a request that would wait too long. It is Wait if there is no latency objective."""
    if objective_s(spec) is None:
        return "Wait"
    if spec.traffic.overload is not None:
        return spec.traffic.overload.mode
    return "Reject" if spec.traffic.queue_limit is None else "Wait"


def queue_limit(spec: Spec) -> int | None:
    """Return the number of requests that may wait in one balancer pod; None if only the latency objective limits it."""
    return spec.traffic.queue_limit or (None if overload_mode(spec) == "Reject" else QUEUE_LIMIT)


def idle_after_s(spec: Spec) -> float | None:
    """Return the time without a request after which a model scales to zero, in seconds; None if it never does."""
    if spec.scaling is None or spec.scaling.min_replicas > 0:
        return None
    return duration_s(spec.scaling.idle_timeout) if spec.scaling.idle_timeout else IDLE_AFTER_S


def queue_timeout_ms(spec: Spec) -> int:
    """Return the maximum time that a request waits in a balancer while servers are ready, in milliseconds."""
    timeout = spec.traffic.queue_timeout
    return QUEUE_TIMEOUT_MS if timeout is None else max(duration_us(timeout) // 1000, 1)


def hold_timeout_ms(spec: Spec, start_s: float | None) -> int:
    """Return the maximum time that a request waits at zero replicas, in milliseconds.

    `start_s` is the last measured start time of a pod, in seconds; None if there was none. If the spec sets no queue
    timeout, the result is 1, 2, 4, 8 and so on minutes, so that a slightly different start time changes no plan.
    """
    timeout_ms = queue_timeout_ms(spec)
    if spec.traffic.queue_timeout is not None or idle_after_s(spec) is None or start_s is None:
        return timeout_ms
    needed_ms = start_s * START_MARGIN * 1000
    while timeout_ms < needed_ms and timeout_ms < MAX_QUEUE_TIMEOUT_MS:
        timeout_ms *= 2
    return min(timeout_ms, MAX_QUEUE_TIMEOUT_MS)


def longest_wait_ms(spec: Spec) -> int:
    """Return the maximum time that a request waits in a balancer, in milliseconds.

    This is the time at zero replicas if a pod needs the longest start that the spec allows.
    """
    return hold_timeout_ms(spec, duration_s(spec.runtime.startup_timeout))


def late_starts(spec: Spec, start_s: float | None) -> tuple[str, ...]:
    """Return a sentence if requests that arrive at zero replicas would be rejected before a pod is ready.

    `start_s` is the last measured start time of a pod, in seconds; None if there was none.
    """
    timeout = spec.traffic.queue_timeout
    if timeout is None or start_s is None or idle_after_s(spec) is None or duration_s(timeout) >= start_s:
        return ()
    good_s = min(start_s * START_MARGIN, MAX_QUEUE_TIMEOUT_MS / 1000)
    text = (
        f"spec.traffic.queueTimeout is {timeout} but the last start of a pod took {start_s:.0f} s: a request that arrives at zero "
        f"replicas is rejected before a pod is ready; remove queueTimeout, or set a longer one, for example {good_s:.0f}s"
    )
    return (text,)


def ignored(spec: Spec) -> tuple[str, ...]:
    """Return a sentence for each field that is set and has no effect."""
    scaling = spec.scaling
    sentences = [*routing_mode.ignored(spec.traffic), *_ignored_overload(spec)]
    server, canary = spec.runtime.server, spec.rollout.canary
    if server is not None and server.pinned_memory_pool is not None and not spec.runtime.gpus:
        sentences.append("spec.runtime.server.pinnedMemoryPool: ignored without a GPU; set spec.runtime.gpu to use it")
    if canary is not None and canary.analysis.mode == "Disabled":
        path = "spec.rollout.canary.analysis"
        sentences += routing_mode.without_effect(canary.analysis, path, {"mode"}, needed="Enabled")
    if canary is not None and spec.rollout.strategy != "Canary":
        sentences.append(
            f"spec.rollout.canary: ignored with strategy {spec.rollout.strategy}; set strategy: Canary to use it"
        )
    if spec.rollout.on_failure == "Stay" and spec.rollout.strategy == "Canary":
        sentences.append(
            "spec.rollout.onFailure: ignored with strategy Canary, which always rolls a failed canary "
            "back; set onFailure: Rollback"
        )
    if scaling is None:
        return tuple(sentences)
    if policy(spec) == "Planner":
        if scaling.behavior is not None:
            sentences.append(
                "spec.scaling.behavior: ignored with policy Planner, which has its own limits on the pace; set policy: Rules to use it"
            )
        return (*sentences, *_ignored_limits(scaling))
    if scaling.targets.latency is not None:
        sentences.append("spec.scaling.targets.latency: ignored with policy Rules; set policy: Planner to use it")
    if scaling.schedules:
        sentences.append("spec.scaling.schedules: ignored with policy Rules; set policy: Planner to use it")
    return tuple(sentences)


def _ignored_limits(scaling: Scaling) -> Iterator[str]:
    """Yield a sentence for each limit of a schedule that the limits of `scaling` override, completely or in part."""
    least, most = scaling.min_replicas, scaling.max_replicas
    for schedule in scaling.schedules or ():
        name, low, high = schedule.name, schedule.min_replicas, schedule.max_replicas
        if low is not None and low < least:
            yield (
                f"spec.scaling.schedules: minReplicas {low} of schedule {name} is ignored, because spec.scaling.minReplicas is {least}; "
                f"set spec.scaling.minReplicas: {low} to allow fewer replicas"
            )
        for field, limit in (("minReplicas", low), ("maxReplicas", high)):
            if limit is not None and limit > most:
                yield (
                    f"spec.scaling.schedules: {field} {limit} of schedule {name} is ignored above spec.scaling.maxReplicas, which is "
                    f"{most}; set spec.scaling.maxReplicas: {limit} to allow more replicas"
                )


def _ignored_overload(spec: Spec) -> Iterator[str]:
    overload = spec.traffic.overload
    if routing_mode.is_direct(spec):
        return
    if overload is not None and overload.mode == "Reject" and objective_s(spec) is None:
        yield (
            "spec.traffic.overload.mode: Reject needs a latency objective and the Planner policy; set "
            "spec.scaling.targets.latency, for example 500ms, or mode: Wait"
        )
    if spec.traffic.source_share < 100 and queue_limit(spec) is None:
        yield (
            "spec.traffic.sourceShare: ignored, because the latency objective replaces queueLimit; set queueLimit, for "
            "example 200, and overload.mode: Reject to use both"
        )


def mismatched(spec: Spec) -> tuple[str, ...]:
    """Return a sentence for each timeout or latency target that is not longer than the queue delay of batches."""
    delay = spec.batching.max_queue_delay if spec.batching else None
    if delay is None:
        return ()
    limits = {
        "spec.traffic.responseTimeout": spec.traffic.response_timeout if spec.traffic.mode != "Direct" else None,
        "spec.scaling.targets.latency": spec.scaling.targets.latency if spec.scaling else None,
    }
    return tuple(
        f"spec.batching.maxQueueDelay is {delay} but {field} is {limit}: a request may wait the whole delay for its batch to "
        f"fill before it is computed; set a delay well below {limit}, for example maxQueueDelay: 1ms"
        for field, limit in limits.items()
        if limit is not None and duration_us(delay) >= duration_us(limit)
    )


def bounded_replicas(spec: Spec) -> int:
    """Return the current number of replicas: spec.replicas, within the limits of `scaling` if it is set."""
    if spec.scaling is None:
        return spec.replicas
    return min(max(spec.replicas, least_replicas(spec, spec.scaling)), spec.scaling.max_replicas)


def least_replicas(spec: Spec, scaling: Scaling) -> int:
    """Return the minimum replicas at any time: minReplicas, or the maxReplicas of a schedule if it is lower."""
    schedules = (scaling.schedules or ()) if policy(spec) == "Planner" else ()
    return min([scaling.min_replicas, *(s.max_replicas for s in schedules if s.max_replicas is not None)])


def most_replicas(spec: Spec) -> int:
    """Return the maximum number of replicas that the spec allows."""
    return max(spec.replicas, spec.scaling.max_replicas if spec.scaling else 0, 1)
