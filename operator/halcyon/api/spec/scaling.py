"""`spec.scaling`: the targets per replica, the policy, the actuator, and different replica limits at certain times."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from halcyon.api.types import Documented, ListMap, Rule, duration_field


class ScalingPolicy(Documented):
    """One limit on the pace of scaling, as in the HPA (HorizontalPodAutoscaler)."""

    type: Literal["Pods", "Percent"]
    """Unit of `value`: pods, or percent of the current replicas."""
    value: Annotated[int, Field(ge=1, le=100000)]
    """Maximum change of the replicas within the period."""
    period_seconds: Annotated[int, Field(ge=1, le=1800)]
    """Length of the period, in seconds, 1 to 1800."""


class ScalingRules(Documented):
    """Limits on scaling in one direction, as in the HPA."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    """Time over which the most cautious recommendation applies, in seconds, 0 to 3600. When scaling up, this is the
    lowest recommendation; when scaling down, the highest. Default, as in the HPA: 0 for scaling up, 300 for scaling
    down."""
    select_policy: Literal["Max", "Min", "Disabled"] | None = None
    """Policy that applies if there are several: the one that allows the most change (`Max`) or the least (`Min`).
    `Disabled` turns scaling in this direction off. Default: Max."""
    policies: Annotated[tuple[ScalingPolicy, ...], Field(min_length=1, max_length=8)] | None = None
    """Limits on the change within a period. Default, as in the HPA: 4 pods or 100 % in 15 s when scaling up, and 100 %
    in 15 s when scaling down."""


class Behavior(Documented):
    """Pace of scaling in both directions, with the type and the defaults of `behavior` of the HPA."""

    scale_up: ScalingRules | None = None
    """Limits on scaling up. Default: those of the HPA."""
    scale_down: ScalingRules | None = None
    """Limits on scaling down. Default: those of the HPA."""


class MetricTarget(Documented):
    """Target for the result of a Prometheus query that the site defines."""

    query: Annotated[
        str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", min_length=1, max_length=63)
    ]
    """Name of one of the site's queries (chart value `prometheus.queries`), for example `cpu-utilization`, which the chart
    defines, or `pending-jobs`. Its result is the total for the model."""
    value: Annotated[int, Field(ge=1, le=1000000000)]
    """Target of the result per replica, 1 to 1000000000. The model gets as many replicas as the result divided by this
    number."""


class Targets(Documented):
    """Targets per replica. The target that requires the most replicas applies."""

    latency: duration_field("1ms", "1h") | None = None  # type: ignore[valid-type]
    """Response time that 99 of 100 requests must meet, from a request's arrival to its answer, for example `500ms`. 1ms
    to 1h. Only for the policy Planner. Default: none; Planner then uses 80 % of the capacity of the replicas."""
    queue_depth: Annotated[int, Field(ge=1, le=1000000)] | None = None
    """Target number of queued requests per replica, in the balancers and Triton together. Default with the policy
    Rules: one full batch for every instance, which is maxBatchSize (8 if unset) x instances per GPU x GPUs. Default
    with Planner: no target."""
    concurrency: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Target number of requests per replica that are in progress or wait, in the balancers and in Triton together, 1 to
    100000. If `latency` is also set, both targets apply. The status names the one that decides. Default: no target."""
    metric: MetricTarget | None = None
    """Target for the result of a Prometheus query that the site defines. While the result is missing, the model does
    not scale down. Default: no target."""
    gpu_utilization: Annotated[int, Field(ge=1, le=100)] | None = None
    """Target GPU utilisation of a replica, in percent. Default with the policy Rules: 80 if pods have a GPU. Default
    with Planner: no target, but busy GPUs still prevent scaling down."""


class Schedule(Documented):
    """Period with different replica limits. It begins at times given by a cron rule, and lasts for a given duration."""

    name: Annotated[
        str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", min_length=1, max_length=63)
    ]
    """Name of the schedule in the status and in events."""
    start: Annotated[str, Field(min_length=9, max_length=200)]
    """Time at which the window opens, as a cron rule: minute, hour, day of month, month and day of week. For example,
    `0 8 * * 1-5` is 08:00 from Monday to Friday."""
    duration: duration_field("1m", "168h")  # type: ignore[valid-type]
    """Time that the window stays open, 1m to 168h. This is elapsed time: 8h is still 8h when the clocks change."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    """Time zone of `start`, for example `Europe/Berlin`. Default: UTC."""
    min_replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Minimum replicas while the window is open. The higher of this and scaling.minReplicas applies. Default: no other
    minimum."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Maximum replicas while the window is open. The lower of this and scaling.maxReplicas applies, even if it is below
    a minimum. Default: no other maximum."""

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


class Scaling(Documented):
    """Automatic scaling of the replicas with the load."""

    min_replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Minimum replicas, 0 to 1000. With 0, the model scales to zero when it has received no request for the duration of
    idleTimeout; this requires the policy Planner and traffic.mode Balancer. Default: 1."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Maximum replicas, 1 to 1000."""
    policy: Literal["Planner", "Rules"] | None = None
    """Algorithm that determines the number of replicas. `Planner`: based on the arrival rate, the backlog and the
    measured throughput of a replica. `Rules`: based on queue depth and GPU utilisation compared with their targets, as
    an HPA does. Default: Planner."""
    actuator: Literal["Auto", "HPA", "Direct"] | None = None
    """Component that writes spec.replicas. `HPA`: a HorizontalPodAutoscaler. `Direct`: the operator itself. `Auto`: HPA
    if Halcyon serves the cluster's external metrics (and, for the policy Planner, if the HPA's tolerance can be 0),
    else Direct. Default: Auto."""
    mode: Literal["Active", "Recommend", "Paused"] = "Active"
    """What happens to scaling decisions. `Active`: they are written to spec.replicas. `Recommend`: they are only
    reported. `Paused`: the replicas stay as they are until the mode is changed. In the last two modes you set
    spec.replicas yourself. Default: Active."""
    targets: Targets = Targets()
    """Targets per replica. The target that requires the most replicas applies."""
    idle_timeout: duration_field("10s", "168h") | None = None  # type: ignore[valid-type]
    """Time without a request after which the model scales to zero, 10s to 168h. Only if minReplicas is 0. If restarting
    repeatedly costs more GPU time than scaling to zero saves, Halcyon waits longer, up to 30m. Default: 5m."""
    schedules: Annotated[tuple[Schedule, ...], Field(max_length=16), ListMap(("name",))] | None = None
    """Different replica limits at certain times. Only for the policy Planner. Default: none."""
    behavior: Behavior | None = None
    """Pace of scaling in both directions, with the same type and defaults as `behavior` of the HPA. Only for the policy
    Rules: Planner sets its own pace."""

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
