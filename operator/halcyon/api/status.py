"""`status` of a ModelDeployment: its shape. What goes in is decided in `halcyon.control.status`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from halcyon.api.types import ListMap, Model

Short = Annotated[str, Field(max_length=253)]
Long = Annotated[str, Field(max_length=1024)]
Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
Count = Annotated[int, Field(ge=0, le=1000000)]


class _Documented(Model):
    model_config = ConfigDict(use_attribute_docstrings=True)


class ConditionStatus(_Documented):
    """One condition, as the Kubernetes API conventions have it."""

    type: Short
    """Type, for example `Ready`."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Short
    """One word, documented in the reference."""
    message: Long
    """For people."""
    observed_generation: int
    """Generation of the spec that this is about."""
    last_transition_time: Time
    """When the status last changed."""


class Summary(_Documented):
    """Short texts for the columns of `kubectl get`."""

    ready: Short | None = None
    """Ready of wanted servers, for example `2/3`."""
    state: Short | None = None
    """The reason that matters most."""
    queue: Short | None = None
    """Waiting requests."""
    gpu: Short | None = None
    """Mean GPU utilisation of the ready servers."""
    batch: Short | None = None
    """Mean rows in a batch."""


class ReplicasStatus(_Documented):
    """Server pods."""

    total: Count
    """Pods that exist."""
    ready: Count
    """Pods that are ready."""
    updated: Count
    """Pods of the current revision."""
    unschedulable: Count
    """Pods that the scheduler finds no node for."""


class Endpoints(_Documented):
    """Addresses inside the cluster."""

    http: Short
    """KServe v2 over HTTP."""
    grpc: Short
    """KServe v2 over gRPC."""


class ModelStatus(_Documented):
    """The model, as Triton has it."""

    name: Short
    """Name in requests."""
    versions: Annotated[tuple[Short, ...], Field(max_length=64)] | None = None
    """Versions that are ready."""
    error: Long | None = None
    """Why it is not loaded, in Triton's words."""


class SignalStatus(_Documented):
    """One signal that scaling follows."""

    name: Short
    """queueDepth or gpuUtilization."""
    value: Short | None = None
    """Sum over the replicas; absent while it is missing."""
    target: Short
    """Target of one replica."""
    source: Short
    """Where it comes from."""
    observed_at: Time | None = None
    """When this value was seen."""
    missing: Long | None = None
    """Why there is no value."""


class ScalingStatus(_Documented):
    """What scaling does."""

    actuator: Literal["HPA", "Direct"]
    """What writes the count."""
    actuator_reason: Long
    """Why this one."""
    policy: Short
    """What decides."""
    desired: Count | None = None
    """The count asked for."""
    why: Long | None = None
    """The last decision in one sentence."""
    signals: Annotated[tuple[SignalStatus, ...], Field(max_length=8), ListMap(("name",))] | None = None
    """The signals."""


class RevisionStatus(_Documented):
    """Revisions: ControllerRevisions of this name."""

    current: Short | None = None
    """The revision that serves."""
    target: Short | None = None
    """The revision that the accepted spec asks for."""


class Status(_Documented):
    """What is."""

    observed_generation: int | None = None
    """Generation of the spec that this status is about."""
    conditions: Annotated[tuple[ConditionStatus, ...], Field(max_length=16), ListMap(("type",))] | None = None
    """Ready, Accepted, ModelLoaded, ServersReady, BalancerReady, ScalingActive; Reconciling and Stalled while true."""
    summary: Summary | None = None
    """Texts for the columns."""
    replicas: ReplicasStatus | None = None
    """Server pods."""
    selector: Long | None = None
    """Label selector of the server pods, for the scale subresource."""
    endpoints: Endpoints | None = None
    """Addresses inside the cluster."""
    model: ModelStatus | None = None
    """The model, as Triton has it."""
    runtime_image: Annotated[str, Field(max_length=512)] | None = None
    """Triton image in use."""
    scaling: ScalingStatus | None = None
    """What scaling does."""
    revision: RevisionStatus | None = None
    """Revisions."""
