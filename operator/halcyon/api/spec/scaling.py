"""`spec.scaling`: the targets per replica, the policy, the actuator, and schedules with their own replica limits."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from halcyon.api.types import ApiModel, ListMap, Rule, duration_field


class ScalingPolicy(ApiModel):
    """One limit on the speed of scaling, as in a HorizontalPodAutoscaler (HPA)."""

    type: Literal["Pods", "Percent"]
    """Unit of `value`: pods, or a percentage of the current replicas."""
    value: Annotated[int, Field(ge=1, le=100000)]
    """Maximum change in the number of replicas within the period, in the unit given by `type`."""
    period_seconds: Annotated[int, Field(ge=1, le=1800)]
    """Length of the period, in seconds, 1 to 1800."""


class ScalingRules(ApiModel):
    """Limits on scaling in one direction, as in the HPA."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    """Length of the stabilization window, in seconds, 0 to 3600. The most cautious recommendation in the window
    applies: the lowest for scaling up, the highest for scaling down. Default, as in the HPA: 0 for scaling up, 300 for
    scaling down."""
    select_policy: Literal["Max", "Min", "Disabled"] | None = None
    """Choice between several policies. `Max`: the policy that allows the largest change applies. `Min`: the policy that
    allows the smallest change applies. `Disabled`: no scaling in this direction. Default: Max."""
    policies: Annotated[tuple[ScalingPolicy, ...], Field(min_length=1, max_length=8)] | None = None
    """Limits on the change in the number of replicas within a period. Default, as in the HPA: 4 pods or 100 % in 15 s
    for scaling up, 100 % in 15 s for scaling down."""


class Behavior(ApiModel):
    """Speed of scaling up and down, with the same schema and defaults as the HPA's `behavior`."""

    scale_up: ScalingRules | None = None
    """Limits on the speed of scaling up. Default: the defaults of the HPA."""
    scale_down: ScalingRules | None = None
    """Limits on the speed of scaling down. Default: the defaults of the HPA."""


class MetricTarget(ApiModel):
    """A Prometheus query that the site defines, and the target value per replica for its result."""

    query: Annotated[
        str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", min_length=1, max_length=63)
    ]
    """Name of a query from the chart value `prometheus.queries`, for example `cpu-utilization`, which the chart defines
    by default. The result of the query is the total across all replicas of the model."""
    value: Annotated[int, Field(ge=1, le=1000000000)]
    """Target value per replica (1 to 1000000000) for the query's result. For example, with a result of 35 and a target
    of 10, the model has at least 4 replicas."""


class Targets(ApiModel):
    """Targets per replica. The target that requires the most replicas applies."""

    latency: duration_field("1ms", "1h") | None = None  # type: ignore[valid-type]
    """Maximum time (1ms to 1h) from arrival to response for 99 of 100 requests, for example `500ms`. Only for the
    policy Planner. Default: none; Planner then uses 80 % of the capacity of each replica."""
    queue_depth: Annotated[int, Field(ge=1, le=1000000)] | None = None
    """Target number of queued requests per replica (1 to 1000000), in the balancers and in Triton together. Default
    with the Rules policy: one full batch for each instance, that is, maxBatchSize (8 if unset) x instances per GPU x
    GPUs. Default with Planner: no target."""
    concurrency: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Target number of requests per replica (1 to 100000) that are in progress or waiting, in the balancers and in
    Triton together. If `latency` is set too, the target that requires more replicas applies. Default: no target."""
    metric: MetricTarget | None = None
    """A Prometheus query that the site defines, and the target value per replica for its result. While the result is
    missing, the model does not scale down. Default: no target."""
    gpu_utilization: Annotated[int, Field(ge=1, le=100)] | None = None
    """Target GPU utilisation of a replica, in percent (1 to 100). Default with the Rules policy: 80 if pods have a GPU.
    Default with Planner: no target, but unexpectedly busy GPUs prevent scaling down."""


class Schedule(ApiModel):
    """A recurring time window with its own replica limits.

    It opens on a cron schedule, and stays open for its duration.
    """

    name: Annotated[
        str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", min_length=1, max_length=63)
    ]
    """Name of the schedule in the status and in events."""
    start: Annotated[str, Field(min_length=9, max_length=200)]
    """Times at which the window opens, as a cron expression: minute, hour, day of month, month and day of week. For
    example, `0 8 * * 1-5` is 08:00 from Monday to Friday."""
    duration: duration_field("1m", "168h")  # type: ignore[valid-type]
    """Time (1m to 168h) that the window stays open, regardless of daylight saving time changes."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    """Time zone of `start`, for example `Europe/Berlin`. Default: UTC."""
    min_replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Minimum replicas while the window is open. The higher of this value and scaling.minReplicas applies. Default:
    scaling.minReplicas alone applies."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Maximum replicas while the window is open. The lower of this value and scaling.maxReplicas applies. It takes
    precedence over a higher minReplicas of `scaling` or of another schedule. Default: scaling.maxReplicas alone
    applies."""

    rules: ClassVar = (
        Rule(
            cel="has(self.minReplicas) || has(self.maxReplicas)",
            check=lambda m: m.min_replicas is not None or m.max_replicas is not None,
            message=(
                "schedule {name} in spec.scaling.schedules has no effect; set minReplicas, maxReplicas or "
                "both, for example minReplicas: 4"
            ),
        ),
        Rule(
            cel="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            check=lambda m: m.min_replicas is None or m.max_replicas is None or m.min_replicas <= m.max_replicas,
            message="schedule {name} in spec.scaling.schedules has minReplicas {minReplicas} above its maxReplicas {maxReplicas}; for "
            "example minReplicas: 2, maxReplicas: 8",
        ),
    )


class Scaling(ApiModel):
    """Automatic scaling of the replicas with the load."""

    min_replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Minimum replicas, 0 to 1000. With 0, the model scales to zero after idleTimeout without a request, which requires
    the Planner policy and traffic.mode Balancer. Default: 1."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Maximum replicas, 1 to 1000."""
    policy: Literal["Planner", "Rules"] | None = None
    """Algorithm that determines the number of replicas. `Planner`: from the arrival rate, the backlog and the measured
    throughput of a replica. `Rules`: from queue depth and GPU utilisation compared with their targets, as in an HPA.
    Default: Planner."""
    actuator: Literal["Auto", "HPA", "Direct"] | None = None
    """Component that writes spec.replicas. `HPA`: a HorizontalPodAutoscaler. `Direct`: the operator itself. `Auto`: HPA
    if Halcyon serves the cluster's external metrics, else Direct. For the Planner policy, `Auto` uses the HPA only if
    the cluster supports HPAs with a tolerance of 0. Default: Auto."""
    mode: Literal["Active", "Recommend", "Paused"] = "Active"
    """Use of scaling decisions. `Active`: Halcyon applies them to spec.replicas. `Recommend`: Halcyon only reports
    them. `Paused`: Halcyon leaves the replicas unchanged until the mode is changed. With `Recommend` and `Paused`, you
    set spec.replicas yourself. Default: Active."""
    targets: Targets = Targets.defaults()
    """Targets per replica. The target that requires the most replicas applies."""
    idle_timeout: duration_field("10s", "168h") | None = None  # type: ignore[valid-type]
    """Time (10s to 168h) without a request after which the model scales to zero. Only if minReplicas is 0. After a
    scale-up from zero, this time begins when a pod is ready. If repeated starts cost more GPU time than scaling to zero
    saves, Halcyon waits longer, up to 30m. Default: 5m."""
    schedules: Annotated[tuple[Schedule, ...], Field(max_length=16), ListMap(("name",))] | None = None
    """Time windows with their own replica limits. Only for the Planner policy. Default: none."""
    behavior: Behavior | None = None
    """Speed of scaling up and down, with the same schema and defaults as the HPA's `behavior`. Only for the policy
    Rules; Planner has its own rules."""

    rules: ClassVar = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            check=lambda m: m.min_replicas <= m.max_replicas,
            message="spec.scaling.minReplicas is {minReplicas} and must not be above spec.scaling.maxReplicas, which is "
            "{maxReplicas}; for example minReplicas: 1, maxReplicas: 8",
        ),
        Rule(
            cel="self.minReplicas == 0 || !has(self.idleTimeout)",
            check=lambda m: m.min_replicas == 0 or m.idle_timeout is None,
            message=(
                "spec.scaling.idleTimeout is {idleTimeout} but spec.scaling.minReplicas is {minReplicas}, so the "
                "model never scales to zero; set minReplicas: 0 or remove idleTimeout"
            ),
        ),
        Rule(
            cel="self.minReplicas > 0 || !has(self.policy) || self.policy == 'Planner'",
            check=lambda m: m.min_replicas > 0 or m.policy in {None, "Planner"},
            message=(
                "spec.scaling.minReplicas is {minReplicas} but spec.scaling.policy is {policy}, which cannot "
                "scale to zero because it follows the HPA's rules; set minReplicas: 1 or policy: Planner"
            ),
        ),
    )
