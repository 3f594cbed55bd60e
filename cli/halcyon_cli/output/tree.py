"""Tree of a ModelDeployment and its objects, each with its state and the reason. Pure.

It is built only from objects of the API server, without requests to Triton or to a balancer. Out of scope: reading the
objects (`inventory`), the stage of a pod (`pod_stage`), the layout (`tables`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from halcyon.api import user_annotations
from halcyon.api.conditions import LOUD
from halcyon.api.stored.replicas_in_force import replicas_in_force
from halcyon.render import names
from halcyon_cli.explain import model_state
from halcyon_cli.kube import fields
from halcyon_cli.kube.inventory import Inventory
from halcyon_cli.kube.pod_stage import Stage, stage

Json = Mapping[str, Any]
Tone = Literal["good", "busy", "bad", "calm"]
MAX_INACTIVE_REVISIONS = 3
"""Maximum number of inactive revisions that are listed. The others are only counted."""
_TONES: Mapping[str, Tone] = {
    "ready": "good",
    "failed": "bad",
    "unready": "bad",
    "draining": "calm",
    "ended": "calm",
}
"""Colors of pod states. A state that isn't listed counts as in progress."""


@dataclass(frozen=True)
class Node:
    """Line of the tree, which shows one object."""

    name: str
    kind: str
    state: str
    tone: Tone = "calm"
    reason: str = ""
    """Reason for the state of the object, in one word."""
    info: str = ""
    """Further information about the object, in at most one sentence."""
    created: datetime | None = None
    children: tuple[Node, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of the line, without empty fields."""
        plain: dict[str, Any] = {"name": self.name, "kind": self.kind, "state": self.state}
        plain |= {key: value for key, value in (("reason", self.reason), ("info", self.info)) if value}
        if self.created is not None:
            plain["created"] = self.created.isoformat()
        if self.children:
            plain["children"] = [child.to_dict() for child in self.children]
        return plain


@dataclass(frozen=True)
class Tree:
    """Model with its facts, its objects, and notes on problems."""

    facts: tuple[tuple[str, str], ...]
    root: Node
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of the tree."""
        return {"facts": dict(self.facts), "notes": list(self.notes), "tree": self.root.to_dict()}


def build_tree(inventory: Inventory) -> Tree:
    """Build the tree of a model from the objects of an inventory."""
    meta, spec, status = (fields.mapping(inventory.model.get(part)) for part in ("metadata", "spec", "status"))
    conditions = model_state.conditions(inventory.model)
    children = (
        *_revisions(inventory, spec, status),
        *_balancer(inventory),
        *(_hpa(hpa) for hpa in inventory.hpas),
    )
    root = Node(
        name=str(meta.get("name")),
        kind="ModelDeployment",
        state=_state(conditions, status),
        tone=_tone(conditions, is_starting=model_state.is_starting(inventory.model)),
        info=_replica_summary(spec, status, replicas_in_force(inventory.model)),
        created=fields.time(meta.get("creationTimestamp")),
        children=children,
    )
    facts = tuple(_facts(meta, spec, status, conditions))
    return Tree(facts, root, tuple(_notes(inventory, meta, conditions, facts)))


# The model itself.


def _state(conditions: Mapping[str, Json], status: Json) -> str:
    if not conditions:
        return "Unknown"
    summary = fields.mapping(status.get("summary"))
    ready = fields.text(conditions.get("Ready", {}).get("reason"))
    return fields.text(summary.get("state")) or ready or "Unknown"


# Stalled    Ready      Reconciling    the model is starting    tone
# True       -          -              -                        bad
# else       True       True           -                        busy
# else       True       else           -                        good
# else       False      True           no: an outage            bad
# else       False      absent         -                        bad
# else       else                                               busy
def _tone(conditions: Mapping[str, Json], *, is_starting: bool) -> Tone:
    ready = conditions.get("Ready", {}).get("status")
    if conditions.get("Stalled", {}).get("status") == "True":
        return "bad"
    if ready == "True":
        return "busy" if conditions.get("Reconciling", {}).get("status") == "True" else "good"
    return "bad" if ready == "False" and not ("Reconciling" in conditions and is_starting) else "busy"


def _replica_summary(spec: Json, status: Json, replicas: int) -> str:
    ready = fields.count(status.get("readyReplicas"))
    scaling = fields.mapping(spec.get("scaling"))
    summary = f"{'?' if ready is None else ready}/{replicas} ready"
    if scaling:
        summary += f", {scaling.get('minReplicas', 1)} to {scaling.get('maxReplicas', '?')} replicas allowed"
    desired = fields.count(fields.mapping(status.get("scaling")).get("desired"))
    return summary if desired is None or desired == replicas else f"{summary}, {desired} desired"


def _facts(meta: Json, spec: Json, status: Json, conditions: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    yield "Name", f"{meta.get('namespace')}/{meta.get('name')}"
    ready = conditions.get("Ready", {})
    yield (
        "Ready",
        f"{ready.get('status', 'Unknown')}: {ready.get('message') or 'the operator has not processed it yet'}",
    )
    revision, rollout = (fields.mapping(status.get(part)) for part in ("revision", "rollout"))
    if rollout:
        canary = fields.mapping(rollout.get("canary"))
        step = f", step {canary.get('step')} with {canary.get('weight')} % of the requests" if canary else ""
        message = fields.text(rollout.get("message"))
        yield (
            "Rollout",
            f"{rollout.get('phase')} by {rollout.get('strategy')}{step}" + (f": {message}" if message else ""),
        )
    scaling = fields.mapping(status.get("scaling"))
    if scaling:
        settings = ", ".join(str(scaling[key]) for key in ("mode", "policy", "actuator") if scaling.get(key))
        why = fields.text(scaling.get("why"))
        yield "Scaling", settings + (f": {why}" if why else "")
    elif not spec.get("scaling"):
        yield "Scaling", f"off: spec.replicas is {spec.get('replicas', 1)}"
    if reason := user_annotations.reason({"annotations": fields.mapping(meta.get("annotations"))}):
        yield "Reason", reason
    if (cost := fields.mapping(status.get("cost"))) and (cost_text := _cost(cost, scaling)):
        yield "Cost", cost_text
    url = fields.text(fields.mapping(status.get("address")).get("url"))
    if url:
        model = fields.text(fields.mapping(status.get("model")).get("name")) or meta.get("name")
        yield "URL", f"{url}/v2/models/{model}"
    if current := fields.text(revision.get("current")):
        yield "Serves", current


def _cost(cost: Json, scaling: Json) -> str:
    """Return the cost and the utilization of the model's GPUs as text; empty if unknown."""
    unit = f" {cost['currency']}" if fields.text(cost.get("currency")) else ""
    hour, thousand = (fields.text(cost.get(name)) for name in ("perHour", "perThousandInferences"))
    shares = [(name, fields.count(cost.get(f"{name}Percent"))) for name in ("starting", "busy", "idle")]
    saving = fields.count(cost.get("savingPercent"))
    parts = [
        f"{hour}{unit} an hour" if hour else "",
        f"{thousand}{unit} for 1,000 inferences" if thousand else "",
        " and ".join(f"{share} % {name}" for name, share in shares if share is not None),
        f"{saving} % less GPU time than maxReplicas all the time" if saving is not None and scaling else "",
    ]
    return ", ".join(part for part in parts if part)


_ATTENTION = {**LOUD, "RuntimeOutdated": "True"}
"""Conditions that the page shows, each with the status that needs attention."""


def _notes(
    inventory: Inventory, meta: Json, conditions: Mapping[str, Json], facts: Sequence[tuple[str, str]]
) -> Iterator[str]:
    if meta.get("deletionTimestamp"):
        yield "the ModelDeployment is being deleted"
    facts_text = " ".join(value for _, value in facts)
    for kind, expected in _ATTENTION.items():
        condition = conditions.get(kind, {})
        message = str(condition.get("message") or "")
        if condition.get("status") == expected and message not in facts_text:
            facts_text += message
            yield f"{kind} ({condition.get('reason')}): {message}"
    yield from inventory.unreadable


# Revisions, slots and pods.


def _revisions(inventory: Inventory, spec: Json, status: Json) -> Iterator[Node]:
    name = str(fields.mapping(inventory.model.get("metadata")).get("name"))
    status_revision, rollout = fields.mapping(status.get("revision")), fields.mapping(status.get("rollout"))
    records = {str(_meta(r).get("name")): r for r in inventory.revisions}
    keys = {
        names.revision(name, str(_label(o, names.REVISION_LABEL))) for o in (*inventory.servers, *_templates(inventory))
    }
    revisions = (
        keys | records.keys() | {str(r) for r in (status_revision.get("current"), status_revision.get("target")) if r}
    )
    ordered = sorted(revisions, key=lambda r: (-_number(records.get(r)), r))
    inactive = 0
    for revision in ordered:
        slots = tuple(_slots(inventory, name, revision))
        state, tone = _role(revision, status_revision, rollout, bool(slots))
        if not slots and state == "inactive":
            inactive += 1
            if inactive > MAX_INACTIVE_REVISIONS:
                continue
        info = "" if revision in records else "its ControllerRevision was deleted"
        yield Node(revision, "Revision", state, tone, "", info, _created(records.get(revision)), slots)
    if inactive > MAX_INACTIVE_REVISIONS:
        yield Node(f"and {inactive - MAX_INACTIVE_REVISIONS} more", "Revision", "inactive")
    if not ordered and spec:
        yield Node("none", "Revision", "none", info="no spec accepted yet")


# failed in the rollout   target   serving   has pods   state
# yes                     -        -         -          failed
# no                      -        yes       -          serving
# no                      yes      no        -          starting, or canary
# no                      no       no        yes        retiring
# no                      no       no        no         inactive
def _role(revision: str, status_revision: Json, rollout: Json, has_pods: bool) -> tuple[str, Tone]:
    failed = fields.mapping(rollout.get("failed")).get("revision")
    if failed == revision:
        return "failed", "bad"
    if status_revision.get("current") == revision:
        return "serving", "good"
    if status_revision.get("target") == revision:
        return ("canary" if rollout.get("canary") else "starting"), "busy"
    return ("retiring", "busy") if has_pods else ("inactive", "calm")


def _slots(inventory: Inventory, name: str, revision: str) -> Iterator[Node]:
    slots = {str(_label(d, names.SLOT_LABEL)): d for d in inventory.slots}
    revision_pods = [
        p for p in inventory.servers if names.revision(name, str(_label(p, names.REVISION_LABEL))) == revision
    ]
    for slot in sorted({*slots, *(str(_label(p, names.SLOT_LABEL)) for p in revision_pods)}):
        deployment = slots.get(slot)
        pods = tuple(
            _pod(p, inventory) for p in _oldest_first(revision_pods) if str(_label(p, names.SLOT_LABEL)) == slot
        )
        is_current = deployment is not None and names.revision(name, _template_key(deployment)) == revision
        if not pods and not is_current:
            continue
        desired = _desired_replicas(deployment) if is_current else 0
        ready = sum(p.state == "ready" for p in pods)
        summary = (
            f"{ready}/{desired} ready" if is_current else f"{ready} ready, replaced by another revision in this slot"
        )
        tone: Tone = "good" if is_current and ready >= desired else "busy"
        state, reason, info = _deployment_state(deployment, ready) if is_current else ("retiring", "", "")
        line = ". ".join(part for part in (summary, info) if part)
        deployment_name = names.server(name, names.Slot(slot))
        yield Node(deployment_name, "Slot", state, "bad" if reason else tone, reason, line, _created(deployment), pods)


def _deployment_state(deployment: Json | None, ready: int) -> tuple[str, str, str]:
    """Return (state, reason, message) of a Deployment.

    `ready` is the number of its ready pods with the current template.
    """
    status = fields.mapping((deployment or {}).get("status"))
    conditions = {str(c.get("type")): c for c in fields.mappings(status.get("conditions"))}
    failure = conditions.get("ReplicaFailure", {})
    if failure.get("status") == "True":
        return "rejected", str(failure.get("reason") or "ReplicaFailure"), str(failure.get("message") or "")
    if conditions.get("Progressing", {}).get("reason") == "ProgressDeadlineExceeded":
        return "stalled", "ProgressDeadlineExceeded", ""
    desired = _desired_replicas(deployment)
    if desired == 0:
        return "empty", "", ""
    return ("ready" if ready >= desired else "scaling"), "", ""


def _pod(pod: Json, inventory: Inventory) -> Node:
    pod_stage = stage(pod)
    meta, status = _meta(pod), fields.mapping(pod.get("status"))
    restarts = sum(fields.count(c.get("restartCount")) or 0 for c in fields.mappings(status.get("containerStatuses")))
    node = fields.text(fields.mapping(pod.get("spec")).get("nodeName"))
    download = inventory.downloads.get(str(meta.get("name")))
    parts = (
        f"on {node}" if node else "",
        download.describe() if download is not None else "",
        f"{restarts} restart{'s' if restarts > 1 else ''}" if restarts and pod_stage.state != "failed" else "",
    )
    details = ", ".join(part for part in parts if part)
    return Node(
        name=str(meta.get("name")),
        kind="Pod",
        state=pod_stage.state,
        tone=_pod_tone(pod_stage),
        reason=pod_stage.reason,
        info=": ".join(part for part in (details, pod_stage.message) if part),
        created=fields.time(meta.get("creationTimestamp")),
    )


def _pod_tone(pod_stage: Stage) -> Tone:
    return "bad" if pod_stage.reason == "Unschedulable" else _TONES.get(pod_stage.state, "busy")


# Balancers and HPA.


def _balancer(inventory: Inventory) -> Iterator[Node]:
    for deployment in inventory.balancers:
        desired = _desired_replicas(deployment)
        pods = tuple(_pod(p, inventory) for p in _oldest_first(inventory.balancer_pods))
        ready = sum(p.state == "ready" for p in pods)
        state, reason, info = _deployment_state(deployment, ready)
        tone: Tone = "bad" if reason or not ready else "good" if ready >= desired else "busy"
        line = ". ".join(part for part in (f"{ready}/{desired} ready", info) if part)
        name = str(_meta(deployment).get("name"))
        yield Node(name, "Balancer", state, tone, reason, line, _created(deployment), pods)


def _hpa(hpa: Json) -> Node:
    spec, status = (fields.mapping(hpa.get(part)) for part in ("spec", "status"))
    conditions = {str(c.get("type")): c for c in fields.mappings(status.get("conditions"))}
    desired = status.get("desiredReplicas")
    if desired == 0 and status.get("currentReplicas"):
        desired = None  # the HPA has computed nothing yet
    summary = f"{spec.get('minReplicas', 1)} to {spec.get('maxReplicas', '?')}" + (
        f", {desired} desired" if desired is not None else ""
    )
    active, able = conditions.get("ScalingActive", {}), conditions.get("AbleToScale", {})
    for condition in (able, active):
        if condition.get("status") == "False" and condition.get("reason") != "ScalingDisabled":
            info = f"{summary}: {condition.get('message')}"
            return Node(
                str(_meta(hpa).get("name")), "HPA", "inactive", "bad", str(condition.get("reason")), info, _created(hpa)
            )
    state: str
    state, tone = ("active", "good") if active.get("status") == "True" else ("disabled" if active else "new", "calm")
    return Node(str(_meta(hpa).get("name")), "HPA", state, tone, "", summary, _created(hpa))  # type: ignore[arg-type]  # a Tone


# Parts of objects.


def _meta(obj: Json | None) -> Json:
    return fields.mapping((obj or {}).get("metadata"))


def _label(obj: Json, label: str) -> Any:
    return fields.mapping(_meta(obj).get("labels")).get(label, "")


def _created(obj: Json | None) -> datetime | None:
    return fields.time(_meta(obj).get("creationTimestamp"))


def _desired_replicas(deployment: Json | None) -> int:
    """Return a Deployment's desired number of pods. The default in Kubernetes is 1."""
    replicas = fields.count(fields.mapping((deployment or {}).get("spec")).get("replicas"))
    return 1 if replicas is None else replicas


def _templates(inventory: Inventory) -> list[Json]:
    return [fields.mapping(fields.mapping(d.get("spec")).get("template")) for d in inventory.slots]


def _template_key(deployment: Json) -> str:
    return str(_label(fields.mapping(fields.mapping(deployment.get("spec")).get("template")), names.REVISION_LABEL))


def _number(record: Json | None) -> int:
    return fields.count((record or {}).get("revision")) or 0


def _oldest_first(pods: Sequence[Json]) -> list[Json]:
    """Sort pods by age, oldest first."""
    return sorted(pods, key=lambda p: (str(_meta(p).get("creationTimestamp") or ""), str(_meta(p).get("name"))))
