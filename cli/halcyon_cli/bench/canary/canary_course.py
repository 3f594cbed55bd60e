"""Course of a canary, read from the model: in progress, promoted, worse, or replaced by another change. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from halcyon.api.stored.replicas_in_force import replicas_in_force
from halcyon.control.rollout.canary_progress import PROMOTE
from halcyon_cli.bench.canary.canary_change import WrittenChange
from halcyon_cli.kube import fields

Json = Mapping[str, Any]

CoursePhase = Literal["Waiting", "Canary", "Promoted", "Served", "Worse", "NotCompared", "Replaced"]
"""Phase in the course of a canary.

Waiting: the operator hasn't started the canary. Canary: the canary is in progress. Promoted: it gets all requests, and
pods are still replaced. Served: only its pods serve. Worse: it was rejected, has failed, or was rolled back.
NotCompared: it can't be compared with the previous revision. Replaced: another writer changed the spec.
"""


@dataclass(frozen=True, kw_only=True)
class CanaryCourse:
    """Course of a canary, as far as the model shows it."""

    phase: CoursePhase
    text: str
    """State of the canary, or the reason why it ended, in one sentence."""
    revision: str = ""
    """Name of the canary's ControllerRevision; empty if the operator hasn't created it yet."""
    lacks_capacity: bool = False
    """Whether the scheduler finds no node for a pod of the canary."""


# change in force   observed   Accepted   phase                    replicas   canary   revision of the canary   course
# no                -          -          -                        -          -        -                        Replaced
# yes               no         -          -                        -          -        -                        Waiting
# yes               yes        False      -                        -          -        -                        Worse
# yes               yes        True       rolled back, failed      -          -        -                        Worse
# yes               yes        True       other                    0          -        -                        NotCompared
# yes               yes        True       other                    > 0        yes      -                        Canary
# yes               yes        True       other                    > 0        no       the previous one         NotCompared if Complete, else Waiting
# yes               yes        True       Complete                 > 0        no       another, serves          Served
# yes               yes        True       other                    > 0        no       another, was served      Promoted
# yes               yes        True       other                    > 0        no       another                  Waiting
def course(model: Json, written: WrittenChange) -> CanaryCourse:
    """Return the course of the canary that a change has started."""
    meta, spec, status = (fields.mapping(model.get(part)) for part in ("metadata", "spec", "status"))
    name = str(meta.get("name"))
    if not written.is_in_force(spec):
        return CanaryCourse(phase="Replaced", text=f"another writer changed the spec of {name} during the canary")
    if (fields.count(status.get("observedGeneration")) or 0) < written.generation:
        return CanaryCourse(phase="Waiting", text=f"waiting for the operator to observe the change of {name}")
    target = str(fields.mapping(status.get("revision")).get("target") or "")
    revision = target if target != written.previous else ""
    phase, text = _failure(status, name) or _progress(model, status, name, revision)
    return CanaryCourse(
        phase=phase,
        text=" ".join(text.split()),
        revision=revision,
        lacks_capacity=bool(fields.count(fields.mapping(status.get("pods")).get("unschedulable"))),
    )


def _failure(status: Json, name: str) -> tuple[CoursePhase, str] | None:
    accepted = next(
        (condition for condition in fields.mappings(status.get("conditions")) if condition.get("type") == "Accepted"),
        {},
    )
    if accepted.get("status") == "False":
        return "Worse", f"the operator doesn't accept the change: {accepted.get('message')}"
    rollout = fields.mapping(status.get("rollout"))
    if rollout.get("phase") not in {"RollingBack", "RolledBack", "Failed"}:
        return None
    failed = fields.mapping(rollout.get("failed"))
    return "Worse", str(failed.get("message") or rollout.get("message") or f"the canary of {name} has failed")


def _progress(model: Json, status: Json, name: str, revision: str) -> tuple[CoursePhase, str]:
    rollout = fields.mapping(status.get("rollout"))
    message, is_complete = str(rollout.get("message") or ""), rollout.get("phase") == "Complete"
    if replicas_in_force(model) == 0:
        return "NotCompared", f"{name} was scaled to zero replicas, so the canary can't be compared"
    if rollout.get("canary"):
        return "Canary", message or f"{name} has a canary"
    if is_complete and not revision:
        return "NotCompared", f"the change of {name} has the same pods, so there is no canary"
    if is_complete and fields.mapping(status.get("revision")).get("current") == revision:
        return "Served", f"{name} serves with revision {revision}"
    past = {(entry.get("revision"), entry.get("result")) for entry in fields.mappings(rollout.get("history"))}
    if revision and (revision, "Served") in past:
        return "Promoted", "the canary was promoted, and its pods take the place of the others"
    return "Waiting", message or f"waiting for the canary of {name}"


def is_promoted_by_hand(model: Json, revision: str) -> bool:
    """Return whether a person promoted this revision with an annotation, regardless of the analysis."""
    annotations = fields.mapping(fields.mapping(model.get("metadata")).get("annotations"))
    annotation = str(annotations.get(PROMOTE) or "")
    return bool(annotation) and revision in {
        annotation,
        f"{fields.mapping(model.get('metadata')).get('name')}-{annotation}",
    }


def is_restored(model: Json, previous: str) -> bool:
    """Return whether only the previous revision serves again, as the spec requests."""
    meta, status = fields.mapping(model.get("metadata")), fields.mapping(model.get("status"))
    rollout, revisions = fields.mapping(status.get("rollout")), fields.mapping(status.get("revision"))
    observed = (fields.count(status.get("observedGeneration")) or 0) >= (fields.count(meta.get("generation")) or 1)
    serves = (revisions.get("current"), revisions.get("target")) == (previous, previous)
    return observed and serves and rollout.get("phase") == "Complete" and not rollout.get("canary")
