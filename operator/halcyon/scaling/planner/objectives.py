"""Conversion of a model's spec to the limits and objectives of the planner.

Out of scope: the meaning of the fields (`reading.Objectives`), and when a schedule is open (`scaling.schedules`).
"""

from __future__ import annotations

from collections.abc import Mapping

from halcyon.api.spec import Spec, defaults
from halcyon.api.types import duration_s
from halcyon.scaling.planner.reading import Objectives, OpenWindow
from halcyon.scaling.schedules import CronSchedule, InForce

UTILIZATION = 0.8
"""Share of a replica's peak rate to plan with if no latency objective is set."""
DRAIN_S = 10.0
"""Time within which a backlog should be drained: about as long as clients wait before they give up or retry."""
START_S = 60.0
"""Start time of a pod until one was measured."""


class NoScalingError(ValueError):
    """The spec has no `scaling`: only the user sets its replicas."""


def objectives(
    spec: Spec,
    *,
    low: int | None = None,
    latency_s: float | None = None,
    utilization: float = UTILIZATION,
    idle_after_s: float | None = None,
    drain_s: float = DRAIN_S,
    start_s: float = START_S,
    largest_seen: int | None = None,
    windows: tuple[OpenWindow, ...] = (),
    batch_prior: Mapping[int, float] | None = None,
) -> Objectives:
    """Return the limits and objectives in force.

    A target that the user left out is not replaced by a default: the rate decides, by latency or by utilisation. This includes
    GPU utilisation, whose default in the policy Rules would ask for replicas by itself, because batches of one keep a GPU busy
    at a fraction of its capacity. It can still veto a scale-down.

    Args:
        spec: with `scaling`.
        low: minimum replicas, instead of minReplicas.
        latency_s: from arrival to response, instead of targets.latency.
        utilization: share of a replica's peak rate to plan with if there is no latency objective; 0 to 1.
        idle_after_s: if `low` is 0, seconds without a request before the model scales to zero; instead of idleTimeout.
        drain_s: time in which a backlog is to be drained.
        start_s: start time of a pod until one was measured.
        largest_seen: rows of the largest batch that pods have run (`largest`). Used if the spec doesn't limit the batch size. A
            value below the model's own limit asks for more replicas than needed, until load fills the batches. A value above it
            would ask for too few.
        windows: schedules that are open now (`windows`).
        batch_prior: seconds by batch size, from the warm-up.

    Raises:
        NoScalingError: the spec has no `scaling`.
    """
    scaling = spec.scaling
    if scaling is None:
        raise NoScalingError(
            "spec.scaling is missing, so spec.replicas is used and nothing is planned; "
            "for example scaling: {minReplicas: 1, maxReplicas: 8}"
        )
    given = spec.batching.max_batch_size if spec.batching else None
    latency = scaling.targets.latency
    return Objectives(
        low=scaling.min_replicas if low is None else low,
        high=scaling.max_replicas,
        max_batch=given or largest_seen or 1,
        instances=(spec.runtime.instances_per_gpu or 1) * max(spec.runtime.gpus, 1),
        latency_s=latency_s if latency_s is not None or latency is None else duration_s(latency),
        utilization=utilization,
        queue_depth=scaling.targets.queue_depth,
        gpu_utilization=scaling.targets.gpu_utilization,
        drain_s=drain_s,
        queue_limit=spec.traffic.queue_limit * spec.traffic.balancer_replicas,
        idle_after_s=defaults.idle_after_s(spec) if idle_after_s is None else idle_after_s,
        start_s=start_s,
        windows=windows,
        batch_prior=batch_prior,
    )


def schedules(spec: Spec) -> tuple[CronSchedule, ...]:
    """Return the spec's schedules, in the form of `scaling.schedules`."""
    return tuple(
        CronSchedule(s.name, s.start, duration_s(s.duration), s.time_zone, low=s.min_replicas, high=s.max_replicas)
        for s in (spec.scaling.schedules if spec.scaling else None) or ()
    )


def windows(in_force: InForce) -> tuple[OpenWindow, ...]:
    """Return the open schedules, in the planner's form; valid until `in_force.valid_until`."""
    return tuple(OpenWindow(opening.name, opening.low, opening.high) for opening in in_force.open)


def largest(batches: Mapping[int, tuple[int, float]] | None) -> int | None:
    """Return the rows of the largest batch in a reading; None if none has run."""
    return max((rows for rows, (count, _) in (batches or {}).items() if count > 0), default=None)
