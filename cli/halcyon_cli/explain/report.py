"""Value types of the report on a model's replicas. Out of scope: building (`build`) and layout (`report_text`)."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any

from pydantic.alias_generators import to_camel

from halcyon_cli.explain.advice import ShownAdvice
from halcyon_cli.kube.free_capacity import FreeCapacity


@dataclass(frozen=True)
class ShownWindow:
    """Schedule that is open now, or that opens next. Its times are in the schedule's own time zone."""

    name: str
    opens: datetime
    closes: datetime
    min_replicas: int | None
    max_replicas: int | None


@dataclass(frozen=True)
class ReplicaBounds:
    """Minimum and maximum replicas."""

    low: int
    """Minimum replicas that apply now, with open schedules taken into account."""
    high: int
    min_replicas: int
    """Minimum replicas in spec.scaling."""
    max_replicas: int
    open: tuple[ShownWindow, ...] = ()
    upcoming: ShownWindow | None = None
    conflict: str | None = None
    """Description of a conflict between schedules; None if there is none."""


@dataclass(frozen=True)
class ShownSignal:
    """Entry of `status.scaling.signals`."""

    name: str
    value: str | None
    target: str | None
    proposal: int | None
    observed_at: datetime | None
    source: str
    missing: str | None


@dataclass(frozen=True)
class Part:
    """Entry of `status.scaling.parts`. `wins` marks the part that requires the most replicas, which decides."""

    name: str
    replicas: int
    wins: bool
    why: str


@dataclass(frozen=True)
class ShownLimit:
    """Limit that changed the number of replicas that the parts require, or prevented a change."""

    name: str
    meaning: str


@dataclass(frozen=True)
class PodCounts:
    """Numbers of pods of the model, by state."""

    desired: int
    ready: int
    starting: int
    unready: int
    """Number of pods that were ready before but are not ready now."""
    unschedulable: int
    missing: int
    """Number of pods that have not been created yet."""


@dataclass(frozen=True)
class Note:
    """Condition with an abnormal status, and its message."""

    condition: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True)
class ShownChange:
    """Change of the desired replicas."""

    time: datetime | None
    before: int
    after: int
    why: str


@dataclass(frozen=True)
class ShownLine:
    """Straight line that is fitted to the execution times of a replica's batches, for one number of model instances."""

    instances: int
    constant_milliseconds: str
    per_row_milliseconds: str
    max_batch_size: int

    def describe(self) -> str:
        """Return the batch times in one sentence."""
        instances = "1 instance" if self.instances == 1 else f"{self.instances} instances"
        return (
            f"{self.constant_milliseconds} ms + {self.per_row_milliseconds} ms per row, "
            f"up to {self.max_batch_size} rows, {instances}"
        )


@dataclass(frozen=True)
class ShownCapacity:
    """Capacity of one replica, with the source of the figures."""

    source: str | None
    """Source of the figures; None if the report only contains a measurement that is ignored."""
    requests_per_second: str | None
    why: str
    sustained_requests_per_second: str | None = None
    """Requests per second that one replica answers within the objective, or at the planned utilisation."""
    lines: tuple[ShownLine, ...] = ()
    observed_at: datetime | None = None
    revision: str | None = None
    image: str | None = None
    gpu_product: str | None = None
    ignored: str | None = None
    """Reason why the ConfigMap NAME-capacity is ignored; None if it isn't ignored."""

    def describe(self) -> list[str]:
        """Return sentences about the capacity, the batch times, and the reason why a measurement is ignored."""
        sentences = []
        if self.source is not None:
            value = "unknown" if self.requests_per_second is None else f"{self.requests_per_second} req/s per replica"
            if self.sustained_requests_per_second is not None:
                value += f", {self.sustained_requests_per_second} within the objective"
            sentences.append(f"{value}, source {self.source}: {self.why}")
        if self.lines:
            origin = "".join(f", {word}" for word in (self.revision, self.gpu_product) if word)
            sentences.append("; ".join(line.describe() for line in self.lines) + origin)
        return sentences if self.ignored is None else [*sentences, self.ignored]


@dataclass(frozen=True)
class Report:
    """Report that `halcyon explain` prints."""

    namespace: str
    name: str
    headline: str
    """Headline of the report: the replicas, the desired replicas if they differ, and the reason."""
    replicas: int
    """Replicas in force (`halcyon.api.stored.replicas_in_force`)."""
    desired: int | None
    """Desired replicas; None if the operator has made no decision."""
    why: str | None
    policy: str | None
    mode: str | None
    actuator: str | None
    actuator_reason: str | None
    decided_at: datetime | None
    limits: ReplicaBounds | None
    """Replica limits; None if the model has no spec.scaling."""
    signals: tuple[ShownSignal, ...]
    parts: tuple[Part, ...]
    limited_by: tuple[ShownLimit, ...]
    capacity: ShownCapacity | None
    """Capacity of a replica on which the decision is based; None if it isn't based on a capacity."""
    pods: PodCounts | None
    start: str | None
    """Progress of starting pods and the duration of the last start; None if no pod is starting."""
    free_capacity: tuple[FreeCapacity, ...]
    """Free capacity of the resources that unschedulable pods are waiting for. Empty if no pod is waiting, or if the
    user may not list nodes.
    """
    notes: tuple[Note, ...]
    decisions: tuple[ShownChange, ...]
    """Recent changes of the desired replicas, newest first."""
    advice: tuple[ShownAdvice, ...] = ()
    """Changes of the spec that the operator recommends, largest gain first."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of the report.

        Names are in camel case, times are strings, and unknown values are null.
        """
        plain: dict[str, Any] = _plain(self)
        return plain


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {to_camel(field.name): _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value
