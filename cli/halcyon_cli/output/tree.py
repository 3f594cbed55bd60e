"""A ModelDeployment and what was made for it, as the API server has them -> a tree of states and reasons. Pure.

Only what the objects say is told; nothing is asked of Triton or of a balancer. Not here: where the objects come from (`seen`), what a
pod does (`stages`), how a tree looks (`drawing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from halcyon.api import user_annotations
from halcyon.api.conditions import LOUD
from halcyon.render import names
from halcyon_cli.kube import fields
from halcyon_cli.kube.inventory import Inventory
from halcyon_cli.kube.pod_stage import Stage, stage

Json = Mapping[str, Any]
Tone = Literal["good", "busy", "bad", "calm"]
_SHOWN = 3
"""Revisions without a pod that are named; the others are counted."""
_TONES: Mapping[str, Tone] = {
    "ready": "good",
    "failed": "bad",
    "unready": "bad",
    "draining": "calm",
    "ended": "calm",
}
"""Tones of a pod's states; the others are under way."""


@dataclass(frozen=True)
class Node:
    """One line."""

    name: str
    kind: str
    state: str
    tone: Tone = "calm"
    reason: str = ""
    """One word."""
    info: str = ""
    """What else is to know, in a sentence at most."""
    created: datetime | None = None
    children: tuple[Node, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        plain: dict[str, Any] = {"name": self.name, "kind": self.kind, "state": self.state}
        plain |= {key: value for key, value in (("reason", self.reason), ("info", self.info)) if value}
        if self.created is not None:
            plain["created"] = self.created.isoformat()
        if self.children:
            plain["children"] = [child.to_dict() for child in self.children]
        return plain


@dataclass(frozen=True)
class Tree:
    """A model: facts, what to do where something is to be done, and its parts."""

    facts: tuple[tuple[str, str], ...]
    root: Node
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"facts": dict(self.facts), "notes": list(self.notes), "tree": self.root.to_dict()}


def tree(seen: Inventory) -> Tree:
    """The tree of these objects."""
    meta, spec, status = (fields.mapping(seen.model.get(part)) for part in ("metadata", "spec", "status"))
    conditions = {str(c.get("type")): c for c in fields.mappings(status.get("conditions"))}
    children = (
        *_revisions(seen, spec, status),
        *_balancer(seen),
        *(_hpa(hpa) for hpa in seen.hpas),
    )
    root = Node(
        name=str(meta.get("name")),
        kind="ModelDeployment",
        state=_state(conditions, status),
        tone=_tone(conditions),
        info=_count(spec, status),
        created=fields.time(meta.get("creationTimestamp")),
        children=children,
    )
    facts = tuple(_facts(meta, spec, status, conditions))
    return Tree(facts, root, tuple(_notes(seen, meta, conditions, facts)))


# The model itself.


def _state(conditions: Mapping[str, Json], status: Json) -> str:
    if not conditions:
        return "Unknown"
    summary = fields.mapping(status.get("summary"))
    ready = fields.text(conditions.get("Ready", {}).get("reason"))
    return fields.text(summary.get("state")) or ready or "Unknown"


def _tone(conditions: Mapping[str, Json]) -> Tone:
    ready = conditions.get("Ready", {}).get("status")
    if conditions.get("Stalled", {}).get("status") == "True":
        return "bad"
    if ready == "True":
        return "busy" if conditions.get("Reconciling", {}).get("status") == "True" else "good"
    return "bad" if ready == "False" and "Reconciling" not in conditions else "busy"


def _count(spec: Json, status: Json) -> str:
    replicas = fields.mapping(status.get("replicas"))
    ready = fields.count(replicas.get("ready"))
    scaling = fields.mapping(spec.get("scaling"))
    wanted = spec.get("replicas", 1)
    told = f"{'?' if ready is None else ready}/{wanted} ready"
    if scaling:
        told += f", {scaling.get('minReplicas', 1)} to {scaling.get('maxReplicas', '?')} allowed"
    desired = fields.count(fields.mapping(status.get("scaling")).get("desired"))
    return told if desired is None or desired == wanted else f"{told}, {desired} wanted"


def _facts(meta: Json, spec: Json, status: Json, conditions: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    yield "Name", f"{meta.get('namespace')}/{meta.get('name')}"
    ready = conditions.get("Ready", {})
    yield "Ready", f"{ready.get('status', 'Unknown')}: {ready.get('message') or 'the operator has said nothing yet'}"
    revision, rollout = (fields.mapping(status.get(part)) for part in ("revision", "rollout"))
    if rollout:
        canary = fields.mapping(rollout.get("canary"))
        where = f", step {canary.get('step')} with {canary.get('weight')} % of the requests" if canary else ""
        told = fields.text(rollout.get("message"))
        yield "Rollout", f"{rollout.get('phase')} by {rollout.get('strategy')}{where}" + (f": {told}" if told else "")
    scaling = fields.mapping(status.get("scaling"))
    if scaling:
        how = ", ".join(str(scaling[key]) for key in ("mode", "policy", "actuator") if scaling.get(key))
        why = fields.text(scaling.get("why"))
        yield "Scaling", how + (f": {why}" if why else "")
    elif not spec.get("scaling"):
        yield "Scaling", f"off: spec.replicas is {spec.get('replicas', 1)}"
    if given := user_annotations.reason({"annotations": fields.mapping(meta.get("annotations"))}):
        yield "Reason", given
    if (cost := fields.mapping(status.get("cost"))) and (said := _cost(cost, scaling)):
        yield "Cost", said
    url = fields.text(fields.mapping(status.get("endpoints")).get("http"))
    if url:
        model = fields.text(fields.mapping(status.get("model")).get("name")) or meta.get("name")
        yield "URL", f"{url}/v2/models/{model}"
    if current := fields.text(revision.get("current")):
        yield "Serves", current


def _cost(cost: Json, scaling: Json) -> str:
    """What its GPUs cost and do; empty where nothing is known of it."""
    unit = f" {cost['currency']}" if fields.text(cost.get("currency")) else ""
    hour, thousand = (fields.text(cost.get(name)) for name in ("perHour", "perThousandInferences"))
    shares = [(name, fields.count(cost.get(f"{name}Percent"))) for name in ("starting", "busy", "idle")]
    saving = fields.count(cost.get("savingPercent"))
    parts = [
        f"{hour}{unit} an hour" if hour else "",
        f"{thousand}{unit} for 1,000 inferences" if thousand else "",
        " and ".join(f"{share} % {name}" for name, share in shares if share is not None),
        f"{saving} % less GPU time than the most replicas all the time" if saving is not None and scaling else "",
    ]
    return ", ".join(part for part in parts if part)


_LOUD = {**LOUD, "RuntimeOutdated": "True"}
"""Conditions that a person should read, and the status that makes them so."""


def _notes(
    seen: Inventory, meta: Json, conditions: Mapping[str, Json], facts: Sequence[tuple[str, str]]
) -> Iterator[str]:
    if meta.get("deletionTimestamp"):
        yield "it is being deleted"
    said = " ".join(value for _, value in facts)
    for kind, loud in _LOUD.items():
        found = conditions.get(kind, {})
        message = str(found.get("message") or "")
        if found.get("status") == loud and message not in said:
            said += message
            yield f"{kind} ({found.get('reason')}): {message}"
    yield from seen.hidden


# Revisions, slots and pods.


def _revisions(seen: Inventory, spec: Json, status: Json) -> Iterator[Node]:
    name = str(fields.mapping(seen.model.get("metadata")).get("name"))
    told, rollout = fields.mapping(status.get("revision")), fields.mapping(status.get("rollout"))
    records = {str(_meta(r).get("name")): r for r in seen.revisions}
    keys = {names.revision(name, str(_label(o, names.REVISION_LABEL))) for o in (*seen.servers, *_templates(seen))}
    known = keys | records.keys() | {str(r) for r in (told.get("current"), told.get("target")) if r}
    ordered = sorted(known, key=lambda r: (-_number(records.get(r)), r))
    left = 0
    for revision in ordered:
        slots = tuple(_slots(seen, name, revision))
        state, tone = _role(revision, told, rollout, bool(slots))
        if not slots and state == "earlier":
            left += 1
            if left > _SHOWN:
                continue
        info = "" if revision in records else "its ControllerRevision is gone"
        yield Node(revision, "Revision", state, tone, "", info, _created(records.get(revision)), slots)
    if left > _SHOWN:
        yield Node(f"and {left - _SHOWN} more", "Revision", "earlier")
    if not ordered and spec:
        yield Node("none", "Revision", "none", info="nothing was accepted yet")


# the rollout's failed one   asked for   serves   has pods   state
# yes                        -           -        -          failed
# no                         yes         yes      -          serving
# no                         yes         no       -          coming, or canary
# no                         no          yes      -          serving
# no                         no          no       yes        going
# no                         no          no       no         earlier
def _role(revision: str, told: Json, rollout: Json, has_pods: bool) -> tuple[str, Tone]:
    failed = fields.mapping(rollout.get("failed")).get("revision")
    if failed == revision:
        return "failed", "bad"
    if told.get("current") == revision:
        return "serving", "good"
    if told.get("target") == revision:
        return ("canary" if rollout.get("canary") else "coming"), "busy"
    return ("going", "busy") if has_pods else ("earlier", "calm")


def _slots(seen: Inventory, name: str, revision: str) -> Iterator[Node]:
    slots = {str(_label(d, names.SLOT_LABEL)): d for d in seen.slots}
    of = [p for p in seen.servers if names.revision(name, str(_label(p, names.REVISION_LABEL))) == revision]
    for slot in sorted({*slots, *(str(_label(p, names.SLOT_LABEL)) for p in of)}):
        deployment = slots.get(slot)
        pods = tuple(_pod(p) for p in _in_order(of) if str(_label(p, names.SLOT_LABEL)) == slot)
        is_of = deployment is not None and names.revision(name, _template_key(deployment)) == revision
        if not pods and not is_of:
            continue
        wanted = _wanted(deployment) if is_of else 0
        ready = sum(p.state == "ready" for p in pods)
        told = f"{ready}/{wanted} ready" if is_of else f"{ready} ready, the slot goes to another revision"
        tone: Tone = "good" if is_of and ready >= wanted else "busy"
        state, reason, info = _deployment_state(deployment, ready) if is_of else ("leaving", "", "")
        line = ". ".join(part for part in (told, info) if part)
        full = names.server(name, names.Slot(slot))
        yield Node(full, "Slot", state, "bad" if reason else tone, reason, line, _created(deployment), pods)


def _deployment_state(deployment: Json | None, ready: int) -> tuple[str, str, str]:
    """(state, reason, message); `ready` of its pods are, of the revision that it is of."""
    status = fields.mapping((deployment or {}).get("status"))
    conditions = {str(c.get("type")): c for c in fields.mappings(status.get("conditions"))}
    failure = conditions.get("ReplicaFailure", {})
    if failure.get("status") == "True":
        return "refused", str(failure.get("reason") or "ReplicaFailure"), str(failure.get("message") or "")
    if conditions.get("Progressing", {}).get("reason") == "ProgressDeadlineExceeded":
        return "late", "ProgressDeadlineExceeded", ""
    wanted = _wanted(deployment)
    if wanted == 0:
        return "empty", "", ""
    return ("full" if ready >= wanted else "filling"), "", ""


def _pod(pod: Json) -> Node:
    found = stage(pod)
    meta, status = _meta(pod), fields.mapping(pod.get("status"))
    restarts = sum(fields.count(c.get("restartCount")) or 0 for c in fields.mappings(status.get("containerStatuses")))
    node = fields.text(fields.mapping(pod.get("spec")).get("nodeName"))
    parts = (
        f"on {node}" if node else "",
        f"{restarts} restart{'s' if restarts > 1 else ''}" if restarts and found.state != "failed" else "",
    )
    where = ", ".join(part for part in parts if part)
    return Node(
        name=str(meta.get("name")),
        kind="Pod",
        state=found.state,
        tone=_pod_tone(found),
        reason=found.reason,
        info=": ".join(part for part in (where, found.message) if part),
        created=fields.time(meta.get("creationTimestamp")),
    )


def _pod_tone(found: Stage) -> Tone:
    return "bad" if found.reason == "Unschedulable" else _TONES.get(found.state, "busy")


# What stands beside the servers.


def _balancer(seen: Inventory) -> Iterator[Node]:
    for deployment in seen.balancers:
        wanted = _wanted(deployment)
        pods = tuple(_pod(p) for p in _in_order(seen.balancer_pods))
        ready = sum(p.state == "ready" for p in pods)
        state, reason, info = _deployment_state(deployment, ready)
        tone: Tone = "bad" if reason or not ready else "good" if ready >= wanted else "busy"
        line = ". ".join(part for part in (f"{ready}/{wanted} ready", info) if part)
        name = str(_meta(deployment).get("name"))
        yield Node(name, "Balancer", state, tone, reason, line, _created(deployment), pods)


def _hpa(hpa: Json) -> Node:
    spec, status = (fields.mapping(hpa.get(part)) for part in ("spec", "status"))
    conditions = {str(c.get("type")): c for c in fields.mappings(status.get("conditions"))}
    wants = status.get("desiredReplicas")
    told = f"{spec.get('minReplicas', 1)} to {spec.get('maxReplicas', '?')}" + (
        f", wants {wants}" if wants is not None else ""
    )
    active, able = conditions.get("ScalingActive", {}), conditions.get("AbleToScale", {})
    for found in (able, active):
        if found.get("status") == "False" and found.get("reason") != "ScalingDisabled":
            info = f"{told}: {found.get('message')}"
            return Node(
                str(_meta(hpa).get("name")), "HPA", "inactive", "bad", str(found.get("reason")), info, _created(hpa)
            )
    state: str
    state, tone = ("active", "good") if active.get("status") == "True" else ("resting" if active else "new", "calm")
    return Node(str(_meta(hpa).get("name")), "HPA", state, tone, "", told, _created(hpa))  # type: ignore[arg-type]  # a Tone


# Parts of objects.


def _meta(obj: Json | None) -> Json:
    return fields.mapping((obj or {}).get("metadata"))


def _label(obj: Json, label: str) -> Any:
    return fields.mapping(_meta(obj).get("labels")).get(label, "")


def _created(obj: Json | None) -> datetime | None:
    return fields.time(_meta(obj).get("creationTimestamp"))


def _wanted(deployment: Json | None) -> int:
    """Pods that a Deployment is to have; 1 is Kubernetes' own default."""
    found = fields.count(fields.mapping((deployment or {}).get("spec")).get("replicas"))
    return 1 if found is None else found


def _templates(seen: Inventory) -> list[Json]:
    return [fields.mapping(fields.mapping(d.get("spec")).get("template")) for d in seen.slots]


def _template_key(deployment: Json) -> str:
    return str(_label(fields.mapping(fields.mapping(deployment.get("spec")).get("template")), names.REVISION_LABEL))


def _number(record: Json | None) -> int:
    return fields.count((record or {}).get("revision")) or 0


def _in_order(pods: Sequence[Json]) -> list[Json]:
    """By age, the oldest first."""
    return sorted(pods, key=lambda p: (str(_meta(p).get("creationTimestamp") or ""), str(_meta(p).get("name"))))
