"""Scaling data in the status of a ModelDeployment. Pure.

The data consists of the ScalingActive, AutoscalerConflict and FieldIgnored conditions, the field `status.scaling`, and
columns of `kubectl get`. Each condition has one function. Its truth table is above the function.
"""

from __future__ import annotations

import math
from typing import Any

from halcyon.api import user_annotations
from halcyon.api.conditions import Condition, Reason, Type
from halcyon.api.spec import Spec, defaults
from halcyon.api.timestamps import rfc3339
from halcyon.control.desired import external_hpa
from halcyon.control.desired.plan import ReconcilePlan, counts
from halcyon.control.objects import pods
from halcyon.control.objects.actuator import Actuator
from halcyon.control.state.ownership import child_condition, own
from halcyon.control.state.scope import Scope
from halcyon.kube import kinds
from halcyon.scaling.lazy_text import plain
from halcyon.scaling.policy.decision import Change, Decision, Signal, counted

_LONG = 1024
"""Maximum length of a message in `status.scaling`, in characters, as set by the schema."""


# An operator that has just started and has no report about the model yet keeps the previous condition. Otherwise:
# spec.scaling    external writer         decision            mode        HPA            ScalingActive
# none            -                       -                   -           -              True     FixedReplicas
# set             an HPA                  -                   -           -              False    ExternalAutoscaler
# set             another writer          -                   -           -              False    ExternalWriter
# Rules at 0      none                    -                   Active      -              False    ScalingDisabled
# set             none                    none, or no report  -           -              Unknown
#                                         ever arrived
# set             none                    signals missing     -           -              False    MetricsMissing
# set             none                    made                Paused      -              False    Paused
# set             none                    made                Recommend   -              False    Recommending
# set             none                    made                Active      inactive       False    HPAInactive
# set             none                    made                Active      active, none   True
def active(scope: Scope, plan: ReconcilePlan) -> Condition:
    """Return the ScalingActive condition."""
    kind = Type.SCALING_ACTIVE
    if plan.spec is None:
        return Condition(kind, status=None, reason=Reason.UNKNOWN, message="no spec has been accepted yet")
    scaling = plan.spec.scaling
    if (stopped := _stopped(scope, plan, plan.spec)) is not None:
        return stopped
    if scaling is None:
        text = f"the number of replicas is fixed: spec.replicas is {plan.replicas}{_user_reason(scope)}"
        return Condition(kind, status=True, reason=Reason.FIXED_REPLICAS, message=text)
    decision = published_decision(scope)
    if scope.scaling.settling and (previous := previous_condition(scope, kind)) is not None:
        return previous
    if decision is None:
        return Condition(kind, status=None, reason=Reason.UNKNOWN, message="no balancer agent has reported yet")
    if decision.unknown:
        text = f"no decision is possible: {decision.unknown}. The number of replicas is not changed"
        return Condition(kind, status=False, reason=Reason.METRICS_MISSING, message=text)
    if scaling.mode != "Active":
        reason = Reason.PAUSED if scaling.mode == "Paused" else Reason.RECOMMENDING
        text = (
            f"spec.scaling.mode is {scaling.mode}{_user_reason(scope)}: the replicas stay at {plan.replicas}. "
            f"The decision would be {_explanation(decision)}"
        )
        return Condition(kind, status=False, reason=reason, message=text)
    if plan.actuator is Actuator.HPA:
        condition = child_condition(scope, kinds.HPA, scope.key.name, "ScalingActive")
        # An HPA is always inactive at 0 replicas. That is no failure, because the operator scales up from 0 itself.
        if condition.get("status") == "False" and plan.replicas > 0:
            text = f"HorizontalPodAutoscaler {scope.key.name} can't scale: {condition.get('message') or 'it gives no reason'}"
            return Condition(kind, status=False, reason=Reason.HPA_INACTIVE, message=text)
    sentences = f"scaled by {plan.actuator.value}: {_explanation(decision)}", _pods_not_ready(scope, plan)
    return Condition(kind, status=True, reason=Reason.SCALING_ACTIVE, message=". ".join(filter(None, sentences)))


def _stopped(scope: Scope, plan: ReconcilePlan, spec: Spec) -> Condition | None:
    """Return the ScalingActive condition of a model that something else scales, or whose scaling spec.replicas disables."""
    if (writer := conflict(scope, plan)) is not None:
        return Condition(Type.SCALING_ACTIVE, status=False, reason=writer.reason, message=writer.message)
    scaling = spec.scaling
    if (
        spec.replicas
        or scaling is None
        or (scaling.policy, scaling.mode) != ("Rules", "Active")
        or not scaling.min_replicas
    ):
        return None
    text = (
        f"spec.replicas is 0, which disables the policy Rules, as it disables an HPA: the replicas stay at {plan.replicas}. To "
        f"enable it, run kubectl scale mdep {scope.key.name} --replicas={plan.replicas}"
    )
    return Condition(Type.SCALING_ACTIVE, status=False, reason=Reason.SCALING_DISABLED, message=text)


def published_decision(scope: Scope) -> Decision | None:
    """Return the last published scaling decision; None if there is none, or if no agent had reported on the model."""
    decision = scope.scaling.decision
    return decision if decision is not None and decision.has_reports else None


def previous_condition(scope: Scope, kind: Type) -> Condition | None:
    """Return a condition of the last status. Return None if it is absent, or is for another generation of the spec."""
    for previous in scope.status.get("conditions") or ():
        is_known = previous.get("reason") in set(Reason)  # an unknown reason was written by another operator version
        if previous.get("type") == kind and is_known and previous.get("observedGeneration") == scope.meta["generation"]:
            status = {"True": True, "False": False}.get(str(previous.get("status")))
            return Condition(
                kind, status=status, reason=Reason(previous["reason"]), message=str(previous.get("message"))
            )
    return None


def _user_reason(scope: Scope) -> str:
    """Return the reason given by the user in an annotation, in brackets; empty if there is none."""
    reason = user_annotations.reason(scope.meta)
    return f" ({reason})" if reason else ""


def _explanation(decision: Decision) -> str:
    """Return the reason of a decision, and the maximum time until the next one unless the HPA decides."""
    if decision.desired is None:
        return decision.why or "made by the HPA"
    return f"{decision.why}; next decision within {math.ceil(decision.next_decision_s)} s"


def _pods_not_ready(scope: Scope, plan: ReconcilePlan) -> str:
    """Return a message about the desired pods that aren't ready; empty if all of them are."""
    desired, live, ready = counts(scope, plan)
    if ready >= desired:
        return ""
    stuck = [p for p in scope.pods if pods.is_unschedulable(p)]
    starting = max(live - ready - len(stuck), 0)
    text = f"{ready} of {desired} desired pods are ready, {starting} starting"
    if not stuck:
        return text
    failure = pods.failure(stuck)
    cause = f" ({failure.message})" if failure else ""
    return f"{text}, {len(stuck)} unschedulable{cause}"


# an external HPA                  another writer, repeatedly             AutoscalerConflict
# yes                              -                                      True     ExternalAutoscaler
# no                               yes                                    True     ExternalWriter
# no                               no                                     (absent)
def conflict(scope: Scope, plan: ReconcilePlan) -> Condition | None:
    """Return the AutoscalerConflict condition; None if the condition doesn't apply."""
    kind = Type.AUTOSCALER_CONFLICT
    if (hpa := plan.external_hpa) is not None:
        text = f"{hpa.why}; Halcyon has stopped scaling the model. {hpa.undo}"
        return Condition(kind, status=True, reason=Reason.EXTERNAL_AUTOSCALER, message=text)
    if plan.spec is not None and plan.spec.scaling is not None and scope.scaling.external_writer:
        return Condition(kind, status=True, reason=Reason.EXTERNAL_WRITER, message=scope.scaling.external_writer)
    return None


# Present while the spec sets a field that has no effect because of other fields or of an external HPA.
def ignored(scope: Scope, plan: ReconcilePlan) -> Condition | None:
    """Return the FieldIgnored condition; None if the condition doesn't apply."""
    if plan.spec is None:
        return None
    texts = [*defaults.ignored(plan.spec)]
    if text := external_hpa.ignored_balancer_replicas(scope, plan.spec):
        texts.append(text)
    if not texts:
        return None
    return Condition(Type.FIELD_IGNORED, status=True, reason=Reason.NO_EFFECT, message="; ".join(texts))


def make(scope: Scope, plan: ReconcilePlan) -> dict[str, Any]:
    """Return the value of `status.scaling` for a model that Halcyon scales, through an HPA or directly.

    While a new process has no data yet, the previous process's decision is kept.
    """
    spec, decision = plan.spec, published_decision(scope)
    scaling: dict[str, Any] = {
        "actuator": plan.actuator.value,
        "actuatorReason": plan.actuator_why[:_LONG],
        "policy": defaults.policy(spec) if spec else "",
        "mode": spec.scaling.mode if spec and spec.scaling else "",
    }
    if scope.scaling.settling and (previous := scope.status.get("scaling")):
        return {**previous, **scaling}
    if decision is not None:
        scaling["current"] = decision.current
        scaling["decidedAt"] = rfc3339(decision.at)
        if decision.why:
            scaling["why"] = decision.why[:_LONG]
        if decision.limited_by:
            scaling["limitedBy"] = list(dict.fromkeys(decision.limited_by))
        if decision.parts:
            scaling["parts"] = [{"name": p.name, "replicas": p.replicas, "why": p.why[:_LONG]} for p in decision.parts]
        if decision.signals:
            scaling["signals"] = [_signal(s) for s in decision.signals]
    if (desired := _desired(plan, decision)) is not None:
        scaling["desired"] = desired
    elif plan.actuator is Actuator.HPA and scaling["policy"] == "Rules":
        scaling |= _hpa_decision(scope, decision)
    if scope.scaling.changes:
        scaling["decisions"] = [_change(change) for change in scope.scaling.changes]
    return scaling


def _desired(plan: ReconcilePlan, decision: Decision | None) -> int | None:
    """Return the desired replicas of a decision, or the minimum if scaling is disabled; None if the HPA decides."""
    if decision is None:
        return None
    return plan.replicas if "off" in decision.limited_by else decision.desired


def replica_columns(scope: Scope, plan: ReconcilePlan) -> dict[str, str]:
    """Return the number of desired replicas and its range, for the columns of `kubectl get`."""
    if plan.spec is None:
        return {}
    desired = _desired(plan, published_decision(scope))
    columns = {"desired": str(plan.replicas if desired is None else desired)}
    if plan.spec.scaling is not None:
        columns["range"] = f"{plan.spec.scaling.min_replicas}-{plan.spec.scaling.max_replicas}"
    return columns


def columns(scope: Scope, *, ready: int) -> dict[str, str]:
    """Return the values of the scaling columns in `kubectl get`. `ready` is the number of ready pods."""
    decision = published_decision(scope)
    values = {s.name: s for s in decision.signals} if decision else {}
    columns = {}
    if (queue := values.get("queueDepth")) is not None:
        # The target is per replica, the queue is that of all pods: show the target for all ready pods.
        target = "" if queue.target is None else f"/{queue.target * max(ready, 1):.0f}"
        columns["queue"] = ("?" if queue.shown is None else f"{queue.shown:.0f}") + target
    if (gpu := values.get("gpuUtilization")) is not None and (gpu.missing or gpu.shown is not None):
        columns["gpu"] = "?" if gpu.shown is None else f"{gpu.shown:.0f}"
    return columns


_HPA_LIMITS = {
    "TooManyReplicas": "max",
    "TooFewReplicas": "min",
    "ScaleUpLimit": "pace",
    "ScaleDownLimit": "pace",
    "ScaleUpStabilized": "stabilisation",
    "ScaleDownStabilized": "stabilisation",
}
"""Name of the limit in `status.scaling.limitedBy`, by reason of an HPA's ScalingLimited or AbleToScale condition."""
_HPA_UNREMARKABLE = {"ReadyForNewScale", "SucceededRescale", "SucceededGetScale"}
"""Reasons of an HPA's AbleToScale condition that need no explanation, and therefore aren't shown."""


def _hpa_decision(scope: Scope, decision: Decision | None) -> dict[str, Any]:
    """Return the fields of `status.scaling` for a decision that the HPA makes, with its signals and messages."""
    hpa = (own(scope, kinds.HPA, scope.key.name) or {}).get("status") or {}
    desired = hpa.get("desiredReplicas")
    # An HPA that has never computed its replicas, because a metric was missing, reports 0. With pods, it never desires 0.
    if desired is None or not hpa.get("conditions") or (desired == 0 and hpa.get("currentReplicas")):
        return {}
    name = scope.key.name
    limited, able = (child_condition(scope, kinds.HPA, name, kind) for kind in ("ScalingLimited", "AbleToScale"))
    conditions = [limited] if limited.get("status") == "True" else []
    conditions += [able] if able.get("reason") not in _HPA_UNREMARKABLE else []
    reasons = [decision.why] if decision is not None and decision.why else []
    reasons += [f"HPA: {condition['message']}" for condition in conditions if condition.get("message")]
    reason = "; ".join(reasons) or "decided by the HPA"
    fields: dict[str, Any] = {"desired": desired, "why": f"{counted(desired)}: {reason}"[:_LONG]}
    if limits := [_HPA_LIMITS[c["reason"]] for c in conditions if c.get("reason") in _HPA_LIMITS]:
        fields["limitedBy"] = list(dict.fromkeys(limits))
    return fields


def _signal(signal: Signal) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": signal.name, "source": signal.source}
    if signal.target is not None:
        fields["target"] = plain(signal.target, 15)
    if signal.value is not None:
        fields["value"] = f"{signal.value:.1f}" if signal.value < 100 else f"{signal.value:.0f}"
        if signal.name == "requestRate" and 0 < signal.value < 0.1:
            fields["value"] = plain(signal.value, 2)
    if signal.proposal is not None:
        fields["proposal"] = signal.proposal
    if signal.missing:
        fields["missing"] = signal.missing[:_LONG]
    if signal.at is not None:
        fields["observedAt"] = rfc3339(signal.at)
    return fields


def _change(change: Change) -> dict[str, Any]:
    return {"time": rfc3339(change.at), "before": change.before, "after": change.after, "why": change.why[:_LONG]}
