"""Conditions of a ModelDeployment: their types, their reasons, and how a list of them is kept.

What makes a condition true stands in `halcyon.control.status.status`, with a truth table above each. The conventions are those
of the Kubernetes API and of kstatus: `Reconciling` and `Stalled` are there only while they are true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Type(StrEnum):
    """Types, in the order in which they are shown."""

    READY = "Ready"
    """Requests are answered: the spec is accepted, a balancer is ready, and a server is ready or the count is 0."""
    ACCEPTED = "Accepted"
    """The spec is valid, what it names exists, and every object it needs could be written."""
    MODEL_LOADED = "ModelLoaded"
    """Triton has loaded the model in a pod of the revision asked for, or of the one that was gone back to."""
    SERVERS_READY = "ServersReady"
    """As many servers are ready as wanted."""
    BALANCER_READY = "BalancerReady"
    """A balancer is ready, or none is wanted."""
    ROUTES_ACCEPTED = "RoutesAccepted"
    """The Gateway has taken the model's routes. There only where spec.traffic.gateway names one."""
    SCALING_ACTIVE = "ScalingActive"
    """The count follows the load, or is fixed because `scaling` is left out."""
    AUTOSCALER_CONFLICT = "AutoscalerConflict"
    """Somebody else writes the count, too; Halcyon has stepped back. There only while it is so."""
    FIELD_IGNORED = "FieldIgnored"
    """A field of the spec has no effect as the rest stands. There only while it is so."""
    TIMEOUT_MISMATCH = "TimeoutMismatch"
    """Two times of the spec work against each other. There only while it is so."""
    POLICY_WARNING = "PolicyWarning"
    """The site's policy advises against something that it still takes. There only while it is so."""
    RUNTIME_OUTDATED = "RuntimeOutdated"
    """The servers are made as an earlier version or other settings of the operator rendered them; it serves as it is. There only while
    it is so; `halcyon refresh` ends it."""
    RECONCILING = "Reconciling"
    """The revision asked for isn't reached yet. A changed count is no new revision."""
    STALLED = "Stalled"
    """It will not go on without a person: the reason says what to change."""


LOUD: Final[Mapping[str, str]] = {
    Type.STALLED: "True",
    Type.ACCEPTED: "False",
    Type.AUTOSCALER_CONFLICT: "True",
    Type.FIELD_IGNORED: "True",
    Type.TIMEOUT_MISMATCH: "True",
}
"""Conditions that a person should read, and the status that makes them so."""


class Reason(StrEnum):
    """Reasons; the text under each is its documentation."""

    ACCEPTED = "Accepted"
    """The spec is valid and what it names exists."""
    INVALID = "Invalid"
    """The spec breaks a rule; what was accepted last keeps serving."""
    POLICY_DENIED = "PolicyDenied"
    """The spec asks for more than this site's policy allows; what was accepted last keeps serving. The message names field, value and
    limit."""
    POLICY_ADVICE = "PolicyAdvice"
    """The site takes the spec as it is, and will not always: the message names field, value and limit."""
    WAITS_TOO_LONG = "WaitsTooLong"
    """Triton may wait longer for a fuller batch than anybody waits for the answer: what is computed then is computed for nobody."""
    SOURCE_NOT_FOUND = "SourceNotFound"
    """The ConfigMap, one of its keys, or the claim of the model's source doesn't exist."""
    CONFLICT = "Conflict"
    """An object that this ModelDeployment needs exists and belongs to somebody else; it is left untouched."""
    FORBIDDEN = "Forbidden"
    """The API server refused one of the operator's writes: its role lacks a permission, or a policy or quota says no."""

    LOADED = "Loaded"
    """Triton has loaded the model in at least one pod."""
    LOADING = "Loading"
    """Pods have started and no result is known yet."""
    LOAD_FAILED = "LoadFailed"
    """Triton could not load the model; the message is Triton's own."""
    MODEL_CONFIG_INVALID = "ModelConfigInvalid"
    """The model's config.pbtxt is broken or can't be merged with the spec."""
    MODEL_SOURCE_NOT_FOUND = "ModelSourceNotFound"
    """The source has no such folder, or no version folder in it."""
    MODEL_STORE_FAILED = "ModelStoreFailed"
    """The object store or web server that the model is downloaded from can't be reached, or says no. Pods try again."""

    SERVERS_READY = "ServersReady"
    """As many servers are ready as wanted."""
    PARTLY_READY = "PartlyReady"
    """Some of the servers wanted are ready."""
    NONE_READY = "NoneReady"
    """No server is ready."""
    SCALED_TO_ZERO = "ScaledToZero"
    """The count is 0, as asked."""
    UNSCHEDULABLE = "Unschedulable"
    """The scheduler finds no node for a pod; the message is its own."""
    IMAGE_PULL_FAILED = "ImagePullFailed"
    """An image can't be pulled."""
    CONTAINER_FAILED = "ContainerFailed"
    """A container of a pod ends again and again."""
    POD_REFUSED = "PodRefused"
    """Pods can't be created, and none is ready: a quota, a policy or a missing object; the message is the API server's. With some
    ready it stands in the message of `PartlyReady`."""

    BALANCER_READY = "BalancerReady"
    """At least one balancer is ready."""
    BALANCER_NOT_READY = "BalancerNotReady"
    """No balancer is ready."""
    NO_BALANCER = "NoBalancer"
    """spec.traffic.balancer asks for none: clients reach the servers themselves."""

    BALANCER_TROUBLE = "BalancerTrouble"
    """A balancer can't do all that it was asked to, or will soon not, for example because a Secret of spec.traffic.tls lacks or is
    broken, or its certificate expires; the message says why. True where one serves nevertheless."""

    ROUTES_ACCEPTED = "RoutesAccepted"
    """The Gateway has taken them."""
    ROUTES_PENDING = "RoutesPending"
    """The Gateway has said nothing of them yet."""
    ROUTES_REFUSED = "RoutesRefused"
    """The Gateway doesn't take them; the message is its controller's own."""
    ROUTE_CONFLICT = "RouteConflict"
    """Another model's route, which is older, asks the Gateway for the same requests, and gets them."""
    GATEWAY_API_MISSING = "GatewayApiMissing"
    """The cluster has no Gateway API; routes are written as soon as it has."""

    SCALING_ACTIVE = "ScalingActive"
    """The count follows the load. The message has the decision, when the next is due at the latest, and what becomes of pods that are wanted and not ready."""
    FIXED = "Fixed"
    """There is no `scaling`: spec.replicas is the count."""
    METRICS_MISSING = "MetricsMissing"
    """A metric is missing or stale; the count holds."""
    HPA_INACTIVE = "HPAInactive"
    """The HPA says that it can't scale; the message is its own."""
    FOREIGN_AUTOSCALER = "ForeignAutoscaler"
    """Another autoscaler targets this ModelDeployment, or the Deployment of its servers; Halcyon has stepped back."""
    FOREIGN_WRITER = "ForeignWriter"
    """Somebody sets spec.replicas again and again, against the autoscaler; Halcyon has stepped back."""
    PAUSED = "Paused"
    """spec.scaling.mode says that the count stays; the message says what would be done."""
    RECOMMENDING = "Recommending"
    """spec.scaling.mode says that nothing is done; the message says what would be."""
    NO_EFFECT = "NoEffect"
    """The message names the fields, why, and what makes them count."""

    READY = "Ready"
    """Requests are answered."""
    PROGRESSING = "Progressing"
    """The revision asked for isn't reached yet."""
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    """The revision didn't become ready within its startup timeout."""
    ROLLOUT_BLOCKED = "RolloutBlocked"
    """A new revision finds no room beside the old one, which serves on; the message says what is missing. Stalled once the
    startup timeout has passed, too."""
    CANARY_WORSE = "CanaryWorse"
    """A canary was shown to be worse than the revision that serves; the message has the numbers."""
    CANARY_ABORTED = "CanaryAborted"
    """A person has ended a canary."""
    RENDERED_EARLIER = "RenderedEarlier"
    """The operator would render the servers otherwise now; the message says what differs and what to do. An upgrade restarts no pod by
    itself."""
    ROLLED_BACK = "RolledBack"
    """The revision asked for failed and the one before serves again; the message says why and what to do."""
    UNKNOWN = "Unknown"
    """Nothing is known yet."""


@dataclass(frozen=True)
class Condition:
    """One condition as decided now; when it changed is the list's business."""

    type: Type
    status: bool | None
    """None is Unknown."""
    reason: Reason
    message: str

    def status_text(self) -> str:
        """`True`, `False` or `Unknown`."""
        return "Unknown" if self.status is None else str(self.status)


MESSAGE_LIMIT = 1024
_PLACES = {kind: place for place, kind in enumerate(Type)}


def ending(message: str, end: str) -> str:
    """Both within the limit: of a long message its own end is left out."""
    room = MESSAGE_LIMIT - len(end)
    return (message if len(message) <= room else f"{message[: room - 1]}…") + end


def keep(
    decided: Iterable[Condition], before: Iterable[Mapping[str, Any]], *, generation: int, now: str
) -> list[dict[str, Any]]:
    """The list as it goes into the status.

    `lastTransitionTime` stays where the status didn't change; `now` is RFC 3339 in whole seconds. Order is that of
    `Type`.
    """
    earlier = {str(c.get("type")): c for c in before}
    kept = []
    for condition in sorted(decided, key=lambda c: _PLACES[c.type]):
        old = earlier.get(condition.type)
        same = old is not None and old.get("status") == condition.status_text()
        kept.append(
            {
                "type": condition.type.value,
                "status": condition.status_text(),
                "reason": condition.reason.value,
                "message": condition.message[:MESSAGE_LIMIT],
                "observedGeneration": generation,
                "lastTransitionTime": old.get("lastTransitionTime", now) if same and old else now,
            }
        )
    return kept


def find(conditions: Iterable[Condition], wanted: Type) -> Condition | None:
    """The condition of this type."""
    return next((c for c in conditions if c.type is wanted), None)
