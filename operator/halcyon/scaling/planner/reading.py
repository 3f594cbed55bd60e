"""Input of the planner: the limits and objectives of a model, and one reading of its signals.

Times are seconds since the epoch, because seasons and schedules need that clock. Counters only rise, unless a process
restarted. None means "not known", never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from halcyon.scaling.frozen import immutable

PodPhase = Literal["unschedulable", "starting", "ready", "draining", "broken"]
"""unschedulable: no node takes it, so it is not under way. starting: created and on its way. ready: takes requests. draining:
terminating. broken: ready for Kubernetes, but its backend fails; it counts as a pod but not as capacity."""


@immutable(frozen=True, slots=True)
class PodReading:
    """One pod of the model."""

    name: str | int
    phase: PodPhase
    created_at: float
    """Start of the pod: its creation, or its scheduling if it had to wait for a node."""
    ready_at: float | None = None
    """Time when it first became ready."""


@immutable(frozen=True, slots=True)
class Reading:
    """One model at one time, with all agents and pods merged."""

    at: float | None
    """Time of the newest sample; None if there is none."""
    replicas: int = 1
    """Replicas in force (spec.replicas)."""
    arrived: float | None = None
    """Counter: requests that reached the balancers, including rejected ones."""
    waiting: float | None = None
    """Requests queued now, in the balancers and in Triton."""
    inflight: float | None = None
    """Requests in the system now: queued and in progress."""
    gpu: float | None = None
    """GPU utilisation in percent, summed over ready pods."""
    batches: Mapping[int, tuple[int, float]] | None = None
    """Counters: (executions, seconds of computing) by rows in the batch, from Triton's `batch_stats`, for all pods of the
    revision."""
    revision: str = ""
    """Revision of the pods that `batches` describe; empty if unknown. A new revision restarts the learning of capacity."""
    rows_per_request: float = 1.0
    """Mean number of rows per request."""
    pods: tuple[PodReading, ...] = ()
    rejected: float | None = None
    """Counter: requests of `arrived` that the balancers rejected. It only shows how many requests can wait; if unknown, nothing
    bounds them."""


@dataclass(frozen=True)
class OpenWindow:
    """A schedule that is open now."""

    name: str
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class Objectives:
    """Limits and targets in force for a model; the caller resolves defaults."""

    low: int
    high: int
    max_batch: int = 1
    """Rows of the largest batch."""
    instances: int = 1
    """Instances of the model in one replica."""
    latency_s: float | None = None
    """From arrival to response, for all but `LATE_SHARE` of the requests; None: `utilization` decides."""
    utilization: float = 0.8
    """Share of a replica's peak rate to use if there is no latency objective."""
    queue_depth: float | None = None
    """Queued requests per replica in steady state, if the user set it."""
    gpu_utilization: float | None = None
    """Percent per replica, if the user set it."""
    drain_s: float = 10.0
    """Time in which a backlog is to be drained, counted from when the pods for it are ready."""
    queue_limit: int | None = None
    """Maximum queued requests over all balancers. Requests above it are rejected and can't become backlog."""
    idle_after_s: float | None = None
    """If `low` is 0: seconds without a request before the model scales to zero."""
    start_s: float = 60.0
    """Start time of a pod until one was measured."""
    windows: tuple[OpenWindow, ...] = field(default=())
    """Schedules that are open now."""
    batch_prior: Mapping[int, float] | None = None
    """Seconds by batch size, known from the warm-up before any traffic."""
