"""Interface between the dashboard and the operator: cached objects, and the current values from agent reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from halcyon.scaling.planner.whatif import Known

Object = Mapping[str, Any]
"""A Kubernetes object from the caches. It must not be changed."""


class Name(NamedTuple):
    """Key of a model."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ModelNumbers:
    """Current numbers of a model. An unknown value is None; it is never 0."""

    rate: float | None = None
    """Requests per second that reach the balancers, including rejected ones."""
    waiting: float | None = None
    """Requests that wait, in balancers and in Triton."""
    latency_ms: float | None = None
    """Mean time of a request inside Triton: queue and computation."""
    batch: float | None = None
    """Mean items per batch."""
    gpu: float | None = None
    """GPU utilisation in percent, mean of the ready pods."""
    rejected: float | None = None
    """Requests per second that balancers reject."""
    lost: float | None = None
    """Responses per second that are lost between balancer and server."""
    failed: float | None = None
    """Requests per second that fail in Triton."""

    @property
    def errors(self) -> float | None:
        """Share of requests that were rejected, lost or failed, 0 to 1; None if it is unknown, or if there are no requests."""
        errors = [value for value in (self.rejected, self.lost, self.failed) if value is not None]
        return min(sum(errors) / self.rate, 1.0) if self.rate and errors else None


UNKNOWN = ModelNumbers()


@dataclass(frozen=True, slots=True)
class DashboardPod:
    """A pod, and its current stage."""

    obj: Object
    """Object in the reduced form of the caches (`control.objects.pods.project`)."""
    state: str
    """Stage: pending, pulling, fetching, loading, warming, ready, unready, draining, failed or ended (`control.objects.pod_stage`)."""
    reason: str = ""
    """Reason in one word; empty if the state needs none."""
    message: str = ""


class Event(NamedTuple):
    """An event of a model."""

    at: float
    """Time, in seconds since the epoch."""
    type: str
    """Type: Normal or Warning."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Past:
    """Mean arrivals that the planner remembers. They outlive the process."""

    step_s: float
    end: float
    """End of the last step, in seconds since the epoch."""
    rates: Sequence[float | None]
    """Requests per second, oldest first."""


class DashboardSource(Protocol):
    """The operator's state."""

    @property
    def synced(self) -> bool:
        """Whether the caches are filled. Before that, nothing is known of any model."""

    @property
    def changes(self) -> int:
        """Number of times that a ModelDeployment was added, changed or deleted."""

    def names(self) -> Collection[Name]:
        """Return the names of all models."""

    def model(self, name: Name) -> Object | None:
        """Return the ModelDeployment; None if it doesn't exist."""

    def servers(self, name: Name) -> Sequence[DashboardPod]:
        """Return its server pods."""

    def balancers(self, name: Name) -> Sequence[DashboardPod]:
        """Return its balancer pods."""

    def events(self, name: Name) -> Sequence[Event]:
        """Return its recent events, newest first."""

    def overlay(self, name: Name) -> str:
        """Return what Halcyon sets in the model's config.pbtxt; empty if nothing was rendered yet."""

    def reading(self, name: Name) -> ModelNumbers:
        """Return its current numbers."""

    def past(self, name: Name) -> Past | None:
        """Return the arrivals that its planner remembers; None if the model has no planner."""

    def known(self, name: Name) -> Known | None:
        """Return what its planner has learnt, and its targets; None if the model has no planner, or too little is known."""
