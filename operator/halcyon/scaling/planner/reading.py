"""What the planner is told: the limits and objectives of a model, and one reading of its signals.

Times are seconds of one clock, in which seasons and schedules make sense too: since the epoch. Counters only rise, except
where a process restarted. None is "not known", never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from halcyon.scaling.frozen import immutable

PodPhase = Literal["unschedulable", "starting", "ready", "draining", "broken"]
"""unschedulable: no node has room; not under way. starting: created and on its way. ready: takes requests. draining: going
away. broken: ready for Kubernetes, but its backend fails; it counts as a pod and not as capacity."""


@immutable(frozen=True, slots=True)
class PodReading:
    """One pod of the model."""

    name: str | int
    phase: PodPhase
    created_at: float
    """When it began to start: its creation, or its scheduling where it had to wait for a node."""
    ready_at: float | None = None
    """When it became ready the first time."""


@immutable(frozen=True, slots=True)
class Reading:
    """One model at one time, all agents and pods together."""

    at: float | None
    """Time of the newest sample; None where nothing was heard."""
    replicas: int = 1
    """The count in force (spec.replicas)."""
    arrived: float | None = None
    """Counter: requests that reached the balancers, refused ones included."""
    waiting: float | None = None
    """Requests that wait now, in the balancers and in Triton."""
    inflight: float | None = None
    """Requests in the system now: those that wait and those that are computed."""
    gpu: float | None = None
    """GPU utilisation in percent, summed over ready pods."""
    batches: Mapping[int, tuple[int, float]] | None = None
    """Counters: (executions, seconds of computing) by rows in the batch, from Triton's `batch_stats`, all pods of the revision together."""
    revision: str = ""
    """Of the pods that `batches` are of; empty where it isn't known. With another one, capacity is learnt anew."""
    rows_per_request: float = 1.0
    """Mean rows of a request."""
    pods: tuple[PodReading, ...] = ()
    refused: float | None = None
    """Counter: those of `arrived` that the balancers refused. It only ever says how much can wait; where it isn't known, nothing bounds that."""


@dataclass(frozen=True)
class OpenWindow:
    """A schedule that is open now."""

    name: str
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class Objectives:
    """The limits and targets in force for a model; defaults are resolved by the caller."""

    low: int
    high: int
    max_batch: int = 1
    """Rows of the largest batch."""
    instances: int = 1
    """Instances of the model in one replica."""
    latency_s: float | None = None
    """From arrival to answer, for all but `LATE_SHARE` of the requests; None: `utilization` rules."""
    utilization: float = 0.8
    """Share of a replica's peak rate that is used where there is no latency objective."""
    queue_depth: float | None = None
    """Waiting requests per replica in steady state, where the user set it."""
    gpu_utilization: float | None = None
    """Percent per replica, where the user set it."""
    drain_s: float = 10.0
    """Time in which a backlog is to be worked off, counted from when the pods for it are ready."""
    queue_limit: int | None = None
    """Most waiting requests, all balancers together; what comes above it is refused and can't become backlog."""
    idle_after_s: float | None = None
    """Where `low` is 0: seconds without a request until no replica is left."""
    start_s: float = 60.0
    """Start time of a pod until one was seen."""
    windows: tuple[OpenWindow, ...] = field(default=())
    """Schedules that are open now."""
    batch_prior: Mapping[int, float] | None = None
    """Seconds by batch size known before any traffic, from the warm-up."""
