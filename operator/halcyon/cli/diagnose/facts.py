"""What the rules of `diagnose` are given, and what they give. Not here: the rules (`rules_pods`, `rules_model`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from halcyon.cli.kube import fields
from halcyon.cli.kube.free_capacity import FreeCapacity
from halcyon.cli.kube.inventory import Inventory
from halcyon.cli.kube.pod_stage import Stage, stage

Json = Mapping[str, Any]
MAX_NAMED_PODS = 3
"""Pods that are named; the others are counted."""


@dataclass(frozen=True)
class Facts:
    """What the rules are given."""

    inventory: Inventory
    now: datetime
    events: Sequence[Json] = ()
    operators: Sequence[Json] | None = None
    """Pods of the operator; None where they may not be listed."""
    free_capacity: Sequence[FreeCapacity] = ()
    """Of what pods find too little of."""


@dataclass(frozen=True)
class Cause:
    """Something that may be the reason."""

    weight: int
    """From 100, nothing can work, to 1, worth a look."""
    summary: str
    evidence: tuple[str, ...]
    next_step: str
    """What to do next."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "weight": self.weight,
            "summary": self.summary,
            "evidence": list(self.evidence),
            "nextStep": self.next_step,
        }


@dataclass(frozen=True)
class ConditionIndex:
    """A model, taken apart."""

    name: str
    spec: Json
    status: Json
    conditions: Mapping[str, Json]
    stages: Sequence[tuple[Json, Stage]]
    """Server pods, and what they do."""

    def message_if(self, kind: str, status: str, *reasons: str) -> str | None:
        """The message of a condition that is so; None where it isn't."""
        condition = self.conditions.get(kind, {})
        if condition.get("status") != status or (reasons and condition.get("reason") not in reasons):
            return None
        return str(condition.get("message") or "")

    @classmethod
    def from_inventory(cls, inventory: Inventory) -> ConditionIndex:
        """Of what was read."""
        meta, spec, status = (fields.mapping(inventory.model.get(part)) for part in ("metadata", "spec", "status"))
        return cls(
            name=str(meta.get("name")),
            spec=spec,
            status=status,
            conditions={str(c.get("type")): c for c in fields.mappings(status.get("conditions"))},
            stages=[(pod, stage(pod)) for pod in inventory.servers],
        )


def pod_evidence(pods: Sequence[tuple[Json, Stage]]) -> tuple[str, ...]:
    """Evidence: the first of these pods, each with its message."""
    lines = [
        f"pod {pod_name(pod)}: {pod_stage.message or pod_stage.reason or pod_stage.state}"
        for pod, pod_stage in pods[:MAX_NAMED_PODS]
    ]
    return (*lines, *([f"and {len(pods) - MAX_NAMED_PODS} more"] if len(pods) > MAX_NAMED_PODS else []))


def pod_name(pod: Json) -> str:
    """Name of a pod."""
    return str(fields.mapping(pod.get("metadata")).get("name"))


def age_s(pod: Json, now: datetime) -> float:
    """Seconds since it was made; 0 where that isn't known."""
    created = fields.time(fields.mapping(pod.get("metadata")).get("creationTimestamp"))
    return 0.0 if created is None else (now - created).total_seconds()
