"""Schema of the `status` of a ModelDeployment. The values are computed in `halcyon.control.status.status`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from halcyon.api.rollout_status import RevisionStatus, RolloutStatus
from halcyon.api.types import ApiModel, Count, ListMap, Long, Short, Time


class ConditionStatus(ApiModel):
    """One condition, as in the Kubernetes API conventions."""

    type: Short
    """Type of the condition, for example `Ready`."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds: True, False or Unknown."""
    reason: Short
    """Reason for the status, in one word. The conditions reference lists all reasons."""
    message: Long
    """Details of the condition, including what to do if something is wrong."""
    observed_generation: int
    """Generation of the spec to which the condition refers."""
    last_transition_time: Time
    """Time at which the condition's status last changed."""


class Summary(ApiModel):
    """Short texts for the columns of `kubectl get`."""

    ready: Short | None = None
    """Ready pods and the current number of replicas, for example `2/3`."""
    desired: Short | None = None
    """Desired replicas of the last scaling decision. Before the first decision, the current number of replicas."""
    range: Short | None = None
    """Minimum and maximum replicas of `spec.scaling`, for example `1-8`. Absent without `spec.scaling`."""
    state: Short | None = None
    """Reason of the condition that currently matters most to the user."""
    queue: Short | None = None
    """Queued requests. If there is a target, the total target across all ready pods follows a slash: `12/48`."""
    gpu: Short | None = None
    """Mean GPU utilisation of the ready pods, in percent."""
    batch: Short | None = None
    """Mean number of rows in the batches that Triton executes."""


FailureCause = Literal[
    "ContainerFailed",
    "Evicted",
    "ImagePullFailed",
    "ModelConfigInvalid",
    "ModelDownloadFailed",
    "ModelSourceNotFound",
    "OOMKilled",
    "Other",
]
"""Causes of failed pods. The status has a separate count for each cause."""


class FailureCount(ApiModel):
    """Number of pods that have failed for one reason, and that reason."""

    reason: FailureCause
    """Reason why the pods failed: the reason of a condition, or one of the following values. `OOMKilled`: a container
    exceeded its memory limit. `Evicted`: the node lacked a resource. `ContainerFailed`: a container fails repeatedly
    for another reason. `Other`: any other reason."""
    pods: Annotated[int, Field(ge=1, le=1000000)]
    """Number of pods that have failed for the reason in `reason`."""


class PodsStatus(ApiModel):
    """Number of server pods, in total and by state."""

    total: Count
    """Total number of server pods."""
    ready: Count
    """Number of pods that are ready."""
    updated: Count
    """Number of pods of the target revision."""
    unschedulable: Count
    """Number of pods for which the scheduler finds no node."""
    pending: Count | None = None
    """Number of pods that are not assigned to a node yet, including unschedulable ones. Absent if there are none."""
    pulling: Count | None = None
    """Number of pods that are waiting for their images or volumes. Absent if there are none."""
    fetching: Count | None = None
    """Number of pods that are downloading the model or preparing its files. Absent if there are none."""
    loading: Count | None = None
    """Number of pods in which Triton is loading the model and warming it up. Absent if there are none."""
    unready: Count | None = None
    """Number of pods that were ready before but are not ready now. Absent if there are none."""
    failed: Count | None = None
    """Number of pods that cannot start or have failed. The ServersReady or ModelLoaded condition gives the cause.
    Absent if there are none."""
    failures: Annotated[tuple[FailureCount, ...], Field(max_length=8), ListMap(("reason",))] | None = None
    """Number of failed pods for each reason. Absent if there are none."""
    draining: Count | None = None
    """Number of pods that are finishing their requests before they stop. They are not included in `total`. Absent if
    there are none."""


class Address(ApiModel):
    """Addresses of the model inside the cluster."""

    url: Short
    """URL of the model for the KServe v2 protocol over HTTP."""
    grpc: Short
    """Host and port of the model for the KServe v2 protocol over gRPC."""
    headless: Short | None = None
    """DNS name that resolves to every ready server pod, for gRPC clients that do their own load balancing. Present only
    if spec.traffic.mode is not Balancer."""


class ModelStatus(ApiModel):
    """State of the model as reported by Triton."""

    name: Short
    """Name of the model in requests."""
    versions: Annotated[tuple[Short, ...], Field(max_length=64)] | None = None
    """Versions of the model that are ready."""
    error: Long | None = None
    """Triton's error message if the model could not be loaded. Absent otherwise."""


Proposal = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""Number of replicas that a signal requires. It isn't limited by maxReplicas, and may be as large as an HPA allows."""


class SignalStatus(ApiModel):
    """One signal that scaling uses, for example the request rate."""

    name: Short
    """Name of the signal: requestRate (requests per second), queueDepth (queued requests), concurrency (requests in
    progress or waiting), metric (result of the site's query) or gpuUtilization (percent)."""
    value: Short | None = None
    """Value of the signal across all replicas, rounded. Absent if there is currently no value (see `missing`). A change
    of 20 % or less does not by itself update the status."""
    target: Short | None = None
    """Target value per replica for the signal. Absent if there is none."""
    proposal: Proposal | None = None
    """Number of replicas that the signal requires."""
    source: Short
    """Source of the signal's value. `agents`: reports of the balancers. `scrape`: metrics that the operator reads from
    the servers. `prometheus`: a Prometheus query. `derived`: an estimate from Triton's batch statistics."""
    observed_at: Time | None = None
    """Time at which the signal's value was observed."""
    missing: Long | None = None
    """Reason why the signal has no value. Absent if it has one."""


class PartStatus(ApiModel):
    """Number of replicas that one input of the scaling decision requires, for example the request rate."""

    name: Short
    """Input: rate, trend, season, spike, backlog, queueDepth, concurrency, metric, gpuUtilization or batch."""
    replicas: Proposal
    """Number of replicas that this input of the scaling decision requires."""
    why: Long
    """Reason why the input requires this number of replicas, in one sentence, with figures."""


class ServiceLineStatus(ApiModel):
    """Formula for the execution time of a batch, for a given number of instances.

    The time is constantMilliseconds, plus perRowMilliseconds for each row.
    """

    instances: Count
    """Number of instances of the model in a replica."""
    constant_milliseconds: Short
    """Constant part of the execution time of a batch, in milliseconds, rounded."""
    per_row_milliseconds: Short
    """Additional execution time for each row in a batch, in milliseconds, rounded."""
    max_batch_size: Count
    """Maximum number of rows in a batch, as set in the spec or else as observed."""


class CapacityStatus(ApiModel):
    """Capacity of a replica, and its source."""

    source: Short | None = None
    """Source of the capacity. Bench: a measurement by `halcyon bench --teach`, used until Triton has executed 100
    batches of client requests. WarmUp: execution times of warm-up batches. BatchStatistics: execution times of batches
    of client requests. TimeInPods: number of requests in execution, divided by the mean time of a request in a pod.
    Answers: response rate of fully loaded pods, counted by the balancers. EngineMetrics: response rate of pods whose
    inference engine reports that it is fully loaded. Unknown: no source yet."""
    requests_per_second: Short | None = None
    """Requests per second that a fully loaded replica answers, rounded. Absent if unknown. A change of 20 % or less
    does not by itself update the status."""
    sustained_requests_per_second: Short | None = None
    """Requests per second that one replica answers within `spec.scaling.targets.latency`, rounded. Without a latency
    target, the value is for 80 % utilisation. Absent if unknown."""
    lines: Annotated[tuple[ServiceLineStatus, ...], Field(max_length=8), ListMap(("instances",))] | None = None
    """Execution times of batches, with one entry per number of instances in a replica. The current number comes first.
    Absent if the times are unknown, or if pods answer more slowly than these times predict."""
    requests_at_once: Count | None = None
    """Number of requests that a replica executes at once. Present only if the capacity is not based on batch times."""
    observed_at: Time | None = None
    """Time of the measurement if the source is Bench; otherwise, time of the decision that used these figures."""
    revision: Short | None = None
    """Name of the ControllerRevision to which the figures apply."""
    image: Annotated[str, Field(max_length=512)] | None = None
    """Triton image to which the figures apply."""
    gpu_product: Short | None = None
    """GPU product to which the figures apply. Absent if neither the nodeSelector nor the measurement names one."""
    why: Long | None = None
    """Reason why the source of the capacity was chosen, with the measured values."""
    ignored: Long | None = None
    """Reason why the measured capacity in the ConfigMap NAME-capacity is not used. Absent if it is used, or if there is
    no such ConfigMap."""


class DecisionStatus(ApiModel):
    """One change in the desired replicas."""

    time: Time
    """Time of the decision."""
    before: Count
    """Desired replicas before the decision."""
    after: Count
    """Desired replicas after the decision."""
    why: Long
    """Reason for the change in the desired replicas, in one sentence."""


class ScalingStatus(ApiModel):
    """State of scaling: the last decision, and the signals on which it is based."""

    actuator: Literal["HPA", "Direct"]
    """Component that writes spec.replicas: HPA, or Direct (the operator itself)."""
    actuator_reason: Long
    """Reason why the HPA or the operator itself (Direct) writes spec.replicas."""
    policy: Short
    """Scaling policy in use: Planner or Rules."""
    mode: Short
    """Mode of scaling: Active, Recommend or Paused."""
    desired: Count | None = None
    """Number of desired replicas."""
    current: Count | None = None
    """Number of replicas when the last decision was made."""
    limited_by: Annotated[tuple[Short, ...], Field(max_length=8)] | None = None
    """Reasons why the last decision did not simply follow the signals. For example, `min` and `max`: a replica limit;
    `hold`: the replicas were needed recently; `veto`: the GPUs are unexpectedly busy; `idle`: there are no requests;
    `learning`: there are too few measurements; `unknown`: a signal is missing or implausible."""
    why: Long | None = None
    """Reason for the last decision, in one sentence."""
    decided_at: Time | None = None
    """Time of the decision in this status. A later decision replaces it only if the replicas, limits or signals differ
    noticeably."""
    parts: Annotated[tuple[PartStatus, ...], Field(max_length=16), ListMap(("name",))] | None = None
    """Number of replicas that each input of the decision requires. The largest number determines the decision."""
    signals: Annotated[tuple[SignalStatus, ...], Field(max_length=8), ListMap(("name",))] | None = None
    """Signals on which the decision is based."""
    decisions: Annotated[tuple[DecisionStatus, ...], Field(max_length=10)] | None = None
    """Most recent changes to the desired replicas, newest first, at most 10."""


class ColdStartStatus(ApiModel):
    """Duration of the last start of a server pod, in whole seconds."""

    pod: Short
    """Name of the pod that was started."""
    ready_at: Time
    """Time at which the pod became ready."""
    seconds: Count
    """Total time of the start, in seconds, from the creation of the pod until it was ready."""
    scheduling_seconds: Count | None = None
    """Time from the creation of the pod until its assignment to a node, in seconds."""
    pulling_seconds: Count | None = None
    """Time from the pod's assignment to a node until its first container ran, in seconds. The pod's images are pulled
    and its volumes are mounted in this time."""
    fetching_seconds: Count | None = None
    """Seconds from the start of the pod's first container until the model was fetched and its configuration merged."""
    loading_seconds: Count | None = None
    """Time that Triton took to load and warm up the model after it was fetched, in seconds. It includes the pull of the
    Triton image if the node did not have it."""


Percent = Annotated[int, Field(ge=-1000000, le=100)]


class CostStatus(ApiModel):
    """Cost and use of the model's GPUs over the last day, or since the operator began to record them."""

    gpus: Count
    """Number of GPUs of pods that are assigned to a node."""
    currency: Short | None = None
    """Currency of the costs, as set by the site."""
    per_hour: Short | None = None
    """Cost per hour of the GPUs in `gpus`. Absent if the site has no price for these GPUs."""
    per_thousand_inferences: Short | None = None
    """Cost of 1000 inferences (rows). Absent if there were fewer than 100 inferences, or if there is no price."""
    saving_percent: Percent | None = None
    """GPU time saved by scaling, in percent, compared with always running `spec.scaling.maxReplicas` replicas."""
    starting_percent: Percent | None = None
    """Share of the GPU time, in percent, in which pods were assigned to a node but not ready."""
    busy_percent: Percent | None = None
    """Share of the GPU time, in percent, in which the GPUs of ready pods were in use, calculated from GPU utilisation.
    Time without known utilisation is divided between busy and idle in the same proportion as the rest. Absent if the
    utilisation is known for less than half of the time."""
    idle_percent: Percent | None = None
    """Share of the GPU time, in percent, in which the GPUs of ready pods were not in use."""


class AdviceStatus(ApiModel):
    """A recommended change to the spec, based on recent measurements. Halcyon never makes the change itself."""

    rule: Short
    """Name of the advice rule that applies, as in the advice reference, for example `BatchAlwaysFull`."""
    field: Short
    """Field of the spec to change, for example `spec.batching.maxBatchSize`."""
    current_value: Short | None = None
    """Current value of the field in the spec. Absent if the field is not set."""
    value: Short
    """Recommended value of the field."""
    evidence: Long
    """Signals that led to the advice, with their values when the advice was first shown."""
    gain: Long
    """Expected gain from the recommended change, with figures."""
    gain_percent: Annotated[int, Field(ge=0, le=100)]
    """Expected gain as a percentage of the current time, replicas or capacity. Advice is sorted by this value."""
    since: Time
    """Time at which the rule began to apply."""


class Status(ApiModel):
    """Observed state of a ModelDeployment."""

    observed_generation: int | None = None
    """Generation of the spec to which this status refers; 0 until the operator has processed the object."""
    conditions: Annotated[tuple[ConditionStatus, ...], Field(max_length=24), ListMap(("type",))] | None = None
    """Conditions of the model. Ready, Accepted, ModelLoaded, ServersReady, BalancerReady and ScalingActive are always
    present; others, such as Reconciling and Stalled, only while they apply."""
    operator: Short | None = None
    """Halcyon installation that manages the model, as namespace and name of its Lease, for example
    `halcyon-system/halcyon`. Other installations do not change the model while this one runs."""
    conflicting_operator: Short | None = None
    """Halcyon installation that reports the condition OperatorConflict, as namespace and name of its Lease. It also
    watches the namespace, but does not change the model. Absent without that condition."""
    summary: Summary | None = None
    """Short texts for the columns of `kubectl get`."""
    replicas: Count | None = None
    """Number of server pods that exist."""
    ready_replicas: Count | None = None
    """Number of server pods that are ready."""
    pods: PodsStatus | None = None
    """Number of server pods, in total and by state."""
    selector: Long | None = None
    """Label selector of the server pods, for the scale subresource."""
    address: Address | None = None
    """Addresses of the model inside the cluster."""
    model: ModelStatus | None = None
    """State of the model as reported by Triton."""
    runtime_image: Annotated[str, Field(max_length=512)] | None = None
    """Triton image in use."""
    scaling: ScalingStatus | None = None
    """Last scaling decision, and the signals on which it is based."""
    capacity: CapacityStatus | None = None
    """Capacity of a replica, on which scaling decisions are based. Absent without an estimate or a measurement."""
    revision: RevisionStatus | None = None
    """Names of the serving revision and of the revision that the spec requires."""
    rollout: RolloutStatus | None = None
    """State of the rollout to the target revision."""
    cost: CostStatus | None = None
    """Cost and use of the model's GPUs over the last day, or since the operator began to record them. Absent for a
    model on CPU. Values are rounded. Shares are calculated at most once every ten minutes."""
    advice: Annotated[tuple[AdviceStatus, ...], Field(max_length=5), ListMap(("rule",))] | None = None
    """Recommended changes to the spec, at most 5, sorted by expected gain, largest first. Absent if there are none.
    Updated at most once every ten minutes."""
    cold_start: ColdStartStatus | None = None
    """Duration of the last start of a server pod, in total and by part, in whole seconds."""
