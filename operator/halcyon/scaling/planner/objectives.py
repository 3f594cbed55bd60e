"""Conversion of a model's spec to the planner's limits and objectives.

Out of scope: the meaning of the fields (`reading.Objectives`), and when a schedule is open (`scaling.schedules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from halcyon.api.spec import Spec, defaults
from halcyon.api.types import duration_s
from halcyon.scaling.planner.reading import Objectives, OpenWindow
from halcyon.scaling.schedules import CronSchedule, InForce

UTILIZATION = 0.8
"""Share of a replica's peak rate that the planner uses if no latency objective is set."""
DRAIN_S = 10.0
"""Seconds within which a backlog should be cleared. Clients wait for about as long before they give up or retry."""
START_S = 60.0
"""Start time of a pod in seconds, used until one has been measured."""


class Serving(NamedTuple):
    """Batch size and instances of the serving pods. During a rollout and after a rollback, the spec may differ."""

    max_batch: int | None
    """Rows in the largest batch; None if the spec doesn't set it."""
    instances: int
    """Number of instances in one pod."""

    @classmethod
    def of(cls, spec: Spec) -> Serving:
        """Return the batch size and the instances of pods with this spec."""
        max_batch = spec.batching.max_batch_size if spec.batching else None
        return cls(max_batch, spec.runtime.instances)


class NoScalingError(ValueError):
    """Error raised if the spec has no field `scaling`, so that only the user sets the replicas."""


def objectives(
    spec: Spec,
    *,
    low: int | None = None,
    latency_s: float | None = None,
    idle_after_s: float | None = None,
    start_s: float = START_S,
    serving: Serving | None = None,
    largest_seen: int | None = None,
    windows: tuple[OpenWindow, ...] = (),
    batch_prior: Mapping[int, float] | None = None,
    measured_batches: Mapping[int, float] | None = None,
    measured_answers: tuple[float, float] | None = None,
) -> Objectives:
    """Return the limits and objectives that apply to a model.

    A target that the user leaves out has no default, and the replicas follow from the arrival rate, with the latency
    objective or the utilisation target. This also applies to GPU utilisation, which has a default in the Rules policy.
    Batches of one request can keep a GPU busy at a fraction of its capacity, so such a default would require too many
    replicas. GPU utilisation can still prevent a scale-down.

    Args:
        spec: must have `scaling`.
        low: minimum replicas, instead of minReplicas.
        latency_s: maximum seconds from arrival to response, instead of targets.latency.
        idle_after_s: if `low` is 0, seconds without a request before the model scales to zero; instead of idleTimeout.
        start_s: start time of a pod in seconds, used until one has been measured.
        serving: batch size and instances of the serving pods, instead of the spec's.
        largest_seen: rows in the largest batch that pods have executed (`largest`), used if the spec doesn't limit the
            batch size. While it is below the model's own limit, more replicas than needed are planned, until load fills
            the batches. A value above this limit would plan too few replicas.
        windows: schedules whose time window is open now (see `windows`).
        batch_prior: seconds that a batch takes, by its number of rows, from the warm-up.
        measured_batches: seconds that a batch takes, by its number of rows, as `halcyon bench` measured it.
        measured_answers: (requests that a pod executes at once, seconds that each takes), as `halcyon bench` measured
            it.

    Raises:
        NoScalingError: the spec has no `scaling`.
    """
    scaling = spec.scaling
    if scaling is None:
        raise NoScalingError(
            "spec.scaling is missing, so spec.replicas is used and nothing is planned; "
            "for example scaling: {minReplicas: 1, maxReplicas: 8}"
        )
    max_batch, instances = serving or Serving.of(spec)
    latency = scaling.targets.latency
    limit = defaults.queue_limit(spec)
    return Objectives(
        low=scaling.min_replicas if low is None else low,
        high=scaling.max_replicas,
        max_batch=max_batch or largest_seen or 1,
        instances=instances,
        latency_s=latency_s if latency_s is not None or latency is None else duration_s(latency),
        utilization=UTILIZATION,
        concurrency=scaling.targets.concurrency,
        metric=scaling.targets.metric.value if scaling.targets.metric else None,
        queue_depth=scaling.targets.queue_depth,
        gpu_utilization=scaling.targets.gpu_utilization,
        drain_s=DRAIN_S,
        queue_limit=limit and limit * spec.traffic.balancer_replicas,
        idle_after_s=defaults.idle_after_s(spec) if idle_after_s is None else idle_after_s,
        start_s=start_s,
        startup_timeout_s=duration_s(spec.runtime.startup_timeout),
        windows=windows,
        batch_prior=batch_prior,
        measured_batches=measured_batches,
        measured_answers=measured_answers,
    )


def schedules(spec: Spec) -> tuple[CronSchedule, ...]:
    """Return the schedules in the spec, in the form that `scaling.schedules` uses."""
    return tuple(
        CronSchedule(s.name, s.start, duration_s(s.duration), s.time_zone, low=s.min_replicas, high=s.max_replicas)
        for s in (spec.scaling.schedules if spec.scaling else None) or ()
    )


def windows(in_force: InForce) -> tuple[OpenWindow, ...]:
    """Return the schedules whose time window is open now, in the form that the planner uses.

    The result is valid until `in_force.valid_until`.
    """
    return tuple(OpenWindow(opening.name, opening.low, opening.high) for opening in in_force.open)


def largest(batches: Mapping[int, tuple[int, float]] | None) -> int | None:
    """Return the number of rows in the largest batch that was executed; None if no batch was executed."""
    return max((rows for rows, (count, _) in (batches or {}).items() if count > 0), default=None)
