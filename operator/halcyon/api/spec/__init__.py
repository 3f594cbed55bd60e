"""`spec` of a ModelDeployment: every field, its default, its bounds, and the rules between fields.

The docstring under a field is its description in the CRD and in the reference page. A default that a later version may
improve (image, actuator, targets) is not stored by the schema: `halcyon.api.spec.defaults` resolves it, and status shows it.
Here is the whole; each part and its own rules have a module.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from halcyon.api.spec import routing_mode
from halcyon.api.spec.batching import Batching
from halcyon.api.spec.fields import Documented
from halcyon.api.spec.model import ModelSpec
from halcyon.api.spec.rollout import Rollout
from halcyon.api.spec.runtime import Runtime
from halcyon.api.spec.scaling import Scaling
from halcyon.api.spec.traffic import Traffic
from halcyon.api.types import Rule


class Spec(Documented):
    """What the user wants."""

    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Number of server pods. Without `scaling` yours to set (`kubectl scale`); with it, written by the actuator."""
    model: ModelSpec
    """What is served."""
    runtime: Runtime = Runtime()
    """How Triton runs."""
    batching: Batching | None = None
    """Triton's dynamic batching. Present: it is on. Left out: the model's own config.pbtxt decides."""
    scaling: Scaling | None = None
    """How the number of replicas follows the load. Left out: spec.replicas is the count."""
    traffic: Traffic = Traffic()
    """How requests reach the servers."""
    rollout: Rollout = Rollout()
    """How a new revision takes over. A change of the count alone is none."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.scaling) || !has(self.scaling.targets.gpuUtilization) || self.runtime.gpu.count > 0",
            check=lambda m: m.scaling is None or m.scaling.targets.gpu_utilization is None or m.runtime.gpu.count > 0,
            message="spec.scaling.targets.gpuUtilization is set and spec.runtime.gpu.count is {runtime.gpu.count}: there is no "
            "GPU to measure; set gpu: {{count: 1}} or remove the target",
        ),
        *routing_mode.RULES,
    )
