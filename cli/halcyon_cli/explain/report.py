"""What is told of a ModelDeployment's count, as values. Not here: how they are found (`reporting`), how they look (`text`)."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any

from pydantic.alias_generators import to_camel

from halcyon_cli.kube.free_capacity import FreeCapacity


@dataclass(frozen=True)
class ShownWindow:
    """A schedule that is open, or the next that will be. Times are those of its own time zone."""

    name: str
    opens: datetime
    closes: datetime
    min_replicas: int | None
    max_replicas: int | None


@dataclass(frozen=True)
class ReplicaBounds:
    """Least and most replicas."""

    low: int
    """In force now, with the schedules that are open."""
    high: int
    min_replicas: int
    """Of spec.scaling."""
    max_replicas: int
    open: tuple[ShownWindow, ...] = ()
    upcoming: ShownWindow | None = None
    conflict: str | None = None
    """Where schedules contradict each other."""


@dataclass(frozen=True)
class ShownSignal:
    """One row of `status.scaling.signals`."""

    name: str
    value: str | None
    target: str | None
    proposal: int | None
    observed_at: datetime | None
    source: str
    missing: str | None


@dataclass(frozen=True)
class Part:
    """One row of `status.scaling.parts`; `wins` marks the one that asks for most."""

    name: str
    replicas: int
    wins: bool
    why: str


@dataclass(frozen=True)
class ShownLimit:
    """What changed or kept the count after the signals had spoken."""

    name: str
    meaning: str


@dataclass(frozen=True)
class PodCounts:
    """Server pods."""

    wanted: int
    ready: int
    starting: int
    unschedulable: int
    missing: int
    """Not created yet."""


@dataclass(frozen=True)
class Note:
    """A condition that says something: one that isn't as it should be."""

    condition: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True)
class ShownChange:
    """A change of the count asked for."""

    time: datetime | None
    before: int
    after: int
    why: str


@dataclass(frozen=True)
class Report:
    """Why a model has as many replicas as it has."""

    namespace: str
    name: str
    headline: str
    """The count in force, the one asked for, and why."""
    replicas: int
    """The count in force."""
    desired: int | None
    """The count asked for; None where nobody asks."""
    why: str | None
    policy: str | None
    mode: str | None
    actuator: str | None
    actuator_reason: str | None
    decided_at: datetime | None
    limits: ReplicaBounds | None
    """None where there is no spec.scaling."""
    signals: tuple[ShownSignal, ...]
    parts: tuple[Part, ...]
    limited_by: tuple[ShownLimit, ...]
    pods: PodCounts | None
    start: str | None
    """What pods under way do, and what to expect of them; None where none is."""
    room: tuple[FreeCapacity, ...]
    """Of what pods find too little of; empty where they find enough, or nodes may not be seen."""
    notes: tuple[Note, ...]
    decisions: tuple[ShownChange, ...]
    """The newest first."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: names in camel case, times as texts, null for what isn't known."""
        plain: dict[str, Any] = _plain(self)
        return plain


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {to_camel(field.name): _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value.isoformat() if isinstance(value, datetime) else value
