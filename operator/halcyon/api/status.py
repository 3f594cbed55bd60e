"""`status` of a ModelDeployment: its shape. What goes in is decided in `halcyon.control.status.status`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from halcyon.api.types import ApiModel, ListMap

Short = Annotated[str, Field(max_length=253)]
Long = Annotated[str, Field(max_length=1024)]
Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
Count = Annotated[int, Field(ge=0, le=1000000)]


class _Documented(ApiModel):
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
    """Waiting requests, and beside them, where there is a target, how many the ready servers are to have: `12/48`."""
    gpu: Short | None = None
    """Mean GPU utilisation of the ready servers, in percent."""
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
    pending: Count | None = None
    """Pods without a node yet, the unschedulable ones among them. Here and below: absent where there is none."""
    pulling: Count | None = None
    """Pods whose images or volumes are on their way."""
    fetching: Count | None = None
    """Pods into which the model is brought."""
    loading: Count | None = None
    """Pods in which Triton loads the model and warms it up."""
    unready: Count | None = None
    """Pods that have served, and aren't ready now."""
    failed: Count | None = None
    """Pods that can't start, or have failed; ServersReady or ModelLoaded says why."""
    draining: Count | None = None
    """Pods that are going, and end what they have begun; not in `total`."""


class Endpoints(_Documented):
    """Addresses inside the cluster."""

    http: Short
    """KServe v2 over HTTP."""
    grpc: Short
    """KServe v2 over gRPC."""
    headless: Short | None = None
    """Name that resolves to every ready server pod, for clients of gRPC that balance by themselves; there only where
    spec.traffic.balancer is not HAProxy."""


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
    """requestRate (requests per second), queueDepth (requests that wait) or gpuUtilization (percent)."""
    value: Short | None = None
    """Of all replicas together; absent while it is missing. Rounded, and written when it has moved by a fifth."""
    target: Short | None = None
    """Target of one replica; absent where there is no objective for it."""
    proposal: Count | None = None
    """The count that it asks for."""
    source: Short
    """Where it comes from: `agents`, `scrape`, `prometheus` or `derived`."""
    observed_at: Time | None = None
    """When this value was seen."""
    missing: Long | None = None
    """Why there is no value."""


class PartStatus(_Documented):
    """What one part of a decision asks for."""

    name: Short
    """rate, trend, season, spike, backlog, queueDepth or gpuUtilization."""
    replicas: Count
    """The count that it asks for."""
    why: Long
    """With numbers."""


class DecisionStatus(_Documented):
    """A change of the count asked for."""

    time: Time
    """When it was decided."""
    before: Count
    """The count asked for before."""
    after: Count
    """The count asked for from then on."""
    why: Long
    """In one sentence."""


class ScalingStatus(_Documented):
    """What scaling does."""

    actuator: Literal["HPA", "Direct"]
    """What writes the count."""
    actuator_reason: Long
    """Why this one."""
    policy: Short
    """What decides."""
    mode: Short
    """Whether the count is written: Active, Recommend or Paused."""
    desired: Count | None = None
    """The count asked for."""
    current: Count | None = None
    """The count in force when it was decided."""
    limited_by: Annotated[tuple[Short, ...], Field(max_length=8)] | None = None
    """What changed or kept the count after the signals had spoken: min, max, hold, veto, idle, learning, unknown and others."""
    why: Long | None = None
    """The last decision in one sentence."""
    decided_at: Time | None = None
    """When what is shown here was decided; it is shown anew when it says something new."""
    parts: Annotated[tuple[PartStatus, ...], Field(max_length=8), ListMap(("name",))] | None = None
    """What each part of the decision asks for; the largest counts."""
    signals: Annotated[tuple[SignalStatus, ...], Field(max_length=8), ListMap(("name",))] | None = None
    """The signals."""
    decisions: Annotated[tuple[DecisionStatus, ...], Field(max_length=10)] | None = None
    """The last changes of the count asked for, the newest first."""


class ColdStartStatus(_Documented):
    """What the last start of a server pod took, in whole seconds."""

    pod: Short
    """The pod."""
    ready_at: Time
    """When it became ready."""
    seconds: Count
    """From its creation until it was ready."""
    scheduling_seconds: Count | None = None
    """Until it had a node."""
    pulling_seconds: Count | None = None
    """Then, until its first container ran: images and volumes."""
    fetching_seconds: Count | None = None
    """Then, until the model was brought and its configuration merged."""
    loading_seconds: Count | None = None
    """Then, until Triton had loaded the model and warmed it up; the pull of its image is in it where that wasn't there."""


Percent = Annotated[int, Field(ge=-1000000, le=100)]


class CostStatus(_Documented):
    """What the model's GPUs cost, and what they did, over the last day.

    Less where the operator hasn't counted as long. Rounded; shares are told anew every ten minutes at most.
    """

    gpus: Count
    """GPUs of pods that have a node."""
    currency: Short | None = None
    """Of the prices, as the site names it."""
    per_hour: Short | None = None
    """What these GPUs cost in an hour; absent where the site hasn't said the price of such a GPU."""
    per_thousand_inferences: Short | None = None
    """Cost of a thousand inferences (rows); absent below a hundred of them, and without a price."""
    saving_percent: Percent | None = None
    """How much less GPU time was used than spec.scaling.maxReplicas would have used all the time."""
    starting_percent: Percent | None = None
    """Share of the GPU time in which pods had a node and weren't ready."""
    busy_percent: Percent | None = None
    """Share in which GPUs of ready pods were in use, by GPU utilisation; time in which nobody told it is left out of all three."""
    idle_percent: Percent | None = None
    """Share in which they weren't."""


class RevisionStatus(_Documented):
    """Revisions: ControllerRevisions of this name."""

    current: Short | None = None
    """The revision that serves."""
    target: Short | None = None
    """The revision that the accepted spec asks for."""


class FailedRevision(_Documented):
    """The revision that the spec asks for and that is not served."""

    revision: Short
    """Its ControllerRevision."""
    reason: Short
    """One word, as in the conditions."""
    message: Long
    """Triton's own where Triton gave one."""
    finished_at: Time
    """When it was given up."""


class PastRollout(_Documented):
    """How the last rollout to a revision ended."""

    revision: Short
    """Its ControllerRevision."""
    result: Literal["Served", "Failed", "Superseded"]
    """Superseded: the spec asked for another one before this one was reached."""
    finished_at: Time
    """When it ended."""
    message: Long | None = None
    """Why, where it was not served."""


class CanaryStatus(_Documented):
    """A canary under way."""

    step: Count
    """Which of the steps, from 1."""
    weight: Count
    """Percent of the requests that go to it once a pod of it is ready."""
    pods: Count
    """Pods of it."""


class RolloutStatus(_Documented):
    """How the revision asked for takes over."""

    phase: Literal["Complete", "Progressing", "Blocked", "Failed", "RollingBack", "RolledBack"]
    """Blocked: there is no room for it. Failed: it failed and stays. RolledBack: it failed and the one before serves."""
    strategy: Literal["Surge", "Replace", "Canary"]
    """What is done, where spec.rollout.strategy is Auto."""
    strategy_reason: Long | None = None
    """Why pods are replaced."""
    canary: CanaryStatus | None = None
    """There while a canary is under way."""
    message: Long | None = None
    """What is, why, and what to do."""
    started_at: Time | None = None
    """When the rollout to the revision asked for began."""
    failed: FailedRevision | None = None
    """The revision asked for, where it failed. It isn't tried again until the spec changes."""
    history: Annotated[tuple[PastRollout, ...], Field(max_length=10)] | None = None
    """How the last rollouts ended, the newest first."""


class Status(_Documented):
    """What is."""

    observed_generation: int | None = None
    """Generation of the spec that this status is about; 0 until the operator has seen the object."""
    conditions: Annotated[tuple[ConditionStatus, ...], Field(max_length=16), ListMap(("type",))] | None = None
    """Ready, Accepted, ModelLoaded, ServersReady, BalancerReady, ScalingActive; Reconciling and Stalled while true."""
    summary: Summary | None = None
    """Short texts for the columns of `kubectl get`."""
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
    """Revisions: names of ControllerRevisions."""
    rollout: RolloutStatus | None = None
    """How the revision asked for takes over."""
    cost: CostStatus | None = None
    """What the model's GPUs cost, and what they did, over the last day; absent for a model on CPU. Less if the operator hasn't counted as
    long. Rounded; shares are calculated at most every ten minutes."""
    cold_start: ColdStartStatus | None = None
    """What the last start of a server pod took, in whole seconds, by its parts."""
