"""Conditions of a ModelDeployment: their types, their reasons, and updates of the list in the status.

They follow the conventions of the Kubernetes API and of kstatus: `Reconciling` and `Stalled` are present only while they are true. Out of
scope: deciding when a condition is true (`halcyon.control.status.status`, with a truth table for each).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Type(StrEnum):
    """Types of a ModelDeployment's conditions, in the order in which the status lists them."""

    READY = "Ready"
    """The model answers requests as the last accepted spec requires: a balancer is ready, and a server is ready or the
    model is scaled to 0."""
    ACCEPTED = "Accepted"
    """The spec is valid, the objects that it names exist, and every object that it needs could be written."""
    MODEL_LOADED = "ModelLoaded"
    """Triton has loaded the model in a pod of the target revision, or of the revision that a rollback restored."""
    SERVERS_READY = "ServersReady"
    """All desired servers are ready."""
    BALANCER_READY = "BalancerReady"
    """At least one balancer is ready, or the routing mode has no balancers."""
    ROUTES_ACCEPTED = "RoutesAccepted"
    """The Gateway has accepted the model's routes. Present only if spec.traffic.gateway is set."""
    SCALING_ACTIVE = "ScalingActive"
    """The replicas follow the load, or are fixed because spec.scaling is not set."""
    OPERATOR_CONFLICT = "OperatorConflict"
    """Another Halcyon release also watches this namespace. This release does nothing for the model; the release in
    status.operator manages it. Present only while true."""
    AUTOSCALER_CONFLICT = "AutoscalerConflict"
    """Another controller or user also writes the replicas, so Halcyon has stopped scaling the model. Present only while true."""
    FIELD_IGNORED = "FieldIgnored"
    """A field of the spec has no effect because of other fields or of an external HPA. Present only while true."""
    TIMEOUT_MISMATCH = "TimeoutMismatch"
    """A timeout or delay in the spec conflicts with another time limit, or with the start time of the pods. Present
    only while true."""
    IMAGE_MISMATCH = "ImageMismatch"
    """The Triton image can't serve the model, or can't use the GPUs that its pods reserve. Present only while true."""
    POLICY_WARNING = "PolicyWarning"
    """The site policy advises against a value in the spec, but still accepts it. Present only while true."""
    RUNTIME_OUTDATED = "RuntimeOutdated"
    """The server pods still use the pod template of an earlier operator version or of other operator settings. They
    keep serving requests. `halcyon refresh` replaces them. Present only while true."""
    REQUESTS_FAILING = "RequestsFailing"
    """Every request to a pod fails in its backend, but the backend is not known to be dead, so the pod still receives
    requests. The cause is often a client whose requests the model rejects. Present only while true."""
    CAPACITY_CONTRADICTED = "CapacityContradicted"
    """The measured response times or rates of the pods contradict Triton's batch statistics. Therefore the planner uses
    the responses to calculate the capacity of a replica, or the number of useful replicas. Present only while true."""
    RECONCILING = "Reconciling"
    """The target revision is not fully rolled out yet. Scaling alone creates no revision. Present only while true."""
    STALLED = "Stalled"
    """The rollout or the model cannot progress until a user changes something, which the reason indicates. Present only
    while true."""


LOUD: Final[Mapping[str, str]] = {
    Type.STALLED: "True",
    Type.ACCEPTED: "False",
    Type.OPERATOR_CONFLICT: "True",
    Type.AUTOSCALER_CONFLICT: "True",
    Type.FIELD_IGNORED: "True",
    Type.TIMEOUT_MISMATCH: "True",
}
"""Condition types that need a user's attention. Each has the status that signals the problem, `True` or `False`."""


class Reason(StrEnum):
    """Reasons of a ModelDeployment's conditions. The text below each reason is its entry in the reference."""

    ACCEPTED = "Accepted"
    """The spec is valid, and the objects that it names exist."""
    INVALID = "Invalid"
    """The spec breaks a rule. The last accepted spec stays in effect."""
    POLICY_DENIED = "PolicyDenied"
    """The spec exceeds a limit of the site policy. The last accepted spec stays in effect. The message names the field,
    its value and the limit."""
    POLICY_ADVICE = "PolicyAdvice"
    """The spec is accepted, but exceeds a limit of the site policy that only causes a warning. The message names the
    field, its value and the limit."""
    QUEUE_DELAY_TOO_LONG = "QueueDelayTooLong"
    """The maximum time that Triton waits for a fuller batch is longer than clients wait for a response. A result that
    arrives after the client has given up is wasted work."""
    QUEUE_TIMEOUT_TOO_SHORT = "QueueTimeoutTooShort"
    """The queue timeout is shorter than the last start of a pod. A request that arrives at zero replicas would
    therefore be rejected before a pod is ready."""
    IMAGE_UNSUITABLE = "ImageUnsuitable"
    """The name of the image shows that the image lacks a server, the model's backend, or support for GPUs. The message
    names the fields and an image that fits."""
    SOURCE_NOT_FOUND = "SourceNotFound"
    """The ConfigMap of the model's source, one of its keys, or the PersistentVolumeClaim does not exist."""
    CONFLICT = "Conflict"
    """An object that this ModelDeployment needs already exists and has another owner. Halcyon does not change it."""
    FORBIDDEN = "Forbidden"
    """The API server rejected a write by the operator: its role lacks a permission, or a policy or quota forbids the write."""

    LOADED = "Loaded"
    """Triton has loaded the model in at least one pod."""
    LOADING = "Loading"
    """Pods have started, but it is not known yet whether Triton can load the model."""
    LOAD_FAILED = "LoadFailed"
    """Triton could not load the model. The message is Triton's error."""
    MODEL_CONFIG_INVALID = "ModelConfigInvalid"
    """The model's config.pbtxt is invalid or cannot be merged with the spec. An error in a ConfigMap is found before a
    pod starts, and the last accepted spec stays in effect. An error in any other source is found by the first pod."""
    MODEL_SOURCE_NOT_FOUND = "ModelSourceNotFound"
    """The model's folder does not exist in the source, or has no version folder."""
    MODEL_DOWNLOAD_FAILED = "ModelDownloadFailed"
    """The object store or web server of the model cannot be reached or rejects the download. Pods retry."""

    SERVERS_READY = "ServersReady"
    """All desired servers are ready."""
    PARTIALLY_READY = "PartiallyReady"
    """Some of the desired servers are ready."""
    NO_SERVERS_READY = "NoServersReady"
    """No server is ready."""
    SCALED_TO_ZERO = "ScaledToZero"
    """The number of desired replicas is 0."""
    UNSCHEDULABLE = "Unschedulable"
    """The scheduler finds no node for a pod. The message is the scheduler's."""
    IMAGE_PULL_FAILED = "ImagePullFailed"
    """An image cannot be pulled."""
    BACKEND_DEAD = "BackendDead"
    """No server is ready, and there is proof that the backend of a pod is dead. The pod gets no requests, and its
    container restarts. The message gives the proof, for example how a Python process ended."""
    BACKEND_ERRORS = "BackendErrors"
    """Every request fails in the backend of at least one pod. The message gives the number of such pods and names
    one."""
    CONTAINER_FAILED = "ContainerFailed"
    """A container of a pod fails repeatedly."""
    START_BLOCKED = "StartBlocked"
    """A container that an admission webhook added to a pod fails, or prevents the pod from becoming ready. Such a
    failure does not roll back a revision."""
    DEPLOYMENT_PAUSED = "DeploymentPaused"
    """The Deployment of the servers is paused, for example by `kubectl rollout pause`, so no pod gets the new revision."""
    WRITES_FAILING = "WritesFailing"
    """The API server repeatedly fails to write an object of the model, for example because an admission webhook does
    not respond. Halcyon retries. The message names the object and contains the API server's reason."""
    POD_CREATION_FAILED = "PodCreationFailed"
    """No pod is ready, and pods cannot be created because of a quota, a policy or a missing object. The message is the
    API server's. If some pods are ready, the reason is `PartiallyReady`, with the same message."""

    BALANCER_READY = "BalancerReady"
    """At least one balancer is ready."""
    BALANCER_NOT_READY = "BalancerNotReady"
    """No balancer is ready."""
    NO_BALANCER = "NoBalancer"
    """spec.traffic.mode selects a mode without balancers: clients reach the servers directly."""

    BALANCER_DEGRADED = "BalancerDegraded"
    """A balancer cannot do everything that the spec requests, or soon will not be able to. For example, a Secret of
    spec.traffic.tls is missing or invalid, or its certificate is about to expire. The message gives the cause.
    BalancerReady is still True if a balancer is ready."""

    ROUTES_ACCEPTED = "RoutesAccepted"
    """The Gateway has accepted the routes."""
    ROUTES_PENDING = "RoutesPending"
    """The Gateway has not reported a result for the routes yet."""
    ROUTES_REJECTED = "RoutesRejected"
    """The Gateway rejected the routes. The message includes the reason that the Gateway controller gives."""
    ROUTE_CONFLICT = "RouteConflict"
    """An older route, of another model, matches the same requests and receives them."""
    GATEWAY_API_MISSING = "GatewayAPIMissing"
    """The Gateway API is not installed in the cluster. Halcyon writes the routes as soon as it is."""

    SCALING_ACTIVE = "ScalingActive"
    """The replicas follow the load. The message gives the decision, the maximum time until the next one, and the state
    of the desired pods that are not ready."""
    FIXED_REPLICAS = "FixedReplicas"
    """spec.scaling is not set, so the number of replicas is fixed at spec.replicas."""
    METRICS_MISSING = "MetricsMissing"
    """A metric is missing or stale. The replicas stay as they are."""
    HPA_INACTIVE = "HPAInactive"
    """The HPA reports that it cannot scale. The message is the HPA's."""
    SCALING_DISABLED = "ScalingDisabled"
    """spec.replicas is 0, which disables spec.scaling.policy `Rules`, as it disables an HPA. The minimum number of
    replicas runs. To enable scaling, set spec.replicas to this number."""
    EXTERNAL_AUTOSCALER = "ExternalAutoscaler"
    """Another autoscaler targets this ModelDeployment, or the Deployment of its servers. Halcyon has stopped scaling
    the model."""
    EXTERNAL_WRITER = "ExternalWriter"
    """Another controller or user repeatedly sets spec.replicas to values other than the autoscaler's. Halcyon has
    stopped scaling the model."""
    RELEASE_OVERLAP = "ReleaseOverlap"
    """Two Halcyon releases watch this namespace, but only one may. The message names both by the namespaces and names
    of their Leases."""
    PAUSED = "Paused"
    """spec.scaling.mode is `Paused`: the replicas stay as they are. The message gives the decision that is not
    applied."""
    RECOMMENDING = "Recommending"
    """spec.scaling.mode is `Recommend`: decisions are not applied. The message gives the last decision."""
    NO_EFFECT = "NoEffect"
    """Some fields of the spec have no effect. The message names them, the cause, and the change that is needed."""

    ANSWERS_DISAGREE = "AnswersDisagree"
    """Requests take longer in pods than Triton's batch times suggest, or pods answer fewer requests than these times
    suggest. The usual cause is a model that responds only after its function `execute` has returned. The message gives
    the numbers."""
    SHARED_LIMIT = "SharedLimit"
    """More pods answered no more requests than fewer pods did, although every pod was fully loaded. The pods share a
    limit, such as a lock, a database or a GPU. The planner adds no replicas for now, and retries after 30 minutes."""

    READY = "Ready"
    """The model answers requests."""
    PROGRESSING = "Progressing"
    """The target revision is not fully rolled out yet."""
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    """The revision did not become ready before its progress deadline, which is spec.runtime.startupTimeout plus one minute."""
    ROLLOUT_BLOCKED = "RolloutBlocked"
    """The cluster has no capacity for a pod of the new revision in addition to the pods of the old one, which keep
    serving requests. The message names what is missing. After the progress deadline the model is also Stalled."""
    CANARY_ANALYSIS_FAILED = "CanaryAnalysisFailed"
    """The analysis showed that a canary is worse than the serving revision. The message gives the measured values."""
    CANARY_PAUSED = "CanaryPaused"
    """A step of a canary is paused until someone resumes the rollout. The message says how to continue."""
    CANARY_ABORTED = "CanaryAborted"
    """A user has aborted a canary."""
    POD_TEMPLATE_OUTDATED = "PodTemplateOutdated"
    """This operator version would create different server pods from the same spec. The message gives the differences
    and what to do. An upgrade does not restart pods by itself."""
    ROLLED_BACK = "RolledBack"
    """The target revision failed, and the previous one serves again. The message gives the cause and what to do."""
    UNKNOWN = "Unknown"
    """Nothing is known yet about the state that the condition describes."""


@dataclass(frozen=True)
class Condition:
    """Condition of a ModelDeployment, without the time of its last transition, which `keep` adds."""

    type: Type
    status: bool | None
    """Status of the condition: True, False, or None for Unknown."""
    reason: Reason
    message: str

    def status_text(self) -> str:
        """Return the status of the condition in the form of the API: `True`, `False` or `Unknown`."""
        return "Unknown" if self.status is None else str(self.status)


MESSAGE_LIMIT = 1024
_PLACES = {kind: place for place, kind in enumerate(Type)}


def ending(message: str, end: str) -> str:
    """Return the message followed by `end`.

    If the result would exceed the length limit, shorten the message and keep `end` complete.
    """
    room = MESSAGE_LIMIT - len(end)
    return (message if len(message) <= room else f"{message[: room - 1]}…") + end


def keep(
    decided: Iterable[Condition], before: Iterable[Mapping[str, Any]], *, generation: int, now: str
) -> list[dict[str, Any]]:
    """Return the list of conditions for the status, in the order of `Type`.

    `before` is the list in the current status. A condition keeps its `lastTransitionTime` if its status has not
    changed. Otherwise the time is `now`, in RFC 3339 with whole seconds.
    """
    earlier = {str(c.get("type")): c for c in before}
    entries = []
    for condition in sorted(decided, key=lambda c: _PLACES[c.type]):
        old = earlier.get(condition.type)
        same = old is not None and old.get("status") == condition.status_text()
        entries.append(
            {
                "type": condition.type.value,
                "status": condition.status_text(),
                "reason": condition.reason.value,
                "message": condition.message[:MESSAGE_LIMIT],
                "observedGeneration": generation,
                "lastTransitionTime": old.get("lastTransitionTime", now) if same and old else now,
            }
        )
    return entries


def find(conditions: Iterable[Condition], condition_type: Type) -> Condition | None:
    """Return the condition of the given type from a list; None if the list has none."""
    return next((c for c in conditions if c.type is condition_type), None)
