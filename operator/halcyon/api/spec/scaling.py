"""`spec.scaling`: what one replica should carry, who writes the count, and how fast it may change."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from halcyon.api.spec.base import Documented
from halcyon.api.types import Rule


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

    queue_depth: Annotated[int, Field(ge=1, le=1000000)] | None = None
    """Waiting requests per replica (balancer and Triton together). Left out: the requests that fill one batch of every
    instance, maxBatchSize x instances."""
    gpu_utilization: Annotated[int, Field(ge=1, le=100)] | None = None
    """GPU utilisation of a replica, in percent. Left out: 80 where pods have a GPU."""


class Scaling(Documented):
    """How the number of replicas follows the load. Left out: spec.replicas is the count."""

    min_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    """Least replicas."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Most replicas."""
    policy: Literal["Rules"] | None = None
    """What decides. `Rules`: queue depth and GPU utilisation against their targets."""
    actuator: Literal["Auto", "HPA", "Direct"] | None = None
    """What writes the count. `Auto` (the default): a HorizontalPodAutoscaler where Halcyon serves the cluster's external
    metrics, else `Direct`: the operator applies the same rules itself."""
    targets: Targets = Targets()
    """What one replica should carry."""
    behavior: Behavior | None = None
    """Pace of scaling."""

    rules: ClassVar = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            check=lambda m: m.min_replicas <= m.max_replicas,
            message="spec.scaling.minReplicas is {minReplicas} and must not be above spec.scaling.maxReplicas, which is "
            "{maxReplicas}; for example minReplicas: 1, maxReplicas: 8",
        ),
    )
