"""What the rules of `diagnose` are given, and what they give. Not here: the rules (`rules_pods`, `rules_model`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from halcyon_cli.kube import fields
from halcyon_cli.kube.free_capacity import FreeCapacity
from halcyon_cli.kube.inventory import Inventory
from halcyon_cli.kube.pod_stage import Stage, stage

Json = Mapping[str, Any]
MANY = 3
"""Pods that are named; the others are counted."""


@dataclass(frozen=True)
class Facts:
    """What the rules are given."""

    seen: Inventory
    now: datetime
    events: Sequence[Json] = ()
    operators: Sequence[Json] | None = None
    """Pods of the operator; None where they may not be listed."""
    room: Sequence[FreeCapacity] = ()
    """Of what pods find too little of."""


@dataclass(frozen=True)
class Cause:
    """Something that may be the reason."""

    weight: int
    """From 100, nothing can work, to 1, worth a look."""
    what: str
    evidence: tuple[str, ...]
    then: str
    """What to do next."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self) | {"evidence": list(self.evidence)}


@dataclass(frozen=True)
class ConditionIndex:
    """A model, taken apart."""

    name: str
    spec: Json
    status: Json
    conditions: Mapping[str, Json]
    stages: Sequence[tuple[Json, Stage]]
    """Server pods, and what they do."""

    def says(self, kind: str, status: str, *reasons: str) -> str | None:
        """The message of a condition that is so; None where it isn't."""
        found = self.conditions.get(kind, {})
        if found.get("status") != status or (reasons and found.get("reason") not in reasons):
            return None
        return str(found.get("message") or "")

    @classmethod
    def of(cls, seen: Inventory) -> ConditionIndex:
        """Of what was read."""
        meta, spec, status = (fields.mapping(seen.model.get(part)) for part in ("metadata", "spec", "status"))
        return cls(
            name=str(meta.get("name")),
            spec=spec,
            status=status,
            conditions={str(c.get("type")): c for c in fields.mappings(status.get("conditions"))},
            stages=[(pod, stage(pod)) for pod in seen.servers],
        )


def named(found: Sequence[tuple[Json, Stage]]) -> tuple[str, ...]:
    """Evidence: the first of these pods, each with its message."""
    lines = [f"pod {name_of(pod)}: {one.message or one.reason or one.state}" for pod, one in found[:MANY]]
    return (*lines, *([f"and {len(found) - MANY} more"] if len(found) > MANY else []))


def name_of(pod: Json) -> str:
    """Name of a pod."""
    return str(fields.mapping(pod.get("metadata")).get("name"))


def age_s(pod: Json, now: datetime) -> float:
    """Seconds since it was made; 0 where that isn't known."""
    made = fields.time(fields.mapping(pod.get("metadata")).get("creationTimestamp"))
    return 0.0 if made is None else (now - made).total_seconds()
