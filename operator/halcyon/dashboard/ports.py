"""Interface between the dashboard and the operator: cached objects, and current values from the agents' reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from halcyon.scaling.planner.whatif import Known

Object = Mapping[str, Any]
"""Kubernetes object from the operator's caches. It must not be modified."""


class Name(NamedTuple):
    """Namespace and name of a model."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ModelNumbers:
    """Currently measured values of a model. An unknown value is None, never 0."""

    rate: float | None = None
    """Requests per second that reach the balancers, including rejected ones."""
    waiting: float | None = None
    """Number of requests that wait in balancers or in ready Triton pods, as a mean over 15 s."""
    latency_ms: float | None = None
    """Mean time that a request spends inside Triton, in its queue and in computation, in milliseconds."""
    batch: float | None = None
    """Mean number of items per batch."""
    gpu: float | None = None
    """GPU utilisation in percent, as a mean over the ready pods and 15 s."""
    rejected: float | None = None
    """Requests per second that balancers reject."""
    lost: float | None = None
    """Requests per second that fail on the way between balancer and server."""
    failed: float | None = None
    """Requests per second that Triton answers with an error. Requests that clients have cancelled are not included."""

    @property
    def errors(self) -> float | None:
        """Share of the requests that were rejected, lost or failed, from 0 to 1; None if unknown, or if there are no requests."""
        errors = [value for value in (self.rejected, self.lost, self.failed) if value is not None]
        return min(sum(errors) / self.rate, 1.0) if self.rate and errors else None


UNKNOWN = ModelNumbers()
ResultReader = Callable[[Name], Awaitable[Object | None]]
"""Function that reads the ConfigMap with a model's measurements; None if there is none."""
BatchReader = Callable[[str], Awaitable[Sequence[Object]]]
"""Function that reads the BatchInferences of a namespace."""


@dataclass(frozen=True, slots=True)
class DashboardPod:
    """Pod with its current stage."""

    obj: Object
    """Pod object, reduced to the fields that the cache keeps (`control.objects.pods.project`)."""
    state: str
    """Stage of the pod: pending, pulling, fetching, loading, warming, ready, unready, draining, failed or ended (`control.objects.pod_stage`)."""
    reason: str = ""
    """Reason for the stage, in one word; empty if the stage needs no explanation."""
    message: str = ""


class Event(NamedTuple):
    """Kubernetes Event of a model."""

    at: float
    """Time of the event, in seconds since the epoch."""
    type: str
    """Type of the event: Normal or Warning."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Past:
    """Mean arrival rates of the past, which the planner stores and which survive a restart of the operator."""

    step_s: float
    end: float
    """End of the newest step, in seconds since the epoch."""
    rates: Sequence[float | None]
    """Requests per second in each step, oldest first. A value is None if it is unknown."""


class StoredRevision(NamedTuple):
    """Revision of a model: the template of its server pods, and the settings that are added to config.pbtxt."""

    name: str
    """Name of the revision's ControllerRevision."""
    number: int
    """Number that increases with each new revision of the model."""
    template: Object
    """Template of the server pods."""
    overlay: str
    """Settings that Halcyon adds to the model's config.pbtxt, as JSON; empty if there are none."""


class LogReader(Protocol):
    """Interface to the logs of pods."""

    async def tail(self, token: str, *, namespace: str, pod: str, container: str, previous: bool) -> str:
        """Return the last log lines of a container, read with the permissions of the token's user.

        Raises:
            LogsUnavailable: there is no log for this user.
        """


class DashboardSource(Protocol):
    """Interface to the operator's state."""

    @property
    def synced(self) -> bool:
        """Whether the operator's caches are filled. Before that, no models are known."""

    @property
    def changes(self) -> int:
        """Number of changes so far: ModelDeployments that were added, changed or deleted."""

    def names(self) -> Collection[Name]:
        """Return the keys of all models."""

    def version(self, name: Name) -> object:
        """Return the resourceVersion of the ModelDeployment; None if it does not exist."""

    def model(self, name: Name) -> Object | None:
        """Return the ModelDeployment; None if it does not exist."""

    def servers(self, name: Name) -> Sequence[DashboardPod]:
        """Return the server pods of the model."""

    def balancers(self, name: Name) -> Sequence[DashboardPod]:
        """Return the balancer pods of the model."""

    def events(self, name: Name) -> Sequence[Event]:
        """Return the recent Events of the model, newest first."""

    def revisions(self, name: Name) -> Sequence[StoredRevision]:
        """Return the revisions of the model that the cluster keeps, in any order."""

    def overlay(self, name: Name) -> str:
        """Return the settings that Halcyon adds to the model's config.pbtxt, as text; empty before they are rendered."""

    def reading(self, name: Name) -> ModelNumbers:
        """Return the currently measured values of the model."""

    def past(self, name: Name) -> Past | None:
        """Return the past arrival rates that the model's planner has stored; None if the model has no planner."""

    def known(self, name: Name) -> Known | None:
        """Return the planner's targets and learnt data for a model; None if there is no planner or too little data."""
