"""Schema of the `status` of a ModelDeployment. `halcyon.control.status.status` decides its content."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from halcyon.api.rollout_status import RevisionStatus, RolloutStatus
from halcyon.api.types import Count, Documented, ListMap, Long, Short, Time


class ConditionStatus(Documented):
    """One condition, as in the Kubernetes API conventions."""

    type: Short
    """Type of the condition, for example `Ready`."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    reason: Short
    """One-word reason, documented in the conditions reference."""
    message: Long
    """Human-readable details, including what to do if something is wrong."""
    observed_generation: int
    """Generation of the spec that the condition refers to."""
    last_transition_time: Time
    """Time at which the condition's status last changed."""


class Summary(Documented):
    """Short texts for the columns of `kubectl get`."""

    ready: Short | None = None
    """Ready pods and the current replica count, for example `2/3`."""
    desired: Short | None = None
    """Desired replicas: those of the last scaling decision, or else the current replica count."""
    range: Short | None = None
    """Minimum and maximum replicas of `spec.scaling`, for example `1-8`; absent without `spec.scaling`."""
    state: Short | None = None
    """Most important reason among the conditions."""
    queue: Short | None = None
    """Queued requests and, after a slash, the combined target for all ready servers if there is a target, for example
    `12/48`."""
    gpu: Short | None = None
    """Mean GPU utilisation of the ready servers, in percent."""
    batch: Short | None = None
    """Mean number of rows in a batch."""


class PodsStatus(Documented):
    """Number of server pods, in total and by state."""

    total: Count
    """Pods that exist."""
    ready: Count
    """Pods that are ready."""
    updated: Count
    """Pods of the target revision."""
    unschedulable: Count
    """Pods that the scheduler cannot find a node for."""
    pending: Count | None = None
    """Pods not yet assigned to a node, including the unschedulable ones. Absent if zero; the same applies to `pulling`,
    `fetching`, `loading`, `unready`, `failed` and `draining`."""
    pulling: Count | None = None
    """Pods that are waiting for their images or volumes."""
    fetching: Count | None = None
    """Pods that are fetching the model."""
    loading: Count | None = None
    """Pods in which Triton is loading the model and warming it up."""
    unready: Count | None = None
    """Pods that have served requests but are not ready now."""
    failed: Count | None = None
    """Pods that cannot start or have failed. The condition ServersReady or ModelLoaded gives the cause."""
    draining: Count | None = None
    """Pods that are stopping and finishing their in-flight requests; not included in `total`."""


class Address(Documented):
    """Addresses of the model inside the cluster."""

    url: Short
    """URL for KServe v2 over HTTP."""
    grpc: Short
    """Host and port for KServe v2 over gRPC."""
    headless: Short | None = None
    """DNS name that resolves to every ready server pod, for gRPC clients that do their own load balancing. Present only
    if spec.traffic.mode is not Balancer."""


class ModelStatus(Documented):
    """The model, as Triton reports it."""

    name: Short
    """Name of the model in requests."""
    versions: Annotated[tuple[Short, ...], Field(max_length=64)] | None = None
    """Versions that are ready."""
    error: Long | None = None
    """Triton's error message if the model is not loaded."""


class SignalStatus(Documented):
    """One signal that scaling uses."""

    name: Short
    """Name of the signal: requestRate (requests per second), queueDepth (queued requests), concurrency (requests in progress
    or waiting) or gpuUtilization (percent)."""
    value: Short | None = None
    """Total over all replicas, rounded; absent if the signal has no value now (see `missing`). A change of 20 % or less
    does not by itself cause an update."""
    target: Short | None = None
    """Target per replica; absent if the signal has no target."""
    proposal: Count | None = None
    """Replicas that the signal requires."""
    source: Short
    """Source of the value: `agents`, `scrape`, `prometheus` or `derived`."""
    observed_at: Time | None = None
    """Time at which the value was observed."""
    missing: Long | None = None
    """Reason why there is no value, if there is none."""


class PartStatus(Documented):
    """One part of a decision."""

    name: Short
    """Name of the part: rate, trend, season, spike, backlog, queueDepth, concurrency, metric, gpuUtilization or batch."""
    replicas: Count
    """Replicas that the part requires."""
    why: Long
    """Explanation, with numbers."""


class ServiceLineStatus(Documented):
    """Time of a batch with b rows: constant + b x per row, in one replica with this number of instances."""

    instances: Count
    """Number of instances of the model in the replica."""
    constant_milliseconds: Short
    """Time of a batch without its rows, in milliseconds, rounded."""
    per_row_milliseconds: Short
    """Time of each row, in milliseconds, rounded."""
    max_batch_size: Count
    """Number of rows in the largest batch."""


class CapacityStatus(Documented):
    """Capacity of a replica, and its source."""

    source: Short | None = None
    """Source of the capacity: Bench (a measurement by `halcyon bench --teach`, until 100 batches of traffic outweigh it), WarmUp (batch
    times in Triton's statistics before any request), BatchStatistics (the same, with traffic), TimeInPods (requests in execution
    divided by their time in a pod, at the balancers), Answers (answers of full pods, counted at the balancers), EngineMetrics (the same, while the engine's
    own metrics say that it is full) or Unknown."""
    requests_per_second: Short | None = None
    """Requests per second that a full replica answers, rounded; absent if unknown. A change of 20 % or less does not by
    itself cause an update."""
    sustained_requests_per_second: Short | None = None
    """Requests per second that one replica answers within `spec.scaling.targets.latency`, or at 80 % utilisation without one, rounded;
    absent if unknown."""
    lines: Annotated[tuple[ServiceLineStatus, ...], Field(max_length=8), ListMap(("instances",))] | None = None
    """Times of batches by the number of instances in a replica, that of the spec first. Absent if unknown, or if answers contradict
    them."""
    requests_at_once: Count | None = None
    """Requests that a replica executes at once, if batch times don't show how long they take."""
    observed_at: Time | None = None
    """Time of the measurement if the source is Bench, else of the decision that these figures are from."""
    revision: Short | None = None
    """Name of the ControllerRevision that the figures are for."""
    image: Annotated[str, Field(max_length=512)] | None = None
    """Triton image that the figures are for."""
    gpu_product: Short | None = None
    """GPU product that the figures are for; absent if neither the spec's nodeSelector nor the measurement names one."""
    why: Long | None = None
    """Reason for the source, with numbers."""
    ignored: Long | None = None
    """Reason why the ConfigMap NAME-capacity, a measured capacity, is ignored; absent if it isn't, or if there is none."""


class DecisionStatus(Documented):
    """A change to the desired replicas."""

    time: Time
    """Time of the decision."""
    before: Count
    """Desired replicas before the decision."""
    after: Count
    """Desired replicas after the decision."""
    why: Long
    """Explanation in one sentence."""


class ScalingStatus(Documented):
    """State of scaling: the last decision, and what it was based on."""

    actuator: Literal["HPA", "Direct"]
    """Component that writes spec.replicas: the HPA, or the operator itself (Direct)."""
    actuator_reason: Long
    """Reason why this actuator was chosen."""
    policy: Short
    """Algorithm that decides: Planner or Rules."""
    mode: Short
    """Whether decisions are written to spec.replicas: Active, Recommend or Paused."""
    desired: Count | None = None
    """Desired replicas."""
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
    """Parts of the decision, each with the replicas that it requires. The largest number applies."""
    signals: Annotated[tuple[SignalStatus, ...], Field(max_length=8), ListMap(("name",))] | None = None
    """Signals that the decision is based on."""
    decisions: Annotated[tuple[DecisionStatus, ...], Field(max_length=10)] | None = None
    """Most recent changes to the desired replicas, newest first, 10 at most."""


class ColdStartStatus(Documented):
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
    """Seconds from when the model was fetched and its configuration merged until Triton had loaded the model and warmed
    it up. They include the pull of the Triton image if it was not on the node."""


Percent = Annotated[int, Field(ge=-1000000, le=100)]


class CostStatus(Documented):
    """Cost and use of the model's GPUs over the last day.

    The period is shorter if the operator has not been recording for that long. Values are rounded; shares are
    calculated at most once every ten minutes.
    """

    gpus: Count
    """Number of GPUs of the pods that are assigned to a node."""
    currency: Short | None = None
    """Currency of the prices, as named by the site."""
    per_hour: Short | None = None
    """Cost per hour of the GPUs counted in `gpus`; absent if the site gives no price for such a GPU."""
    per_thousand_inferences: Short | None = None
    """Cost of 1000 inferences (rows); absent if there were fewer than 100 inferences, or if there is no price."""
    saving_percent: Percent | None = None
    """GPU time saved, in percent, compared with spec.scaling.maxReplicas running all the time."""
    starting_percent: Percent | None = None
    """Share of the GPU time, in percent, during which pods were assigned to a node but not ready."""
    busy_percent: Percent | None = None
    """Share of the GPU time, in percent, during which the GPUs of ready pods were in use, as measured by GPU
    utilisation. Time without a known utilisation counts as the known time did. Absent if less than half of it is known."""
    idle_percent: Percent | None = None
    """Share of the GPU time, in percent, during which the GPUs of ready pods were not in use."""


class AdviceStatus(Documented):
    """A change of the spec that would help, from the signals of the last minutes. Halcyon never makes it."""

    rule: Short
    """Name of the rule that applies, from the advice reference, for example `BatchAlwaysFull`."""
    field: Short
    """Field to change, for example `spec.batching.maxBatchSize`."""
    current_value: Short | None = None
    """Value of the field in the spec; absent if it isn't set."""
    value: Short
    """Advised value of the field."""
    evidence: Long
    """Signals that led to the advice, with numbers from the time when it was first shown."""
    gain: Long
    """Gain that is expected, with numbers."""
    gain_percent: Annotated[int, Field(ge=0, le=100)]
    """Gain that is expected, in percent of the time, the replicas or the capacity that the gain is about."""
    since: Time
    """Time since which the rule has applied."""


class Status(Documented):
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
    """The model, as Triton reports it."""
    runtime_image: Annotated[str, Field(max_length=512)] | None = None
    """Triton image in use."""
    scaling: ScalingStatus | None = None
    """State of scaling: the last decision, and what it was based on."""
    capacity: CapacityStatus | None = None
    """Capacity of a replica, with which scaling plans; absent if nothing is known, as with the policy Rules without a measurement."""
    revision: RevisionStatus | None = None
    """Revisions, identified by the names of their ControllerRevisions."""
    rollout: RolloutStatus | None = None
    """State of the rollout to the target revision."""
    cost: CostStatus | None = None
    """Cost and use of the model's GPUs over the last day; absent for a model on CPU. The period is shorter if the
    operator has not been recording for that long. Values are rounded; shares are calculated at most once every ten
    minutes."""
    advice: Annotated[tuple[AdviceStatus, ...], Field(max_length=5), ListMap(("rule",))] | None = None
    """Changes of the spec that would help, the largest gain first, 5 at most. Absent if there are none, or if the signals for
    them are unknown. Changed every ten minutes at most."""
    cold_start: ColdStartStatus | None = None
    """Duration of the last start of a server pod, in whole seconds, in total and by part."""
