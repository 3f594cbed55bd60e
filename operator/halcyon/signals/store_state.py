"""State of a model in the observation store: its agents, its pods, and values derived from the last reports.

Out of scope: storing a report (`observation_store`), and its use for decisions (`planner_reading`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from halcyon.api.documents.observation_report import BalancerSample, Batches, PodState
from halcyon.scaling.frozen import immutable
from halcyon.scaling.observations import MAX_AGE_S
from halcyon.signals.clock_offset import ClockOffset
from halcyon.signals.mean_in_progress import MeanInProgress
from halcyon.signals.time_series import Counters, Ring
from halcyon.signals.validation import MAX_ROWS, MAX_WAITING

MAX_BALANCER_AGE_S = 60.0
MAX_POD_AGE_S = 20.0
"""Seconds for which samples of a pod are stored. There are many pods, and the policy Rules uses the longest window, 15 s."""
_STATE_ORDER: tuple[PodState, ...] = ("maintenance", "draining", "ready", "starting", "unreachable")

MAX_REQUESTS_PER_S = 1e6
"""Maximum plausible growth per second of a process's counters of requests or batches. Faster growth indicates a faulty counter."""
MAX_ROWS_PER_S = MAX_REQUESTS_PER_S * MAX_ROWS
"""Maximum plausible growth per second of a pod's counter of rows: each request can have as many rows as the largest batch."""
MAX_US_PER_S = 10 * MAX_WAITING * 1e6
"""Maximum plausible growth per second of a pod's time counters in microseconds. They are summed over requests, so each request
in flight adds one second per second. A request adds all of its time when it ends. The factor 10 allows for many requests that
end together."""
_OF_PODS = {
    "succeeded": MAX_REQUESTS_PER_S,
    "failed": MAX_REQUESTS_PER_S,
    "rows": MAX_ROWS_PER_S,
    "executions": MAX_REQUESTS_PER_S,
    "queue_us": MAX_US_PER_S,
    "compute_us": MAX_US_PER_S,
}
"""Maximum growth per second of each counter in a pod's samples. `_OF_BALANCERS` has the same for a balancer's samples."""
_OF_BALANCERS = dict.fromkeys(("requests", "rejected", "errors", "unavailable"), MAX_REQUESTS_PER_S)
POD_COUNTERS, BALANCER_COUNTERS = tuple(_OF_PODS), tuple(_OF_BALANCERS)
POD_MAX_PER_S, BALANCER_MAX_PER_S = tuple(_OF_PODS.values()), tuple(_OF_BALANCERS.values())
MAX_REJECTABLE = 200_000.0
"""Maximum number of received requests that may still be rejected: the largest queueLimit for requests that wait for a free
server, and the same number for requests held until the first server is ready."""
MAX_CONFIRM_DELAY_S = 0.5
"""Maximum seconds between two reports of an agent for the second to count as a confirmation. Periodic reports are further
apart."""
MIN_CONFIRM_INTERVAL_S = 0.7
"""Minimum seconds between two reports of an agent that count as confirmations. Without it, an agent that reports too often
would cause more frequent decisions."""


class AgentPodState(NamedTuple):
    """Last report of one agent about one pod, without the metrics."""

    state: PodState
    at: float
    """Time at which the agent read the pod's metrics, on the agent's clock."""
    age: float
    """Age of the sample in seconds when the agent made its report."""
    load_error: str | None
    versions: tuple[str, ...]
    backend_failure: str | None = None


@dataclass(slots=True)
class AgentState:
    """State of one agent: its last report, and the samples of its balancer."""

    received_at: float
    at: float
    """Time of the last report on the agent's clock."""
    pods: dict[str, AgentPodState] = field(default_factory=dict)
    transit: ClockOffset = field(default_factory=ClockOffset)
    ring: Ring = field(default_factory=lambda: Ring(8, max_age_s=MAX_BALANCER_AGE_S))
    counters: Counters = field(
        default_factory=lambda: Counters([math.nan] * len(BALANCER_COUNTERS), BALANCER_MAX_PER_S)
    )
    counted: tuple[float, float] = (0.0, 0.0)
    """Last totals of the balancer's counters: (requests, rejections)."""
    rejected: float = 0.0
    """Total number of rejections, at most the number of requests that could be rejected."""
    rejectable: float = 0.0
    """Number of received requests that may still be rejected. A request can wait up to queueTimeout before its rejection."""
    last_sample: BalancerSample | None = None
    rejected_at: float = -math.inf
    """Time of the last report with a new rejection, confirmed or not."""
    confirmed_at: float = -math.inf
    """Time of the last report that confirmed the previous one by arriving within `MAX_CONFIRM_DELAY_S`."""

    def may_confirm(self, now: float) -> bool:
        """Return whether a report that arrives now confirms the agent's previous one."""
        return now - self.received_at < MAX_CONFIRM_DELAY_S and now - self.confirmed_at >= MIN_CONFIRM_INTERVAL_S


@dataclass(slots=True)
class ObservedPod:
    """Samples and counters of one pod, merged from all agents."""

    ring: Ring = field(default_factory=lambda: Ring(3 + len(POD_COUNTERS), max_age_s=MAX_POD_AGE_S))
    totals: list[float] = field(default_factory=lambda: [math.nan] * len(POD_COUNTERS))
    counters: dict[str, Counters] = field(default_factory=dict)
    in_queue: MeanInProgress | None = None
    """Samples of the queue's times, if Triton has no gauge of waiting requests; else None."""
    engine_used: float | None = None
    """Used share of the engine's room in the last sample, 0 to 1; None if no engine reports it."""
    batches_at: float = -math.inf
    """Time at which `batches` was read."""
    batches: array[int] | None = None
    """Batch counters of the last read, flattened: rows, executions, microseconds, and again for the next size. An array saves
    memory, because thousands of pods have dozens of sizes each."""
    spent_us: int | None = None
    """Counter of the time of the batches of all sizes in the last read, in microseconds; None if unknown."""
    fallen_at: float | None = None
    """Time of the first read in which the batch counters had fallen, if no second read has confirmed that yet; else None."""


class PodSnapshot(NamedTuple):
    """Present state of one pod, like `scaling.observations.PodObservation`, but with the store's ring in place of points."""

    name: str
    state: PodState
    ring: Ring | None
    """Samples of the pod, as rows with the fields of `PodPoint` in the same order; None if no value was reported."""
    batches: array[int] | None
    """Batch counters of the last read, as in `ObservedPod`. Each new read is a new array."""
    engine_used: float | None = None
    """As in `ObservedPod`."""

    def sizes(self) -> Batches:
        """Return the batch counters as (rows, executions, microseconds) per size; empty if none were read."""
        row = self.batches
        return () if row is None else tuple(zip(row[::3], row[1::3], row[2::3], strict=True))


class ModelSnapshot(NamedTuple):
    """Present state of a model, for a decision on each report. Unlike an `Observation` it shares the store's rings.

    It must be used immediately, because the rings change with the next report.
    """

    at: float
    pods: Mapping[str, PodSnapshot]
    """Pods by name, in ascending order."""
    balancers: tuple[tuple[str, Ring], ...]
    """(agent, rows with the fields of `BalancerPoint`) for each agent that reported within `MAX_AGE_S`, by name."""
    silent: tuple[tuple[str, float], ...]
    """(agent, seconds since its last report) for each agent without a report within `MAX_AGE_S`."""


@immutable(frozen=True, slots=True)
class DerivedState:
    """State derived from the last reports of a model's agents, cached until the next report."""

    pods: Mapping[str, PodSnapshot]
    balancers: tuple[tuple[str, Ring], ...]
    silent: tuple[tuple[str, float], ...]
    """(agent, time of its last report) for each silent agent."""
    oldest_report_at: float
    """Time of the oldest last report among the agents that are not silent; infinite if all are."""
    newest_silent_at: float
    """Time of the newest last report among the silent agents; minus infinity if none is silent."""

    def holds(self, now: float) -> bool:
        """Return whether the same agents are silent as when this state was derived, so that it is still valid."""
        return now - self.oldest_report_at <= MAX_AGE_S < now - self.newest_silent_at


@dataclass(slots=True)
class ObservedModel:
    """State of one model in the observation store."""

    agents: dict[str, AgentState] = field(default_factory=dict)
    pods: dict[str, ObservedPod] = field(default_factory=dict)
    notified: tuple[object, ...] = ()
    """State of the model at the last notification of the controller; a different state causes the next one."""
    derived: DerivedState | None = None
    """Cache of the state derived from the last reports; None after a report."""


def derive_state(model: ObservedModel, now: float) -> DerivedState:
    """Derive the state of a model at the time `now` from the last reports of its agents."""
    agents = model.agents
    if len(agents) == 1:  # the usual case, without anything to merge
        ((agent, seen),) = agents.items()
        if now - seen.received_at <= MAX_AGE_S:
            views = seen.pods
            pods = {name: _view_pod(name, model.pods.get(name), views[name].state) for name in sorted(views)}
            return DerivedState(pods, ((agent, seen.ring),), (), seen.received_at, -math.inf)
    active = [(agent, seen) for agent, seen in sorted(agents.items()) if now - seen.received_at <= MAX_AGE_S]
    silent = tuple(
        (agent, seen.received_at) for agent, seen in sorted(agents.items()) if now - seen.received_at > MAX_AGE_S
    )
    active_states = [seen for _, seen in active]
    return DerivedState(
        pods={
            name: _view_pod(name, model.pods.get(name), state_of(name, active_states))
            for name in pods_of(active_states)
        },
        balancers=tuple((agent, seen.ring) for agent, seen in active),
        silent=silent,
        oldest_report_at=min((seen.received_at for seen in active_states), default=math.inf),
        newest_silent_at=max((received_at for _, received_at in silent), default=-math.inf),
    )


def _view_pod(name: str, pod: ObservedPod | None, state: PodState) -> PodSnapshot:
    if pod is None:
        return PodSnapshot(name, state, None, None)
    return PodSnapshot(name, state, pod.ring, pod.batches, pod.engine_used)


def pods_of(active: Iterable[AgentState]) -> list[str]:
    """Return the names of all pods in the last reports of these agents, in ascending order."""
    return sorted({pod for seen in active for pod in seen.pods})


def state_of(pod: str, active: Iterable[AgentState]) -> PodState:
    """Return the state of a pod: the first in the order of precedence that any of these agents reports."""
    states = {seen.pods[pod].state for seen in active if pod in seen.pods}
    return next(state for state in _STATE_ORDER if state in states)
