"""What the dashboard needs of the operator: its caches, and what agents say now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from halcyon.scaling.planner.whatif import Known

Object = Mapping[str, Any]
"""A Kubernetes object as the caches hold it. Not to be changed."""


class Name(NamedTuple):
    """Of a model."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ModelNumbers:
    """One model now. What isn't known is None, which is never zero."""

    rate: float | None = None
    """Requests per second that reach the balancers, refused ones included."""
    waiting: float | None = None
    """Requests that wait, in balancers and in Triton."""
    latency_ms: float | None = None
    """Mean time of a request inside Triton: its queue and computing."""
    batch: float | None = None
    """Mean rows per batch."""
    gpu: float | None = None
    """GPU utilisation in percent, mean of the ready pods."""
    refused: float | None = None
    """Requests per second that balancers refuse."""
    lost: float | None = None
    """Answers per second that are lost between balancer and server."""
    failed: float | None = None
    """Requests per second that fail in Triton."""

    @property
    def errors(self) -> float | None:
        """Share of requests that end badly, 0 to 1; None where that isn't known, or nobody asks."""
        bad = [value for value in (self.refused, self.lost, self.failed) if value is not None]
        return min(sum(bad) / self.rate, 1.0) if self.rate and bad else None


UNKNOWN = ModelNumbers()


@dataclass(frozen=True, slots=True)
class DashboardPod:
    """A pod, and what it is doing."""

    obj: Object
    """As the caches keep it (`control.pods.project`)."""
    state: str
    """One word: pending, pulling, fetching, loading, warming, ready, unready, draining, failed or ended (`control.stages`)."""
    reason: str = ""
    """One word; empty where the state says it all."""
    message: str = ""


class Event(NamedTuple):
    """What has happened to a model."""

    at: float
    """Seconds since the epoch."""
    type: str
    """Normal or Warning."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Past:
    """Mean arrivals as the planner remembers them, which outlives the process."""

    step_s: float
    end: float
    """When the last one ends, in seconds since the epoch."""
    rates: Sequence[float | None]
    """Requests per second, oldest first."""


class DashboardSource(Protocol):
    """The operator."""

    @property
    def synced(self) -> bool:
        """Whether the caches are filled: before, nothing is known of any model."""

    @property
    def changes(self) -> int:
        """How often a ModelDeployment has come, changed or gone."""

    def names(self) -> Collection[Name]:
        """Every model."""

    def model(self, name: Name) -> Object | None:
        """The ModelDeployment; None where there is none."""

    def servers(self, name: Name) -> Sequence[DashboardPod]:
        """Its server pods."""

    def balancers(self, name: Name) -> Sequence[DashboardPod]:
        """Its balancers' pods."""

    def events(self, name: Name) -> Sequence[Event]:
        """What has happened to it lately, the newest first."""

    def overlay(self, name: Name) -> str:
        """What Halcyon sets in the model's config.pbtxt, as text; empty where nothing was rendered yet."""

    def reading(self, name: Name) -> ModelNumbers:
        """What is known of it now."""

    def past(self, name: Name) -> Past | None:
        """What its planner remembers; None where nobody plans for it."""

    def known(self, name: Name) -> Known | None:
        """What its planner has learnt, and its targets; None where nobody plans for it, or too little is known."""
