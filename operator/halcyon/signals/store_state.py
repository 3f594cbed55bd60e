"""State of a model in the observation store: its agents, its pods, and what their last reports imply.

Out of scope: storing a report (`observation_store`), its meaning (`planner_reading`).
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
from halcyon.signals.time_series import Counters, Ring
from halcyon.signals.validation import MAX_ROWS, MAX_WAITING

MAX_BALANCER_AGE_S = 60.0
MAX_POD_AGE_S = 20.0
"""Retention of pod samples: pods are many, and no reader needs more than the 15 s of the policy Rules."""
_STATE_ORDER: tuple[PodState, ...] = ("maintenance", "draining", "ready", "starting", "unreachable")

MAX_REQUESTS_PER_S = 1e6
"""Maximum growth of one process's counters of requests or batches. A faster one has jumped: neither happens a million times per
second."""
MAX_ROWS_PER_S = MAX_REQUESTS_PER_S * MAX_ROWS
"""The same for rows: each request can have as many rows as the largest batch."""
MAX_US_PER_S = 10 * MAX_WAITING * 1e6
"""The same for microseconds, which are summed over requests: a second per second for each request in flight. A request adds all
of its time when it ends, so many that waited together add more than that at once. Ten times as much covers them."""
_OF_PODS = {
    "succeeded": MAX_REQUESTS_PER_S,
    "failed": MAX_REQUESTS_PER_S,
    "rows": MAX_ROWS_PER_S,
    "executions": MAX_REQUESTS_PER_S,
    "queue_us": MAX_US_PER_S,
    "compute_us": MAX_US_PER_S,
}
"""Counters with the maximum growth of each; below, the same for balancers."""
_OF_BALANCERS = dict.fromkeys(("requests", "rejected", "errors"), MAX_REQUESTS_PER_S)
POD_COUNTERS, BALANCER_COUNTERS = tuple(_OF_PODS), tuple(_OF_BALANCERS)
POD_MAX_PER_S, BALANCER_MAX_PER_S = tuple(_OF_PODS.values()), tuple(_OF_BALANCERS.values())
MAX_REJECTABLE = 200_000.0
"""Maximum earlier requests that can still be rejected: the largest queueLimit while waiting for a free server, and as many for
the first server."""
MAX_CONFIRM_DELAY_S = 0.5
"""Maximum time between two reports of an agent for the second to confirm the first: it is no periodic report."""
MIN_CONFIRM_INTERVAL_S = 0.7
"""Minimum time between two such confirmations. An agent that sends more than it should is not evaluated sooner."""


class AgentPodState(NamedTuple):
    """Last report of one agent about one pod, without its numbers."""

    state: PodState
    at: float
    """Time when its numbers were read, by the agent's clock."""
    age: float
    """Seconds between the sample and its sending."""
    load_error: str | None
    versions: tuple[str, ...]


@dataclass(slots=True)
class AgentState:
    """Last report of one agent."""

    received_at: float
    at: float
    """Time of the report by its own clock."""
    pods: dict[str, AgentPodState] = field(default_factory=dict)
    transit: ClockOffset = field(default_factory=ClockOffset)
    ring: Ring = field(default_factory=lambda: Ring(7, max_age_s=MAX_BALANCER_AGE_S))
    counters: Counters = field(
        default_factory=lambda: Counters([math.nan] * len(BALANCER_COUNTERS), BALANCER_MAX_PER_S)
    )
    counted: tuple[float, float] = (0.0, 0.0)
    """Totals of requests and rejections, as counted."""
    rejected: float = 0.0
    """Total number of rejections that match a counted request."""
    rejectable: float = 0.0
    """Requests that arrived and may still be rejected: some wait as long as queueTimeout first."""
    last_sample: BalancerSample | None = None
    rejected_at: float = -math.inf
    """Time when a rejected request was last seen, confirmed or not."""
    confirmed_at: float = -math.inf
    """Time when a report last came so soon that it confirmed the one before."""

    def may_confirm(self, now: float) -> bool:
        """Return whether a report that arrives now confirms the one before."""
        return now - self.received_at < MAX_CONFIRM_DELAY_S and now - self.confirmed_at >= MIN_CONFIRM_INTERVAL_S


@dataclass(slots=True)
class ObservedPod:
    """Numbers of one pod, merged from all agents."""

    ring: Ring = field(default_factory=lambda: Ring(9, max_age_s=MAX_POD_AGE_S))
    totals: list[float] = field(default_factory=lambda: [math.nan] * len(POD_COUNTERS))
    counters: dict[str, Counters] = field(default_factory=dict)
    batches_at: float = -math.inf
    """Time when the batches were read."""
    batches: array[int] | None = None
    """As in a report, in one row; an array, because thousands of pods have dozens of sizes."""
    fallen_at: float | None = None
    """Time of a read of fallen batch counters that is not confirmed yet."""


class PodSnapshot(NamedTuple):
    """Present state of one pod, as in `scaling.observations.PodObservation`, but without creating its points."""

    name: str
    state: PodState
    ring: Ring | None
    """(time, pending, gpu, and the counters of `PodPoint`) in the order of its fields; None if no number was reported."""
    batches: array[int] | None
    """Batches of one read; a new read has a new array."""

    def sizes(self) -> Batches:
        """Return the batches in the form of an observation; empty if none were read."""
        row = self.batches
        return () if row is None else tuple(zip(row[::3], row[1::3], row[2::3], strict=True))


class ModelSnapshot(NamedTuple):
    """Present state of a model, for decisions on each report: `observe` without copies.

    Valid at this moment only, because the rings change with the next report.
    """

    at: float
    pods: Mapping[str, PodSnapshot]
    """Pods by name, ascending."""
    balancers: tuple[tuple[str, Ring], ...]
    """Agents that reported within `MAX_AGE_S`, by name, and their rows with the fields of `BalancerPoint`."""
    silent: tuple[tuple[str, float], ...]
    """Agents that stopped reporting, with the seconds since their last report."""


@immutable(frozen=True, slots=True)
class DerivedState:
    """Result derived from a model's reports, valid until the next one."""

    pods: Mapping[str, PodSnapshot]
    balancers: tuple[tuple[str, Ring], ...]
    silent: tuple[tuple[str, float], ...]
    """Silent agents, with the times of their last reports."""
    oldest_report_at: float
    """Last report of the agent that will fall silent first."""
    newest_silent_at: float
    """Last report of the agent that fell silent last."""

    def holds(self, now: float) -> bool:
        """Return whether the same agents still report."""
        return now - self.oldest_report_at <= MAX_AGE_S < now - self.newest_silent_at


@dataclass(slots=True)
class ObservedModel:
    """All state of one model."""

    agents: dict[str, AgentState] = field(default_factory=dict)
    pods: dict[str, ObservedPod] = field(default_factory=dict)
    notified: tuple[object, ...] = ()
    """State that was last passed to the controller."""
    derived: DerivedState | None = None
    """Result derived from the last reports, until the next one or until an agent falls silent."""


def derive_state(model: ObservedModel, now: float) -> DerivedState:
    """Return the result derived from the last reports at this moment."""
    agents = model.agents
    if len(agents) == 1:  # nearly every model's: no other agent can contradict it
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
    return PodSnapshot(name, state, None, None) if pod is None else PodSnapshot(name, state, pod.ring, pod.batches)


def pods_of(active: Iterable[AgentState]) -> list[str]:
    """Return the names of the pods in their last reports, ascending."""
    return sorted({pod for seen in active for pod in seen.pods})


def state_of(pod: str, active: Iterable[AgentState]) -> PodState:
    """Return the first state in the order of precedence that any of them reports."""
    states = {seen.pods[pod].state for seen in active if pod in seen.pods}
    return next(state for state in _STATE_ORDER if state in states)
