"""Schema of the `status` of a ModelDeployment. The values are computed in `halcyon.control.status.status`."""

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
    """One condition, as in the Kubernetes API conventions."""

    type: Short
    """Type of the condition, for example `Ready`."""
    status: Literal["True", "False", "Unknown"]
    """Status of the condition: `True`, `False` or `Unknown`."""
    reason: Short
    """Reason in one word, which the conditions reference documents."""
    message: Long
    """Details in plain words, including what to do if something is wrong."""
    observed_generation: int
    """Generation of the spec that the condition refers to."""
    last_transition_time: Time
    """Time at which the condition's status last changed."""


class Summary(_Documented):
    """Short texts for the columns of `kubectl get`."""

    ready: Short | None = None
    """Number of ready pods, and current number of replicas, for example `2/3`."""
    desired: Short | None = None
    """Desired replicas: those of the last scaling decision, or else the current replica count."""
    range: Short | None = None
    """Minimum and maximum replicas of `spec.scaling`, for example `1-8`; absent without `spec.scaling`."""
    state: Short | None = None
    """Most important reason among the conditions of the model."""
    queue: Short | None = None
    """Number of queued requests, and after a slash the target for all ready servers, if there is one, for example
    `12/48`."""
    gpu: Short | None = None
    """Mean GPU utilisation of the ready servers, in percent."""
    batch: Short | None = None
    """Mean number of rows in a batch that Triton computes."""


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
"""Causes for which failed pods are counted apart."""


class FailureCount(_Documented):
    """Number of failed pods with one cause."""

    reason: FailureCause
    """Cause of the failure. `OOMKilled`: a container exceeded its memory limit. `Evicted`: the node lacked a resource.
    `ContainerFailed`: a container fails repeatedly for another reason. `Other`: a pod that ended, for example with
    its node. The others are those of conditions."""
    pods: Annotated[int, Field(ge=1, le=1000000)]
    """Pods that have failed for this cause."""


class PodsStatus(_Documented):
    """Number of server pods, in total and by state."""

    total: Count
    """Number of pods that exist."""
    ready: Count
    """Number of pods that are ready."""
    updated: Count
    """Number of pods of the target revision."""
    unschedulable: Count
    """Number of pods for which the scheduler finds no node."""
    pending: Count | None = None
    """Number of pods that are not assigned to a node yet, including the unschedulable ones. Absent if zero; the same
    applies to `pulling`, `fetching`, `loading`, `unready`, `failed` and `draining`."""
    pulling: Count | None = None
    """Number of pods that are waiting for their images or volumes."""
    fetching: Count | None = None
    """Number of pods that are downloading the model or preparing its files."""
    loading: Count | None = None
    """Number of pods in which Triton is loading the model and warming it up."""
    unready: Count | None = None
    """Number of pods that have served requests but are not ready now."""
    failed: Count | None = None
    """Number of pods that cannot start or have failed. The condition ServersReady or ModelLoaded has the cause."""
    failures: Annotated[tuple[FailureCount, ...], Field(max_length=8), ListMap(("reason",))] | None = None
    """Numbers of failed pods by cause. Absent if `failed` is absent."""
    draining: Count | None = None
    """Number of pods that are finishing their in-flight requests before they stop; not included in `total`."""


class Address(_Documented):
    """Addresses of the model inside the cluster."""

    url: Short
    """URL of the model for the KServe v2 protocol over HTTP."""
    grpc: Short
    """Host and port of the model for the KServe v2 protocol over gRPC."""
    headless: Short | None = None
    """DNS name that resolves to every ready server pod, for gRPC clients that do their own load balancing. Present only
    if spec.traffic.mode is not Balancer."""


class ModelStatus(_Documented):
    """Name, versions and errors of the model, as Triton reports them."""

    name: Short
    """Name of the model in inference requests."""
    versions: Annotated[tuple[Short, ...], Field(max_length=64)] | None = None
    """Versions of the model that are ready."""
    error: Long | None = None
    """Triton's error message if the model could not be loaded."""


class SignalStatus(_Documented):
    """Signal that scaling uses, for example the request rate."""

    name: Short
    """Name of the signal: requestRate (requests per second), queueDepth (queued requests), concurrency (requests in progress
    or waiting) or gpuUtilization (percent)."""
    value: Short | None = None
    """Value of the signal over all replicas, rounded; absent if there is no value now (see `missing`). A change of 20 %
    or less does not by itself cause an update."""
    target: Short | None = None
    """Target of the signal per replica; absent if there is none."""
    proposal: Count | None = None
    """Number of replicas that the signal requires."""
    source: Short
    """Source of the value: `agents`, `scrape`, `prometheus` or `derived`."""
    observed_at: Time | None = None
    """Time at which the value was observed."""
    missing: Long | None = None
    """Reason why the signal has no value; absent if it has one."""


class PartStatus(_Documented):
    """Part of a scaling decision, for example the part for the request rate."""

    name: Short
    """Name of the part: rate, trend, season, spike, backlog, queueDepth, concurrency, metric, gpuUtilization or batch."""
    replicas: Count
    """Number of replicas that the part requires."""
    why: Long
    """Explanation of the part in one sentence, with numbers."""


class ServiceLineStatus(_Documented):
    """Execution time of a batch in a replica with this number of instances: constant + per row x number of rows."""

    instances: Count
    """Number of instances of the model in the replica."""
    constant_milliseconds: Short
    """Constant part of a batch's execution time, in milliseconds, rounded."""
    per_row_milliseconds: Short
    """Execution time for each row of a batch, in milliseconds, rounded."""
    max_batch_size: Count
    """Number of rows in the largest batch that was observed."""


class CapacityStatus(_Documented):
    """Capacity of a replica, and its source."""

    source: Short | None = None
    """Method of measuring the capacity. Bench: `halcyon bench --teach`, until 100 batches of traffic outweigh
    it. WarmUp: batch times in Triton's statistics before any request. BatchStatistics: the same, with traffic.
    TimeInPods: requests in execution divided by their time in a pod, at the balancers. Answers: answers of full pods,
    counted at the balancers. EngineMetrics: as Answers, while the engine reports that it is full. Or Unknown."""
    requests_per_second: Short | None = None
    """Requests per second that a full replica answers, rounded; absent if unknown. A change of 20 % or less does not by
    itself cause an update."""
    sustained_requests_per_second: Short | None = None
    """Requests per second that one replica answers within `spec.scaling.targets.latency`, or at 80 % utilisation without one, rounded;
    absent if unknown."""
    lines: Annotated[tuple[ServiceLineStatus, ...], Field(max_length=8), ListMap(("instances",))] | None = None
    """Execution times of batches for each number of instances in a replica, that of the spec first. Absent if unknown,
    or if the measured answers contradict them."""
    requests_at_once: Count | None = None
    """Number of requests that a replica executes at once; only if batch times don't show how long requests take."""
    observed_at: Time | None = None
    """Time of the measurement if the source is Bench, else of the decision from which these figures are."""
    revision: Short | None = None
    """Name of the ControllerRevision to which the figures apply."""
    image: Annotated[str, Field(max_length=512)] | None = None
    """Triton image to which the figures apply."""
    gpu_product: Short | None = None
    """GPU product to which the figures apply; absent if neither the nodeSelector nor the measurement names one."""
    why: Long | None = None
    """Reason why this method was chosen, with numbers."""
    ignored: Long | None = None
    """Reason why the measured capacity in the ConfigMap NAME-capacity is ignored; absent if it isn't."""


class DecisionStatus(_Documented):
    """Change of the desired replicas by one decision."""

    time: Time
    """Time of the decision."""
    before: Count
    """Desired replicas before the decision."""
    after: Count
    """Desired replicas after the decision."""
    why: Long
    """Explanation of the change in one sentence."""


class ScalingStatus(_Documented):
    """State of scaling: the last decision, and the signals and parts from which it was made."""

    actuator: Literal["HPA", "Direct"]
    """Component that writes spec.replicas: the HPA, or the operator itself (`Direct`)."""
    actuator_reason: Long
    """Reason why this actuator was chosen."""
    policy: Short
    """Algorithm that decides: Planner or Rules."""
    mode: Short
    """Whether decisions are written to spec.replicas: Active, Recommend or Paused."""
    desired: Count | None = None
    """Number of desired replicas."""
    current: Count | None = None
    """Number of replicas at the time of the decision."""
    limited_by: Annotated[tuple[Short, ...], Field(max_length=8)] | None = None
    """Limits that overrode the replicas derived from the signals, or kept the replicas unchanged: min, max, hold, veto,
    idle, learning, unknown and others."""
    why: Long | None = None
    """Explanation of the last decision in one sentence."""
    decided_at: Time | None = None
    """Time of the decision that is shown. A later decision replaces it only if its content differs."""
    parts: Annotated[tuple[PartStatus, ...], Field(max_length=8), ListMap(("name",))] | None = None
    """Parts of the decision, each with the replicas that it requires. The part with the most replicas decides."""
    signals: Annotated[tuple[SignalStatus, ...], Field(max_length=8), ListMap(("name",))] | None = None
    """Signals that the decision is based on."""
    decisions: Annotated[tuple[DecisionStatus, ...], Field(max_length=10)] | None = None
    """Most recent changes to the desired replicas, newest first, 10 at most."""


class ColdStartStatus(_Documented):
    """Duration of the last start of a server pod, in whole seconds."""

    pod: Short
    """Name of the pod."""
    ready_at: Time
    """Time at which the pod became ready."""
    seconds: Count
    """Seconds from the pod's creation until it was ready."""
    scheduling_seconds: Count | None = None
    """Seconds from the pod's creation until it was assigned to a node."""
    pulling_seconds: Count | None = None
    """Seconds from when the pod was assigned to a node until its first container ran, spent on images and volumes."""
    fetching_seconds: Count | None = None
    """Seconds from the start of the first container until the model was fetched and its configuration merged."""
    loading_seconds: Count | None = None
    """Seconds from when the model was fetched and its configuration merged until Triton had loaded and warmed up the
    model. They include the pull of the Triton image if it was not on the node."""


Percent = Annotated[int, Field(ge=-1000000, le=100)]


class CostStatus(_Documented):
    """Cost and utilisation of the model's GPUs over the last day.

    The period is shorter if the operator has not been recording for that long. Values are rounded; shares are
    calculated at most once every ten minutes.
    """

    gpus: Count
    """Number of GPUs of the pods that are assigned to a node."""
    currency: Short | None = None
    """Currency of the prices, as named by the site."""
    per_hour: Short | None = None
    """Cost per hour of the GPUs counted in `gpus`; absent if the site gives no price for one of them."""
    per_thousand_inferences: Short | None = None
    """Cost of 1000 inferences (rows); absent if there were fewer than 100 inferences, or if there is no price."""
    saving_percent: Percent | None = None
    """GPU time saved, in percent, compared with spec.scaling.maxReplicas running all the time."""
    starting_percent: Percent | None = None
    """Share of the GPU time, in percent, during which pods were assigned to a node but not ready."""
    busy_percent: Percent | None = None
    """Share of the GPU time, in percent, during which the GPUs of ready pods were in use, as measured by GPU
    utilisation. Times with an unknown utilisation count with the mean of the others. Absent if known for less than half
    of the time."""
    idle_percent: Percent | None = None
    """Share of the GPU time, in percent, during which the GPUs of ready pods were not in use."""


class AdviceStatus(_Documented):
    """Recommended change of the spec, from the signals of the last minutes. Halcyon never makes it by itself."""

    rule: Short
    """Name of the advice rule that applies, as in the advice reference, for example `BatchAlwaysFull`."""
    field: Short
    """Field of the spec to change, for example `spec.batching.maxBatchSize`."""
    current_value: Short | None = None
    """Present value of the field in the spec; absent if it isn't set."""
    value: Short
    """Advised value of the field."""
    evidence: Long
    """Signals that led to the advice, with the numbers at the time when the advice was first shown."""
    gain: Long
    """Benefit that is expected from the change, with numbers."""
    gain_percent: Annotated[int, Field(ge=0, le=100)]
    """Expected benefit as a percentage of the time, the replicas or the capacity that the change improves."""
    since: Time
    """Time since which the advice rule has applied."""


class RevisionStatus(_Documented):
    """Revisions, identified by the names of their ControllerRevisions."""

    current: Short | None = None
    """Revision that is serving requests."""
    target: Short | None = None
    """Revision that the accepted spec requires."""


class FailedRevision(_Documented):
    """Target revision, if it failed and does not serve."""

    revision: Short
    """Name of the ControllerRevision of the failed revision."""
    reason: Short
    """Reason of the failure in one word, as in the conditions."""
    message: Long
    """Cause of the failure; Triton's error message if there is one."""
    finished_at: Time
    """Time at which the operator gave up the rollout."""


class PastRollout(_Documented):
    """Result of the most recent rollout of a revision."""

    revision: Short
    """Name of the ControllerRevision."""
    result: Literal["Served", "Failed", "Superseded"]
    """Result of the rollout. Superseded: the spec changed to another revision before this one was reached."""
    finished_at: Time
    """Time at which the rollout ended."""
    message: Long | None = None
    """Reason why the revision did not go into service, if it did not."""


class CanaryStatus(_Documented):
    """A canary in progress."""

    step: Count
    """Number of the current step, from 1."""
    weight: Count
    """Share of the requests, in percent, that the canary receives once one of its pods is ready."""
    pods: Count
    """Number of pods of the canary."""
    paused: bool | None = None
    """True while the step waits for a person; absent otherwise. The message says how to continue."""


class RolloutStatus(_Documented):
    """State of the rollout to the target revision."""

    phase: Literal["Complete", "Progressing", "Blocked", "Failed", "RollingBack", "RolledBack"]
    """Phase of the rollout. Blocked: there is no capacity for the target revision. Failed: the target revision failed
    and stays in place. RolledBack: the target revision failed, and the previous revision is serving."""
    strategy: Literal["Surge", "Replace", "Canary"]
    """Strategy in use; if spec.rollout.strategy is Auto, the one that it has chosen."""
    strategy_reason: Long | None = None
    """Reason why Replace is the strategy in use."""
    canary: CanaryStatus | None = None
    """State of the canary; present only while one is in progress."""
    message: Long | None = None
    """State of the rollout in plain words: its cause, and what to do."""
    started_at: Time | None = None
    """Time at which the rollout to the target revision started."""
    failed: FailedRevision | None = None
    """Target revision, if it failed. Its rollout is not tried again until the spec changes."""
    history: Annotated[tuple[PastRollout, ...], Field(max_length=10)] | None = None
    """Results of the last rollouts, newest first."""


class Status(_Documented):
    """Observed state of a ModelDeployment."""

    observed_generation: int | None = None
    """Generation of the spec that this status refers to; 0 until the operator has seen the object."""
    conditions: Annotated[tuple[ConditionStatus, ...], Field(max_length=24), ListMap(("type",))] | None = None
    """Conditions of the model. Ready, Accepted, ModelLoaded, ServersReady, BalancerReady and ScalingActive are always
    present; others, such as Reconciling and Stalled, only while they apply."""
    operator: Short | None = None
    """Halcyon release that manages the model: namespace and name of its Lease, for example `halcyon-system/halcyon`. Another
    release leaves the model alone while this one runs."""
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
    """Name, versions and errors of the model, as Triton reports them."""
    runtime_image: Annotated[str, Field(max_length=512)] | None = None
    """Triton image in use."""
    scaling: ScalingStatus | None = None
    """State of scaling: the last decision, and the signals and parts from which it was made."""
    capacity: CapacityStatus | None = None
    """Capacity of a replica that scaling uses; absent if unknown, as with the policy Rules without a measurement."""
    revision: RevisionStatus | None = None
    """Revisions, identified by the names of their ControllerRevisions."""
    rollout: RolloutStatus | None = None
    """State of the rollout to the target revision."""
    cost: CostStatus | None = None
    """Cost and utilisation of the model's GPUs over the last day; absent for a model on CPU. The period is shorter if
    the operator has not been recording for that long. Values are rounded; shares are calculated at most once every ten
    minutes."""
    advice: Annotated[tuple[AdviceStatus, ...], Field(max_length=5), ListMap(("rule",))] | None = None
    """Changes of the spec that would help, in order of decreasing benefit, 5 at most. Absent if there are none, or if
    the signals for them are unknown. Updated every ten minutes at most."""
    cold_start: ColdStartStatus | None = None
    """Duration of the last start of a server pod, in whole seconds, in total and by part."""
