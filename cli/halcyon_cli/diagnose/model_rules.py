"""Rules of `diagnose` for a model's conditions, its Deployments, the operator and events.

All rules are pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from halcyon.api.conditions import Reason
from halcyon.api.user_annotations import reason
from halcyon.control.objects.admission_messages import exceeds_quota, lacks_quota_fields
from halcyon_cli.diagnose.facts import MAX_NAMED_PODS, Cause, ConditionIndex, Facts, Json, pod_name
from halcyon_cli.kube import fields
from halcyon_cli.kube.client_messages import INSTALL_COMMAND
from halcyon_cli.kube.pod_stage import stage
from halcyon_cli.output import model_rows

RECENT_S = 600.0
_LIMITS = {
    "max": (58, "the load needs more replicas than spec.scaling.maxReplicas allows", "raise spec.scaling.maxReplicas, or increase the throughput of a replica (batching, instancesPerGPU)"),
    "quota": (57, "the namespace's ResourceQuotas limit the replicas", "raise the quota, or free resources that other pods hold"),
    "budget": (57, "the site's GPU budget limits the replicas", "free GPUs of other models, or raise the operator's GPU budget"),
}  # fmt: skip


def spec_rejected(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect a spec that the operator has rejected."""
    condition = index.conditions.get("Accepted", {})
    message = index.message_if("Accepted", "False")
    if message is None:
        return
    next_step = {
        "SourceNotFound": "create the missing object, or correct spec.model.source; the operator checks again by itself",
        "Conflict": "rename or delete the named object, or give the ModelDeployment another name",
        "Forbidden": "grant the operator the named permission, or remove the policy that forbids it",
    }.get(str(condition.get("reason")), "correct the named field; check the file offline with halcyon lint -f FILE")
    yield Cause(100, f"the spec was rejected ({condition.get('reason')})", (message,), next_step)


def spec_not_observed(facts: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect a spec that the operator has not processed."""
    meta = fields.mapping(facts.inventory.model.get("metadata"))
    generation, observed = meta.get("generation"), index.status.get("observedGeneration")
    if generation is not None and generation == observed:
        return
    evidence = [f"metadata.generation is {generation}, and status.observedGeneration is {observed or 'missing'}"]
    check = "kubectl get pods -A -l app.kubernetes.io/name=halcyon"
    if facts.operators is not None:
        ready = [pod for pod in facts.operators if stage(pod).state == "ready"]
        evidence.append(f"{len(ready)} of {len(facts.operators)} operator pods are ready")
        if not facts.operators:
            check = INSTALL_COMMAND
    yield Cause(
        96,
        "the operator has not processed the current spec",
        tuple(evidence),
        f"{'install' if check == INSTALL_COMMAND else 'check'} the operator: {check}",
    )


def model_not_loaded(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect a model that Triton can't load."""
    if (message := index.message_if("ModelLoaded", "False", Reason.LOAD_FAILED)) is not None:
        yield Cause(
            89,
            "Triton can't load the model",
            (message,),
            "read the log of the pod's container triton; usual reasons are an invalid file, a missing backend or too little memory",
        )


def pods_rejected(facts: Facts, _: ConditionIndex) -> Iterator[Cause]:
    """Detect Deployments whose pods the API server rejects."""
    for deployment in (*facts.inventory.slots, *facts.inventory.balancers):
        conditions = fields.mappings(fields.mapping(deployment.get("status")).get("conditions"))
        for condition in conditions:
            if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
                message, name = str(condition.get("message")), fields.mapping(deployment.get("metadata")).get("name")
                quota = exceeds_quota(message) or lacks_quota_fields(message)
                next_step = "check which admission rule rejects the pods, and why"
                if exceeds_quota(message):
                    next_step = "raise the ResourceQuota, or lower the requests"
                elif quota:
                    next_step = "set the amounts that the ResourceQuota demands, for example spec.runtime.resources: {requests: {cpu: 2, memory: 4Gi}, limits: {memory: 8Gi}}"
                yield Cause(
                    83,
                    "a ResourceQuota rejects new pods" if quota else "the API server rejects new pods",
                    (f"Deployment {name}: {message}",),
                    next_step,
                )


def balancer_not_ready(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect a model without a ready balancer."""
    if (message := index.message_if("BalancerReady", "False")) is not None:
        yield Cause(
            80,
            "no balancer is ready, so requests fail",
            (message,),
            f"kubectl describe pods -n {index.namespace} -l serving.halcyon.dev/model-deployment={index.name},app.kubernetes.io/component=balancer",
        )


def rollout_failed(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect a rollout that failed or is blocked."""
    rollout = fields.mapping(index.status.get("rollout"))
    phase, message = rollout.get("phase"), str(rollout.get("message") or "")
    if phase in {"Failed", "RollingBack", "RolledBack"}:
        yield Cause(
            74,
            "the spec's revision failed and is not served",
            (message,),
            "fix the named problem and change the spec; a failed revision is not retried automatically",
        )
    elif phase == "Blocked":
        yield Cause(
            72,
            "the new revision waits for capacity",
            (message,),
            "free capacity, lower the replicas, or set spec.rollout.strategy: Replace",
        )


def autoscaler_conflict(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect an external HPA or another external writer of the replicas."""
    if (message := index.message_if("AutoscalerConflict", "True")) is not None:
        yield Cause(
            66,
            "an external autoscaler or client scales this model",
            (message,),
            "remove the external writer, or remove spec.scaling",
        )


def signals_missing(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect missing signals, and an inactive HPA."""
    if (message := index.message_if("ScalingActive", "False", Reason.METRICS_MISSING)) is not None:
        missing = [
            f"{s.get('name')}: {s.get('missing')}"
            for s in fields.mappings(fields.mapping(index.status.get("scaling")).get("signals"))
            if s.get("missing")
        ]
        yield Cause(
            64,
            "a scaling signal is missing, so the replicas stay",
            (message, *missing),
            "check that the balancer's pods are ready and can connect to the operator; halcyon explain shows the source of each signal",
        )
    if (message := index.message_if("ScalingActive", "False", Reason.HPA_INACTIVE)) is not None:
        yield Cause(
            64,
            "the HPA is inactive",
            (message,),
            f"kubectl describe hpa {index.name} -n {index.namespace}; kubectl get apiservice v1beta1.external.metrics.k8s.io",
        )


def scaling_limited(facts: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect a limit that keeps the replicas below the desired number."""
    scaling = fields.mapping(index.status.get("scaling"))
    row = model_rows.build_row(facts.inventory.model)
    for name in map(str, fields.sequence(scaling.get("limitedBy"))):
        if name in _LIMITS:
            weight, summary, next_step = _LIMITS[name]
            evidence = (
                str(scaling.get("why") or f"status.scaling.limitedBy has {name}"),
                f"replicas {row.replicas}, queue {row.queue}",
            )
            yield Cause(weight, summary, evidence, next_step)


def paused(facts: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Detect scaling that a user has paused or set to Recommend."""
    scaling = fields.mapping(index.status.get("scaling"))
    mode = fields.text(fields.mapping(index.spec.get("scaling")).get("mode"))
    desired, current = (fields.count(scaling.get(key)) for key in ("desired", "current"))
    if mode in {"Paused", "Recommend"} and desired is not None and desired != current:
        user_reason = reason(
            {"annotations": fields.mapping(fields.mapping(facts.inventory.model.get("metadata")).get("annotations"))}
        )
        evidence = (
            f"spec.scaling.mode is {mode}, there are {current} replicas, and {desired} are desired",
            *([f"the recorded reason: {user_reason}"] if user_reason else []),
        )
        yield Cause(
            55,
            f"scaling is {'paused' if mode == 'Paused' else 'in mode Recommend'}",
            evidence,
            f"halcyon resume {index.name} -n {index.namespace}",
        )


def recent_warnings(facts: Facts, _: ConditionIndex) -> Iterator[Cause]:
    """Detect recent warning events, except those of deleted or ready pods. Most pods fail a probe while they start."""
    failing_pods = {pod_name(pod) for pod in facts.inventory.pods if stage(pod).state != "ready"}
    recent = []
    for event in facts.events:
        regarding = fields.mapping(event.get("regarding"))
        is_recent = (facts.now - _last(event, facts.now)).total_seconds() < RECENT_S
        if (
            event.get("type") == "Warning"
            and is_recent
            and (regarding.get("kind") != "Pod" or regarding.get("name") in failing_pods)
        ):
            recent.append(
                f"{regarding.get('kind')} {regarding.get('name')}: {event.get('reason')}: {event.get('note')}"
            )
    if recent:
        unique = list(dict.fromkeys(recent))
        more = (f"and {len(unique) - 2 * MAX_NAMED_PODS} more",) if len(unique) > 2 * MAX_NAMED_PODS else ()
        namespace = fields.mapping(facts.inventory.model.get("metadata")).get("namespace")
        next_step = f"kubectl get events -n {namespace} --field-selector type=Warning"
        yield Cause(
            5,
            f"there were warnings in the last {RECENT_S / 60:.0f} minutes",
            (*unique[: 2 * MAX_NAMED_PODS], *more),
            next_step,
        )


def _last(event: Json, fallback: datetime) -> datetime:
    """Return the time of an event's last occurrence. The field depends on the version of the Kubernetes component."""
    series = fields.mapping(event.get("series")).get("lastObservedTime")
    timestamp = series or event.get("deprecatedLastTimestamp") or event.get("eventTime")
    return fields.time(timestamp) or fallback
