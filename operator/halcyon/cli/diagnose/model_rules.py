"""Rules of `diagnose` that look at the model's conditions, its Deployments, the operator and events. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from halcyon.api.conditions import Reason
from halcyon.api.user_annotations import reason
from halcyon.cli.diagnose.facts import MAX_NAMED_PODS, Cause, ConditionIndex, Facts, Json, pod_name
from halcyon.cli.kube import fields
from halcyon.cli.kube.pod_stage import stage
from halcyon.cli.output import model_rows

RECENT_S = 600.0
_LIMITS = {
    "max": (58, "there is more load than spec.scaling.maxReplicas lets it take", "raise spec.scaling.maxReplicas, or make a replica carry more (batching, instancesPerGPU)"),
    "quota": (57, "the namespace's ResourceQuotas hold the count down", "raise the quota, or free what others hold"),
    "budget": (57, "the site's GPU budget holds the count down", "free GPUs of other models, or raise the operator's GPU budget"),
}  # fmt: skip


def spec_rejected(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """The spec is not taken."""
    condition = index.conditions.get("Accepted", {})
    message = index.message_if("Accepted", "False")
    if message is None:
        return
    next_step = {
        "SourceNotFound": "make what is missing, or correct spec.model.source; the operator looks again by itself",
        "Conflict": "rename or delete the object that is named, or give the ModelDeployment another name",
        "Forbidden": "give the operator the right that is named, or take away the policy that forbids it",
    }.get(str(condition.get("reason")), "correct the field that is named; halcyon lint -f FILE checks it off line")
    yield Cause(100, f"the spec is not accepted ({condition.get('reason')})", (message,), next_step)


def spec_not_observed(facts: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """The operator has not seen the spec as it is."""
    meta = fields.mapping(facts.inventory.model.get("metadata"))
    generation, observed = meta.get("generation"), index.status.get("observedGeneration")
    if generation is not None and generation == observed:
        return
    evidence = [f"metadata.generation is {generation}, and status.observedGeneration is {observed or 'not there'}"]
    check = "kubectl get pods -A -l app.kubernetes.io/name=halcyon"
    if facts.operators is not None:
        ready = [pod for pod in facts.operators if stage(pod).state == "ready"]
        evidence.append(f"{len(ready)} of {len(facts.operators)} operator pods are ready")
        if not facts.operators:
            check = "helm install halcyon charts/halcyon -n halcyon-system --create-namespace"
    yield Cause(
        96,
        "the operator has not seen the spec as it is now",
        tuple(evidence),
        f"see whether the operator runs: {check}",
    )


def model_not_loaded(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Triton can't load the model."""
    if (message := index.message_if("ModelLoaded", "False", Reason.LOAD_FAILED)) is not None:
        yield Cause(
            89,
            "Triton can't load the model",
            (message,),
            "read the log of the pod's container triton; a wrong file, a missing backend or too little memory are the usual reasons",
        )


def pods_rejected(facts: Facts, _: ConditionIndex) -> Iterator[Cause]:
    """The API server takes no pods."""
    for deployment in (*facts.inventory.slots, *facts.inventory.balancers):
        conditions = fields.mappings(fields.mapping(deployment.get("status")).get("conditions"))
        for condition in conditions:
            if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
                message, name = str(condition.get("message")), fields.mapping(deployment.get("metadata")).get("name")
                quota = "quota" in message
                next_step = (
                    "raise the ResourceQuota, or ask for less"
                    if quota
                    else "see which admission rule refuses it, and what it wants"
                )
                yield Cause(
                    83,
                    "a ResourceQuota leaves no room" if quota else "the API server takes no pods",
                    (f"Deployment {name}: {message}",),
                    next_step,
                )


def balancer_not_ready(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """No balancer answers."""
    if (message := index.message_if("BalancerReady", "False")) is not None:
        yield Cause(
            80,
            "no balancer is ready, so nobody answers requests",
            (message,),
            f"kubectl describe pods -l serving.halcyon.dev/model-deployment={index.name},app.kubernetes.io/component=balancer",
        )


def rollout_failed(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """The revision asked for is not served."""
    rollout = fields.mapping(index.status.get("rollout"))
    phase, message = rollout.get("phase"), str(rollout.get("message") or "")
    if phase in {"Failed", "RollingBack", "RolledBack"}:
        yield Cause(
            74,
            "the revision that the spec asks for failed, and is not served",
            (message,),
            "correct what is named and change the spec; the same revision isn't tried again by itself",
        )
    elif phase == "Blocked":
        yield Cause(
            72,
            "the new revision waits for room",
            (message,),
            "make room, ask for fewer replicas, or set spec.rollout.strategy: Replace",
        )


def autoscaler_conflict(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Somebody else writes the count."""
    if (message := index.message_if("AutoscalerConflict", "True")) is not None:
        yield Cause(
            66, "somebody else scales this model", (message,), "remove the other writer, or leave spec.scaling out"
        )


def signals_missing(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Scaling has no signals."""
    if (message := index.message_if("ScalingActive", "False", Reason.METRICS_MISSING)) is not None:
        missing = [
            f"{s.get('name')}: {s.get('missing')}"
            for s in fields.mappings(fields.mapping(index.status.get("scaling")).get("signals"))
            if s.get("missing")
        ]
        yield Cause(
            64,
            "a signal that scaling follows is missing, so the count stays",
            (message, *missing),
            "see that the balancer's pods are ready and reach the operator; halcyon explain tells each signal's source",
        )
    if (message := index.message_if("ScalingActive", "False", Reason.HPA_INACTIVE)) is not None:
        yield Cause(
            64,
            "the HPA does not scale",
            (message,),
            f"kubectl describe hpa {index.name}; kubectl get apiservice v1beta1.external.metrics.k8s.io",
        )


def scaling_limited(facts: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """A limit keeps the count where it is."""
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
    """A person has taken the count."""
    scaling = fields.mapping(index.status.get("scaling"))
    mode = fields.text(fields.mapping(index.spec.get("scaling")).get("mode"))
    desired, current = (fields.count(scaling.get(key)) for key in ("desired", "current"))
    if mode in {"Paused", "Recommend"} and desired is not None and desired != current:
        user_reason = reason(
            {"annotations": fields.mapping(fields.mapping(facts.inventory.model.get("metadata")).get("annotations"))}
        )
        evidence = (
            f"spec.scaling.mode is {mode}, the count is {current}, and {desired} would be right",
            *([f"the reason given: {user_reason}"] if user_reason else []),
        )
        yield Cause(
            55,
            f"scaling is {'paused' if mode == 'Paused' else 'told only to recommend'}",
            evidence,
            f"halcyon resume {index.name}",
        )


def ineffective_fields(_: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Fields that do nothing, and times that work against each other."""
    if (message := index.message_if("TimeoutMismatch", "True")) is not None:
        yield Cause(
            20,
            "requests may wait for their batch until nobody waits for them",
            (message,),
            "lower spec.batching.maxQueueDelay",
        )
    if (message := index.message_if("FieldIgnored", "True")) is not None:
        yield Cause(10, "a field of the spec has no effect", (message,), "leave it out, or do what the message says")


def recent_warnings(facts: Facts, index: ConditionIndex) -> Iterator[Cause]:
    """Warnings of late, but for those about pods that are ready now or gone: most pods fail a probe while they start."""
    failing_pods = {pod_name(pod) for pod, pod_stage in index.stages if pod_stage.state != "ready"}
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
            f"there are warnings of the last {RECENT_S / 60:.0f} minutes",
            (*unique[: 2 * MAX_NAMED_PODS], *more),
            next_step,
        )


def _last(event: Json, fallback: datetime) -> datetime:
    """When it was seen last. Those that older parts of Kubernetes write have that in fields of another name."""
    series = fields.mapping(event.get("series")).get("lastObservedTime")
    timestamp = series or event.get("deprecatedLastTimestamp") or event.get("eventTime")
    return fields.time(timestamp) or fallback
