"""Rules of `diagnose` that look at the model's conditions, its Deployments, the operator and events. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from halcyon.api.conditions import Reason
from halcyon.api.user_annotations import reason
from halcyon_cli.diagnose.facts import MANY, Cause, ConditionIndex, Facts, Json, name_of
from halcyon_cli.kube import fields
from halcyon_cli.kube.pod_stage import stage
from halcyon_cli.output import model_rows

_LATELY_S = 600.0
_LIMITS = {
    "max": (58, "there is more load than spec.scaling.maxReplicas lets it take", "raise spec.scaling.maxReplicas, or make a replica carry more (batching, instancesPerGPU)"),
    "quota": (57, "the namespace's ResourceQuotas hold the count down", "raise the quota, or free what others hold"),
    "budget": (57, "the site's GPU budget holds the count down", "free GPUs of other models, or raise the operator's GPU budget"),
}  # fmt: skip


def not_accepted(_: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """The spec is not taken."""
    found = told.conditions.get("Accepted", {})
    message = told.says("Accepted", "False")
    if message is None:
        return
    then = {
        "SourceNotFound": "make what is missing, or correct spec.model.source; the operator looks again by itself",
        "Conflict": "rename or delete the object that is named, or give the ModelDeployment another name",
        "Forbidden": "give the operator the right that is named, or take away the policy that forbids it",
    }.get(str(found.get("reason")), "correct the field that is named; halcyon lint -f FILE checks it off line")
    yield Cause(100, f"the spec is not accepted ({found.get('reason')})", (message,), then)


def unheard(facts: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """The operator has not seen the spec as it is."""
    meta = fields.mapping(facts.seen.model.get("metadata"))
    asked, seen = meta.get("generation"), told.status.get("observedGeneration")
    if asked is not None and asked == seen:
        return
    evidence = [f"metadata.generation is {asked}, and status.observedGeneration is {seen or 'not there'}"]
    where = "kubectl get pods -A -l app.kubernetes.io/name=halcyon"
    if facts.operators is not None:
        ready = [pod for pod in facts.operators if stage(pod).state == "ready"]
        evidence.append(f"{len(ready)} of {len(facts.operators)} operator pods are ready")
        if not facts.operators:
            where = "helm install halcyon charts/halcyon -n halcyon-system --create-namespace"
    yield Cause(
        96,
        "the operator has not seen the spec as it is now",
        tuple(evidence),
        f"see whether the operator runs: {where}",
    )


def not_loaded(_: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """Triton can't load the model."""
    if (message := told.says("ModelLoaded", "False", Reason.LOAD_FAILED)) is not None:
        yield Cause(
            89,
            "Triton can't load the model",
            (message,),
            "read the log of the pod's container triton; a wrong file, a missing backend or too little memory are the usual reasons",
        )


def refused(facts: Facts, _: ConditionIndex) -> Iterator[Cause]:
    """The API server takes no pods."""
    for deployment in (*facts.seen.slots, *facts.seen.balancers):
        conditions = fields.mappings(fields.mapping(deployment.get("status")).get("conditions"))
        for found in conditions:
            if found.get("type") == "ReplicaFailure" and found.get("status") == "True":
                message, name = str(found.get("message")), fields.mapping(deployment.get("metadata")).get("name")
                quota = "quota" in message
                then = (
                    "raise the ResourceQuota, or ask for less"
                    if quota
                    else "see which admission rule refuses it, and what it wants"
                )
                yield Cause(
                    83,
                    "a ResourceQuota leaves no room" if quota else "the API server takes no pods",
                    (f"Deployment {name}: {message}",),
                    then,
                )


def no_balancer(_: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """No balancer answers."""
    if (message := told.says("BalancerReady", "False")) is not None:
        yield Cause(
            80,
            "no balancer is ready, so nobody answers requests",
            (message,),
            f"kubectl describe pods -l serving.halcyon.dev/model-deployment={told.name},app.kubernetes.io/component=balancer",
        )


def rolled(_: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """The revision asked for is not served."""
    rollout = fields.mapping(told.status.get("rollout"))
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


def fought_over(_: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """Somebody else writes the count."""
    if (message := told.says("AutoscalerConflict", "True")) is not None:
        yield Cause(
            66, "somebody else scales this model", (message,), "remove the other writer, or leave spec.scaling out"
        )


def blind(_: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """Scaling has no signals."""
    if (message := told.says("ScalingActive", "False", Reason.METRICS_MISSING)) is not None:
        missing = [
            f"{s.get('name')}: {s.get('missing')}"
            for s in fields.mappings(fields.mapping(told.status.get("scaling")).get("signals"))
            if s.get("missing")
        ]
        yield Cause(
            64,
            "a signal that scaling follows is missing, so the count stays",
            (message, *missing),
            "see that the balancer's pods are ready and reach the operator; halcyon explain tells each signal's source",
        )
    if (message := told.says("ScalingActive", "False", Reason.HPA_INACTIVE)) is not None:
        yield Cause(
            64,
            "the HPA does not scale",
            (message,),
            f"kubectl describe hpa {told.name}; kubectl get apiservice v1beta1.external.metrics.k8s.io",
        )


def held_down(facts: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """A limit keeps the count where it is."""
    scaling = fields.mapping(told.status.get("scaling"))
    row = model_rows.row(facts.seen.model)
    for name in map(str, fields.sequence(scaling.get("limitedBy"))):
        if name in _LIMITS:
            weight, what, then = _LIMITS[name]
            evidence = (
                str(scaling.get("why") or f"status.scaling.limitedBy has {name}"),
                f"replicas {row.replicas}, queue {row.queue}",
            )
            yield Cause(weight, what, evidence, then)


def paused(facts: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """A person has taken the count."""
    scaling = fields.mapping(told.status.get("scaling"))
    mode = fields.text(fields.mapping(told.spec.get("scaling")).get("mode"))
    desired, current = (fields.count(scaling.get(key)) for key in ("desired", "current"))
    if mode in {"Paused", "Recommend"} and desired is not None and desired != current:
        given = reason(
            {"annotations": fields.mapping(fields.mapping(facts.seen.model.get("metadata")).get("annotations"))}
        )
        evidence = (
            f"spec.scaling.mode is {mode}, the count is {current}, and {desired} would be right",
            *([f"the reason given: {given}"] if given else []),
        )
        yield Cause(
            55,
            f"scaling is {'paused' if mode == 'Paused' else 'told only to recommend'}",
            evidence,
            f"halcyon resume {told.name}",
        )


def without_effect(_: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """Fields that do nothing, and times that work against each other."""
    if (message := told.says("TimeoutMismatch", "True")) is not None:
        yield Cause(
            20,
            "requests may wait for their batch until nobody waits for them",
            (message,),
            "lower spec.batching.maxQueueDelay",
        )
    if (message := told.says("FieldIgnored", "True")) is not None:
        yield Cause(10, "a field of the spec has no effect", (message,), "leave it out, or do what the message says")


def warned(facts: Facts, told: ConditionIndex) -> Iterator[Cause]:
    """Warnings of late, but for those about pods that are ready now or gone: most pods fail a probe while they start."""
    troubled = {name_of(pod) for pod, one in told.stages if one.state != "ready"}
    fresh = []
    for event in facts.events:
        about = fields.mapping(event.get("regarding"))
        is_fresh = (facts.now - _last(event, facts.now)).total_seconds() < _LATELY_S
        if (
            event.get("type") == "Warning"
            and is_fresh
            and (about.get("kind") != "Pod" or about.get("name") in troubled)
        ):
            fresh.append(f"{about.get('kind')} {about.get('name')}: {event.get('reason')}: {event.get('note')}")
    if fresh:
        unique = list(dict.fromkeys(fresh))
        more = (f"and {len(unique) - 2 * MANY} more",) if len(unique) > 2 * MANY else ()
        namespace = fields.mapping(facts.seen.model.get("metadata")).get("namespace")
        then = f"kubectl get events -n {namespace} --field-selector type=Warning"
        yield Cause(
            5, f"there are warnings of the last {_LATELY_S / 60:.0f} minutes", (*unique[: 2 * MANY], *more), then
        )


def _last(event: Json, fallback: datetime) -> datetime:
    """When it was seen last. Those that older parts of Kubernetes write have that in fields of another name."""
    series = fields.mapping(event.get("series")).get("lastObservedTime")
    at = series or event.get("deprecatedLastTimestamp") or event.get("eventTime")
    return fields.time(at) or fallback
