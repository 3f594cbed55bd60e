"""`spec` of a ModelDeployment: every field, its default, its bounds, and the rules between fields.

The docstring under a field is its description in the CRD and on the reference page. The schema does not store a default
that a later version may improve (image, actuator, targets): `halcyon.api.spec.defaults` resolves it, and the status
shows it. This module defines the complete spec; each part and its own rules have a module of their own.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from halcyon.api.spec import concurrency, routing_mode
from halcyon.api.spec.batching import Batching
from halcyon.api.spec.model import ModelSpec
from halcyon.api.spec.rollout import Rollout
from halcyon.api.spec.runtime import Runtime
from halcyon.api.spec.scaling import Scaling
from halcyon.api.spec.traffic import Traffic
from halcyon.api.types import ApiModel, AtomicMap, Rule


class Spec(ApiModel):
    """Desired state of a ModelDeployment."""

    model_config = ConfigDict(defer_build=False)  # every operator validates specs, and should not start with a pause

    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Number of server pods (0 to 1000), each of which runs Triton. Without `scaling`, you set this number, for example
    with `kubectl scale`. With `scaling` in mode Active, Halcyon or its HPA writes it. Default: 1."""
    model: ModelSpec
    """Model to serve: its name, source, versions and warm-up."""
    runtime: Runtime = Runtime.defaults()
    """Settings of the server pods: Triton container, resources, GPUs and placement."""
    batching: Annotated[Batching, AtomicMap()] | None = None
    """Triton's dynamic batching. Setting this field, even to `{}`, turns it on. Default: as in the model's
    config.pbtxt."""
    scaling: Scaling | None = None
    """Automatic scaling of the replicas with the load. Default: none; Halcyon does not change `spec.replicas`."""
    traffic: Traffic = Traffic.defaults()
    """Routing of requests to the server pods: balancer, queue, timeouts, TLS and API keys."""
    rollout: Rollout = Rollout.defaults()
    """Method of replacing the serving revision with a new one. Changing only the replicas creates no new revision."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.scaling) || !has(self.scaling.targets.gpuUtilization) || "
            "(has(self.runtime.gpu) && self.runtime.gpu.count > 0)",
            check=lambda m: m.scaling is None or m.scaling.targets.gpu_utilization is None or m.runtime.gpus > 0,
            message=(
                "spec.scaling.targets.gpuUtilization is set but the model has no GPU to measure; set "
                "spec.runtime.gpu, for example gpu: {{count: 1}}, or remove the target"
            ),
        ),
        *routing_mode.RULES,
        *concurrency.RULES,
    )
