"""The status of a ModelDeployment, computed from scratch in every reconcile. Pure.

Each condition has one function, with its truth table above it. A condition about something unknown is Unknown. Out of
scope: scaling, rollouts, routes, cold starts and costs, each of which has its own module in this package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from halcyon.api import conditions
from halcyon.api.conditions import Condition, Reason, Type
from halcyon.api.policy import triton_images
from halcyon.api.spec import Spec, defaults, routing_mode
from halcyon.control.acceptance import site_policy
from halcyon.control.desired import external_hpa
from halcyon.control.desired.plan import ReconcilePlan, counts
from halcyon.control.objects import pod_stage, pods
from halcyon.control.objects.actuator import Actuator
from halcyon.control.objects.deployment_status import SlotState, deployed_revision
from halcyon.control.objects.pod_stage import Stage
from halcyon.control.rollout.rollout_record import RolloutResult
from halcyon.control.state.ownership import child_condition, own
from halcyon.control.state.scope import Scope
from halcyon.control.state.serving_revision import stored_serving_revision
from halcyon.control.status import (
    advice,
    backend,
    capacity,
    cold_start,
    cost,
    readiness,
    rollout,
    routes,
    scaling,
    servers,
)
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.render import names

MAX_VERSIONS = 64
"""Maximum number of model versions in the status, as set by the schema. If there are more, the highest versions are
shown."""


def make(scope: Scope, plan: ReconcilePlan, *, now: str) -> Object:
    """Return the status for this scope and plan. `now` is the current time in RFC 3339, in whole seconds."""
    generation = int(scope.meta["generation"])
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": conditions.keep(
            _conditions(scope, plan), scope.status.get("conditions") or (), generation=generation, now=now
        ),
        "pods": (by_state := _pods(scope, plan)),
        "replicas": by_state["total"],
        "readyReplicas": by_state["ready"],
        "selector": names.selector_text(scope.key.name),
    }
    status["summary"] = _summary(scope, plan, status)
    if plan.spec is not None and plan.target is not None and plan.rollout is not None:
        host = f"{scope.key.name}.{scope.key.namespace}.svc"
        scheme = "https" if plan.spec.traffic.tls else "http"
        status["address"] = {"url": f"{scheme}://{host}:{names.HTTP_PORT}", "grpc": f"{host}:{names.GRPC_PORT}"}
        if routing_mode.is_direct(plan.spec):
            status["address"]["headless"] = f"{names.headless(scope.key.name)}.{scope.key.namespace}.svc"
        serving = stored_serving_revision(scope) or plan.rollout.slots[0].revision
        status["runtimeImage"] = serving.template["spec"]["containers"][0]["image"]
        status["model"] = _model(scope, plan)
        status["rollout"] = rollout.make(scope, plan)
        if (start := cold_start.make(scope, longest_s=plan.target.startup_timeout_s)) is not None:
            status["coldStart"] = start
        if (costs := cost.make(scope)) is not None:
            status["cost"] = costs
        if (shown_advice := advice.make(scope)) is not None:
            status["advice"] = shown_advice
        status["revision"] = {"target": names.revision(scope.key.name, plan.rollout.requested.key)}
        if current := _current(scope, plan):
            status["revision"]["current"] = names.revision(scope.key.name, current)
        if measured_capacity := capacity.make(scope, plan):
            status["capacity"] = measured_capacity
        if plan.actuator is not Actuator.NONE:
            status["scaling"] = scaling.make(scope, plan)
    return status


def _conditions(scope: Scope, plan: ReconcilePlan) -> list[Condition]:
    accepted = _accepted(scope, plan)
    loaded = servers.model_loaded(scope, plan)
    served = servers.servers_ready(scope, plan)
    balancer = _balancer_ready(scope, plan)
    routed = routes.accepted(scope, plan)
    stalled = _stalled(scope, plan, accepted, loaded, served)
    in_effect = plan.spec is not None and not plan.conflicts
    reconciling = None if stalled else _reconciling(scope, plan, served, balancer)
    traffic = readiness.traffic(served, _entry_point(plan, balancer, routed), loaded)
    candidates = (
        readiness.ready(accepted, traffic, in_effect=in_effect),
        accepted,
        loaded,
        served,
        balancer,
        scaling.active(scope, plan),
        routed,
        scaling.conflict(scope, plan),
        capacity.contradicted(scope, plan),
        scaling.ignored(scope, plan),
        _mismatch(scope, plan),
        _image_mismatch(scope, plan),
        _advice(scope, plan),
        rollout.outdated(scope, plan),
        backend.requests_failing(scope),
        reconciling,
        stalled,
    )
    return [c for c in candidates if c is not None]


# spec and source        object names free    last write    Accepted
# valid                  yes                  succeeded     True
# valid                  yes                  rejected      False  Forbidden
# valid                  no                   -             False  Conflict
# invalid                -                    -             False  Invalid, PolicyDenied, SourceNotFound
def _accepted(scope: Scope, plan: ReconcilePlan) -> Condition:
    acceptance = plan.acceptance
    if (acceptance.accepted or plan.orphans) and scope.rejected_write:
        return Condition(Type.ACCEPTED, status=False, reason=Reason.FORBIDDEN, message=scope.rejected_write)
    message = acceptance.message
    if not acceptance.accepted and plan.spec is not None and not plan.conflicts:
        consequence = "the last accepted spec stays in effect"
        message = conditions.ending(message, f"; {consequence}")
    return Condition(Type.ACCEPTED, status=acceptance.accepted, reason=acceptance.reason, message=message)


def _mismatch(scope: Scope, plan: ReconcilePlan) -> Condition | None:
    if plan.spec is None:
        return None
    delays = defaults.mismatched(plan.spec)
    starts = defaults.late_starts(plan.spec, (scope.status.get("coldStart") or {}).get("seconds"))
    if not (delays or starts):
        return None
    reason = Reason.QUEUE_DELAY_TOO_LONG if delays else Reason.QUEUE_TIMEOUT_TOO_SHORT
    return Condition(Type.TIMEOUT_MISMATCH, status=True, reason=reason, message="; ".join((*delays, *starts)))


def _image_mismatch(scope: Scope, plan: ReconcilePlan) -> Condition | None:
    messages = [] if plan.spec is None else triton_images.mismatches(plan.spec, _image(scope, plan.spec))
    if not messages:
        return None
    return Condition(Type.IMAGE_MISMATCH, status=True, reason=Reason.IMAGE_UNSUITABLE, message="; ".join(messages))


def _image(scope: Scope, spec: Spec) -> str:
    return spec.runtime.image or scope.site.server_image


def _advice(scope: Scope, plan: ReconcilePlan) -> Condition | None:
    messages = [] if plan.spec is None else site_policy.policy_warnings(scope, plan.spec)
    if plan.spec is not None and scope.site.policy.triton.warn_below is None:
        messages = [*messages, *triton_images.outdated(_image(scope, plan.spec))]
    if not messages:
        return None
    return Condition(Type.POLICY_WARNING, status=True, reason=Reason.POLICY_ADVICE, message="; ".join(messages))


# balancer Deployment    available    BalancerReady
# exists                 1 or more    True     BalancerDegraded if a balancer reports a failure
# exists                 none         False    BalancerDegraded if a balancer reports a failure
# doesn't exist          -            Unknown
# isn't needed           -            True     NoBalancer
def _balancer_ready(scope: Scope, plan: ReconcilePlan) -> Condition:
    if plan.spec is not None and routing_mode.is_direct(plan.spec):
        text = f"spec.traffic.mode is {plan.spec.traffic.mode}, so clients connect to the servers without a balancer"
        return Condition(Type.BALANCER_READY, status=True, reason=Reason.NO_BALANCER, message=text)
    name = names.balancer(scope.key.name)
    deployment = own(scope, kinds.DEPLOYMENT, name)
    if deployment is None or plan.spec is None:
        text = "no balancer has been created yet"
        return Condition(Type.BALANCER_READY, status=None, reason=Reason.UNKNOWN, message=text)
    available = (deployment.get("status") or {}).get("availableReplicas") or 0
    desired = external_hpa.balancer_replicas(scope, plan.spec)
    text = f"{min(available, desired)} of {desired} balancers are ready"
    if scope.balancer_errors:
        text += f"; {'; '.join(scope.balancer_errors)}"
        return Condition(Type.BALANCER_READY, status=bool(available), reason=Reason.BALANCER_DEGRADED, message=text)
    if available:
        return Condition(Type.BALANCER_READY, status=True, reason=Reason.BALANCER_READY, message=text)
    failure = child_condition(scope, kinds.DEPLOYMENT, name, "ReplicaFailure")
    if failure.get("status") == "True":
        text += f": {failure.get('message')}"
    elif scope.balancer_failure:
        text += f": {scope.balancer_failure}"
    return Condition(Type.BALANCER_READY, status=False, reason=Reason.BALANCER_NOT_READY, message=text)


def _entry_point(plan: ReconcilePlan, balancer: Condition, routed: Condition | None) -> Condition:
    """Return the condition of the component to which clients connect: BalancerReady or RoutesAccepted."""
    return routed if routed is not None and plan.spec is not None and routing_mode.is_direct(plan.spec) else balancer


# Deployment status   pods                                              Reconciling
# any                 any, while writes fail repeatedly                 True     WritesFailing
# outdated            -                                                 True
# current             some are of another revision                      True
# current             none of the revision is ready, some are desired   True
# current             all are of the revision, and one is ready         (absent)
# any, if Stalled     any                                               (absent): kstatus would report InProgress for both
# A change in the replicas is not a new revision and doesn't cause Reconciling.
def _reconciling(scope: Scope, plan: ReconcilePlan, served: Condition, balancer: Condition) -> Condition | None:
    if scope.failing:
        message = f"the operator can't write an object of the model and will retry: {scope.failing}"
        return Condition(Type.RECONCILING, status=True, reason=Reason.WRITES_FAILING, message=message)
    if plan.spec is None or plan.target is None:
        return None
    current = _current(scope, plan)
    if current == plan.target.key and balancer.status:
        return None
    if current != plan.target.key and (rollout_condition := rollout.reconciling(scope.key.name, plan)) is not None:
        return rollout_condition
    waiting = "the balancer" if current == plan.target.key else f"revision {plan.target.key}: {served.message}"
    return Condition(Type.RECONCILING, status=True, reason=Reason.PROGRESSING, message=f"waiting for {waiting}")


def _current(scope: Scope, plan: ReconcilePlan) -> str | None:
    """Return the key of the current revision, which is the last one that was fully rolled out.

    During a rollout, return the revision in the published status if it still has a ready pod, otherwise None.
    """
    deployment = own(scope, kinds.DEPLOYMENT, names.server(scope.key.name, servers.home_slot(plan)))
    if deployment is None or plan.target is None:
        return None
    revision = deployed_revision(deployment)
    # Count ready pods as `control/rollout` does, from the pods themselves: the Deployment's readyReplicas is updated later.
    is_served = plan.replicas == 0 or revision in _serving(scope)
    return revision if SlotState.of(deployment).complete and is_served else _before(scope)


def _before(scope: Scope) -> str | None:
    """Return the key of the published current revision; None if this revision has no ready pod any more."""
    target = names.revision(scope.key.name, "")
    revision = str((scope.status.get("revision") or {}).get("current") or "").removeprefix(target)
    return revision if revision in _serving(scope) else None


def _serving(scope: Scope) -> set[str]:
    """Return the keys of the revisions that have a ready pod."""
    return {pods.revision(p) for p in scope.pods if pods.is_ready(p)}


# Accepted   rollout                        model       Deployment            Stalled
# False      -                              -           -                     True     the reason of Accepted (absent while only deletions
#                                                                                      of conflicting objects are awaited)
# True       failed, or blocked for long    -           -                     True     (`stalled` in control/status/rollout.py)
# True       else                           False       -                     True     the reason of ModelLoaded
# True       else                           not False   deadline exceeded     True     (absent while a pod that was scheduled late
#                                                                                      is within its own deadline)
# else                                                                        (absent)
def _stalled(
    scope: Scope, plan: ReconcilePlan, accepted: Condition, loaded: Condition, served: Condition
) -> Condition | None:
    if accepted.status is False:
        if plan.awaits_deletion:
            return None
        return Condition(Type.STALLED, status=True, reason=accepted.reason, message=accepted.message)
    late = servers.deployment_condition(scope, plan, "Progressing").get("reason") == "ProgressDeadlineExceeded"
    if plan.rollout is not None:
        late = plan.rollout.overdue or (late and not plan.rollout.has_time)
    if (rollout_condition := rollout.stalled(scope.key.name, plan, late=late)) is not None:
        return rollout_condition
    if loaded.status is False:
        return Condition(Type.STALLED, status=True, reason=loaded.reason, message=loaded.message)
    if late:
        return Condition(Type.STALLED, status=True, reason=Reason.PROGRESS_DEADLINE_EXCEEDED, message=served.message)
    return None


def _pods(scope: Scope, plan: ReconcilePlan) -> dict[str, Any]:
    _, total, ready = counts(scope, plan)
    stages = [pod_stage.stage(p) for p in scope.pods]
    causes = Counter(filter(None, map(pod_stage.failure_cause, stages)))
    failures = [{"reason": cause, "pods": count} for cause, count in sorted(causes.items())]
    return {
        "total": total,
        "ready": ready,
        "updated": sum(pods.is_live(p) for p in servers.target_pods(scope, plan)),
        "unschedulable": sum(pods.is_unschedulable(p) for p in scope.pods),
        **_by_state(stages),
        **({"failures": failures} if failures else {}),
    }


_COUNTED_AS = {"warming": "loading", "ready": "", "ended": ""}
"""Name under which `status.pods` counts the pods in each state. Pods in a state with an empty name aren't counted."""


def _by_state(stages: Iterable[Stage]) -> dict[str, int]:
    """Return the number of pods in each state, for states with at least one pod."""
    counted = Counter(_COUNTED_AS.get(stage.state, stage.state) for stage in stages)
    return {name: count for name, count in sorted(counted.items()) if name}


_DECIDED_COLUMNS = ("desired", "range", "queue", "gpu", "batch")
"""Columns of `kubectl get` whose values come from the last scaling decision and its signals."""


def _state(plan: ReconcilePlan, by_type: dict[str, dict[str, Any]]) -> str:
    """Return the reason of the most important condition.

    During a rollout, this is the reason of Reconciling. Exceptions are a known cause of missing servers, and an outage
    of a model that was served before and can't be at zero replicas.
    """
    ready, reconciling, rolling = by_type["Ready"], by_type.get("Reconciling", {}), plan.rollout
    was_served = rolling is not None and (rolling.good or rolling.record.result == RolloutResult.SERVED)
    keeps_replicas = plan.spec is not None and (plan.spec.scaling is None or plan.spec.scaling.min_replicas > 0)
    is_outage = was_served and keeps_replicas and reconciling.get("reason") == Reason.PROGRESSING
    is_known = ready["status"] == "False" and (ready["reason"] != Reason.NO_SERVERS_READY or is_outage)
    order = ("Stalled", "Ready") if is_known else ("Stalled", "Reconciling", "Ready")
    return next((str(by_type[kind]["reason"]) for kind in order if kind in by_type), "")


def _summary(scope: Scope, plan: ReconcilePlan, status: dict[str, Any]) -> dict[str, str]:
    by_type = {c["type"]: c for c in status["conditions"]}
    desired, _, ready = counts(scope, plan)
    summary = {"ready": f"{ready}/{desired}", "state": _state(plan, by_type)} | scaling.replica_columns(scope, plan)
    if scope.scaling.settling:
        before = scope.status.get("summary") or {}
        kept_columns = ("batch",) if plan.actuator is Actuator.NONE else _DECIDED_COLUMNS
        return summary | {name: before[name] for name in kept_columns if name in before}
    summary |= scaling.columns(scope, ready=status["readyReplicas"])
    if scope.signals and scope.signals.mean_batch is not None:
        summary["batch"] = f"{scope.signals.mean_batch:.1f}"
    return summary


def _model(scope: Scope, plan: ReconcilePlan) -> dict[str, Any]:
    model: dict[str, Any] = {"name": plan.rollout.model if plan.rollout else ""}
    if scope.signals and scope.signals.versions:
        model["versions"] = sorted(scope.signals.versions, key=lambda v: (len(v), v))[-MAX_VERSIONS:]
    if (error := servers.load_error(scope, plan)) is not None:
        model["error"] = error[: conditions.MESSAGE_LIMIT]
    return model
