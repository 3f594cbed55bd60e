"""Input of the planner: the limits and objectives of a model, and one reading of its signals.

Times are seconds since the epoch, because seasons and schedules depend on the time of day. Counters only increase, but
restart at 0 with the process that counts. None means unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from halcyon.scaling.frozen import immutable

PodPhase = Literal["unschedulable", "starting", "ready", "draining", "broken"]
"""Phase of a pod. `unschedulable`: fits on no node, so it won't become ready soon. `starting`: created, but not yet
ready. `ready`: accepts requests. `draining`: terminating. `broken`: ready according to Kubernetes, but its backend
fails. It counts as a pod but not as capacity."""


@immutable(frozen=True, slots=True)
class PodReading:
    """One pod of the model, with the times that the planner uses."""

    name: str | int
    phase: PodPhase
    created_at: float
    """Time when the pod was created, or when it was scheduled if it had to wait for a node."""
    ready_at: float | None = None
    """Time when the pod first became ready; None if it never was."""


@immutable(frozen=True, slots=True)
class Reading:
    """State of one model at one time, merged from all agents and pods."""

    at: float | None
    """Time of the newest sample that any agent reported; None if there is none."""
    replicas: int = 1
    """Current number of replicas (spec.replicas)."""
    arrived: float | None = None
    """Total requests that reached the balancers (counter), including rejected requests."""
    waiting: float | None = None
    """Number of requests queued at this time, in the balancers and in Triton."""
    inflight: float | None = None
    """Number of requests in the system at this time, whether queued or in progress."""
    gpu: float | None = None
    """GPU utilisation in percent, summed over ready pods."""
    batches: Mapping[int, tuple[int, float]] | None = None
    """Counters by number of rows in a batch: (batches executed, total seconds of execution). They are the sums of
    Triton's `batch_stats` over all pods of the revision."""
    revision: str = ""
    """Revision of the pods whose batches are in `batches`; empty if unknown. A new revision restarts the learning of
    capacity."""
    rows_per_request: float = 1.0
    """Mean number of rows per request."""
    pods: tuple[PodReading, ...] = ()
    rejected: float | None = None
    """Total requests that the balancers rejected (counter), which `arrived` includes; None if unknown, in which case
    the queue is assumed to be unlimited."""
    concurrency: float | None = None
    """Mean of `inflight`, the number of requests in the system, over the last seconds; None if unknown."""
    metric: float | None = None
    """Result of the site's query for the model; None if it is unknown, or if the user set no target for it."""
    queued: float | None = None
    """Number of requests queued in the balancers alone; None if unknown."""
    engine_used: float | None = None
    """Used share, from 0 to 1, of the engine's request capacity in the least used ready pod; None unless every ready
    pod reports its share."""


@dataclass(frozen=True)
class OpenWindow:
    """Schedule whose time window is open now, with the limits that it sets."""

    name: str
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class Objectives:
    """Limits and targets that apply to a model now. The caller fills in defaults."""

    low: int
    high: int
    max_batch: int = 1
    """Number of rows in the largest batch."""
    instances: int = 1
    """Number of instances of the model in one replica."""
    latency_s: float | None = None
    """Maximum seconds from arrival to response, which a share `LATE_SHARE` of the requests may exceed. If None,
    `utilization` determines the replicas."""
    utilization: float = 0.8
    """Share of a replica's peak rate (0 to 1) that the planner uses if there is no latency objective."""
    concurrency: float | None = None
    """Target number of requests in progress or waiting, per replica; None if the user set no such target."""
    metric: float | None = None
    """Target value of the site's query, per replica; None if the user set no such target."""
    queue_depth: float | None = None
    """Maximum queued requests per replica in steady state; None if the user set no such target."""
    gpu_utilization: float | None = None
    """Target GPU utilisation per replica in percent; None if the user set no such target."""
    drain_s: float = 10.0
    """Seconds within which a backlog should be cleared, counted from the time when the pods added for it are ready."""
    queue_limit: int | None = None
    """Maximum queued requests, summed over all balancers. Balancers reject further requests, so they can't become
    backlog."""
    idle_after_s: float | None = None
    """Seconds without a request after which the model scales to zero, if `low` is 0; None if it never does."""
    start_s: float = 60.0
    """Start time of a pod in seconds, used until one has been measured."""
    startup_timeout_s: float = 600.0
    """Maximum seconds from the creation of a pod until it is ready. A model whose first pods have been starting for
    less than this doesn't count as idle."""
    windows: tuple[OpenWindow, ...] = field(default=())
    """Schedules whose time window is open now."""
    batch_prior: Mapping[int, float] | None = None
    """Seconds that a batch takes, by its number of rows, as measured in the warm-up before any traffic."""
    measured_batches: Mapping[int, float] | None = None
    """Seconds that a batch takes, by its number of rows, as `halcyon bench` measured it; None if there is no
    measurement."""
    measured_answers: tuple[float, float] | None = None
    """Capacity of a pod as `halcyon bench` measured it, for a model whose batch times don't show its capacity:
    (requests that a pod executes at once, seconds that each takes); None if there is no measurement."""
