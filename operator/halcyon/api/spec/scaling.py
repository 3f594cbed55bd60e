"""`spec.scaling`: what one replica should carry, who decides, who writes the count, and when other limits hold."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from halcyon.api.spec.fields import Documented
from halcyon.api.types import ListMap, Rule, duration_field


class ScalingPolicy(Documented):
    """One limit on the pace of scaling, as in the HPA."""

    type: Literal["Pods", "Percent"]
    """Whether value counts pods or percent of the current count."""
    value: Annotated[int, Field(ge=1, le=100000)]
    """How much may change within the period."""
    period_seconds: Annotated[int, Field(ge=1, le=1800)]
    """Length of the period, in seconds."""


class ScalingRules(Documented):
    """Limits on scaling in one direction, as in the HPA."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    """Window, in seconds, whose most cautious recommendation counts. HPA's defaults: 0 up, 300 down."""
    select_policy: Literal["Max", "Min", "Disabled"] | None = None
    """Which of the policies counts; Max where it is left out."""
    policies: Annotated[tuple[ScalingPolicy, ...], Field(min_length=1, max_length=8)] | None = None
    """The policies. HPA's defaults: up 4 pods or 100 % in 15 s, down 100 % in 15 s."""


class Behavior(Documented):
    """Pace of scaling in both directions; the HPA's own type and defaults."""

    scale_up: ScalingRules | None = None
    """Limits on the way up."""
    scale_down: ScalingRules | None = None
    """Limits on the way down."""


class Targets(Documented):
    """What one replica should carry. The count follows whichever asks for more."""

    latency: duration_field("1ms", "1h") | None = None  # type: ignore[valid-type]
    """Time from a request's arrival to its answer that 99 of 100 requests are to keep, for example `500ms`. Policy
    Planner; left out, it plans for 80 % of what replicas can do."""
    queue_depth: Annotated[int, Field(ge=1, le=1000000)] | None = None
    """Waiting requests per replica (balancer and Triton together). Left out, with the policy Rules: the requests that fill
    one batch of every instance, maxBatchSize (8 where it is left out) x instances per GPU x GPUs; with Planner: no objective."""
    gpu_utilization: Annotated[int, Field(ge=1, le=100)] | None = None
    """GPU utilisation of a replica, in percent. Left out, with the policy Rules: 80 where pods have a GPU; with Planner: no
    objective, and busy GPUs still forbid going down."""


class Schedule(Documented):
    """Other limits at certain times: a window that opens by a cron rule and stays open for its duration."""

    name: Annotated[
        str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", min_length=1, max_length=63)
    ]
    """Its name in status and events."""
    start: Annotated[str, Field(min_length=9, max_length=200)]
    """When it opens: minute, hour, day of month, month and day of week, for example `0 8 * * 1-5`."""
    duration: duration_field("1m", "168h")  # type: ignore[valid-type]
    """How long it stays open, in elapsed time: 8h are 8h when the clocks change, too."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    """Time zone of `start`, for example `Europe/Berlin`."""
    min_replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Least replicas while it is open; the higher of this and scaling.minReplicas counts."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Most replicas while it is open; the lower of this and scaling.maxReplicas counts."""

    rules: ClassVar = (
        Rule(
            cel="has(self.minReplicas) || has(self.maxReplicas)",
            check=lambda m: m.min_replicas is not None or m.max_replicas is not None,
            message="schedule {name} in spec.scaling.schedules changes nothing; give it minReplicas, maxReplicas or both, for "
            "example minReplicas: 4",
        ),
        Rule(
            cel="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            check=lambda m: m.min_replicas is None or m.max_replicas is None or m.min_replicas <= m.max_replicas,
            message="schedule {name} in spec.scaling.schedules has minReplicas {minReplicas} above its maxReplicas {maxReplicas}; for "
            "example minReplicas: 2, maxReplicas: 8",
        ),
    )


class Scaling(Documented):
    """How the number of replicas follows the load. Left out: spec.replicas is the count."""

    min_replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Least replicas; with 0, none is left once nobody has asked for idleAfter."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Most replicas."""
    policy: Literal["Planner", "Rules"] | None = None
    """What decides. `Planner` (the default): the arrival rate, the backlog and what one replica was seen to do. `Rules`: queue
    depth and GPU utilisation against their targets, as an HPA does it."""
    actuator: Literal["Auto", "HPA", "Direct"] | None = None
    """What writes the count. `Auto` (the default): a HorizontalPodAutoscaler where Halcyon serves the cluster's external
    metrics (and, for the policy Planner, where the HPA's tolerance can be 0), else `Direct`: the operator itself."""
    mode: Literal["Active", "Recommend", "Paused"] = "Active"
    """`Active`: the count is written. `Recommend`: what would be done is only said. `Paused`: the count stays as it is until
    this is changed. In the last two spec.replicas is yours."""
    targets: Targets = Targets()
    """What one replica should carry. The count follows whichever asks for more."""
    idle_after: duration_field("10s", "168h") | None = None  # type: ignore[valid-type]
    """With minReplicas 0: how long without a request until no replica is left; longer where starts keep costing more than zero saves.
    Left out: 5m."""
    schedules: Annotated[tuple[Schedule, ...], Field(max_length=16), ListMap(("name",))] | None = None
    """Other limits at certain times. Policy Planner."""
    behavior: Behavior | None = None
    """Pace of scaling in both directions, with the HPA's own type and defaults. Policy Rules: Planner has a pace of its own."""

    rules: ClassVar = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            check=lambda m: m.min_replicas <= m.max_replicas,
            message="spec.scaling.minReplicas is {minReplicas} and must not be above spec.scaling.maxReplicas, which is "
            "{maxReplicas}; for example minReplicas: 1, maxReplicas: 8",
        ),
        Rule(
            cel="self.minReplicas == 0 || !has(self.idleAfter)",
            check=lambda m: m.min_replicas == 0 or m.idle_after is None,
            message="spec.scaling.idleAfter is {idleAfter}, and spec.scaling.minReplicas is {minReplicas}: a replica always "
            "stays; write minReplicas: 0 or leave idleAfter out",
        ),
        Rule(
            cel="self.minReplicas > 0 || !has(self.policy) || self.policy == 'Planner'",
            check=lambda m: m.min_replicas > 0 or m.policy in {None, "Planner"},
            message="spec.scaling.minReplicas is {minReplicas}, which the policy {policy} can't do: an HPA never goes to 0; write "
            "minReplicas: 1 or policy: Planner",
        ),
    )
