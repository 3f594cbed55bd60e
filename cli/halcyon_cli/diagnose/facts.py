"""Input and output types of the rules of `diagnose`. Out of scope: the rules (`pod_rules`, `model_rules`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from halcyon_cli.kube import fields
from halcyon_cli.kube.free_capacity import FreeCapacity
from halcyon_cli.kube.inventory import Inventory
from halcyon_cli.kube.pod_stage import Stage, stage

Json = Mapping[str, Any]
MAX_NAMED_PODS = 3
"""Maximum number of pods named as evidence; the others are only counted."""


@dataclass(frozen=True)
class Facts:
    """Input of the rules: the model with its objects, and other facts about the cluster."""

    inventory: Inventory
    now: datetime
    events: Sequence[Json] = ()
    operators: Sequence[Json] | None = None
    """Pods of the operator; None if the user may not list them."""
    free_capacity: Sequence[FreeCapacity] = ()
    """Free capacity of the resources that unschedulable pods are waiting for."""
    batches: Sequence[Json] = ()
    """BatchInferences of the model."""


@dataclass(frozen=True)
class Cause:
    """Likely cause of a problem, with its evidence and a next step."""

    weight: int
    """Likelihood and severity of the cause, for sorting, from 100 (nothing can work) to 1 (should be checked)."""
    summary: str
    evidence: tuple[str, ...]
    next_step: str
    """Advice on what to check or change next."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of the cause."""
        return {
            "weight": self.weight,
            "summary": self.summary,
            "evidence": list(self.evidence),
            "nextStep": self.next_step,
        }


@dataclass(frozen=True)
class ConditionIndex:
    """Index of a model's spec, status and conditions, and of the stages of its pods."""

    name: str
    spec: Json
    status: Json
    conditions: Mapping[str, Json]
    stages: Sequence[tuple[Json, Stage]]
    """Pods of the model, each with its stage."""

    def message_if(self, kind: str, status: str, *reasons: str) -> str | None:
        """Return the message of the condition `kind` if its status (and its reason, if given) matches, else None."""
        condition = self.conditions.get(kind, {})
        if condition.get("status") != status or (reasons and condition.get("reason") not in reasons):
            return None
        return str(condition.get("message") or "")

    @classmethod
    def from_inventory(cls, inventory: Inventory) -> ConditionIndex:
        """Build the index from an inventory."""
        meta, spec, status = (fields.mapping(inventory.model.get(part)) for part in ("metadata", "spec", "status"))
        return cls(
            name=str(meta.get("name")),
            spec=spec,
            status=status,
            conditions={str(c.get("type")): c for c in fields.mappings(status.get("conditions"))},
            stages=[(pod, stage(pod)) for pod in inventory.servers],
        )


def pod_evidence(pods: Sequence[tuple[Json, Stage]]) -> tuple[str, ...]:
    """Return the evidence text for pods: the names and messages of the first pods, and the number of other pods."""
    lines = [
        f"pod {pod_name(pod)}: {pod_stage.message or pod_stage.reason or pod_stage.state}"
        for pod, pod_stage in pods[:MAX_NAMED_PODS]
    ]
    return (*lines, *([f"and {len(pods) - MAX_NAMED_PODS} more"] if len(pods) > MAX_NAMED_PODS else []))


def pod_name(pod: Json) -> str:
    """Return a pod's name."""
    return str(fields.mapping(pod.get("metadata")).get("name"))


def age_s(pod: Json, now: datetime) -> float:
    """Return the time since the creation of a pod in seconds; 0 if it is unknown."""
    created = fields.time(fields.mapping(pod.get("metadata")).get("creationTimestamp"))
    return 0.0 if created is None else (now - created).total_seconds()
