"""What is remembered of a model: its agents, its pods, and what follows from their last records.

Not here: how a record gets in (`hub`), what it means (`reading`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from halcyon.api.documents.observation_report import BalancerSample, Batches, PodState
from halcyon.scaling.frozen import immutable
from halcyon.scaling.observations import FRESH_S
from halcyon.signals.clock_offset import ClockOffset
from halcyon.signals.time_series import Counters, Ring
from halcyon.signals.validation import MAX_ROWS, MAX_WAITING

BALANCER_KEEP_S = 60.0
POD_KEEP_S = 20.0
"""Pods are many; nothing asks for more of them than the rules' 15 s."""
_STATE_ORDER: tuple[PodState, ...] = ("maintenance", "draining", "ready", "starting", "unreachable")

MAX_REQUESTS_PER_S = 1e6
"""Of one process. A count of requests or of batches that grows faster has jumped: neither happens a million times per second."""
MAX_ROWS_PER_S = MAX_REQUESTS_PER_S * MAX_ROWS
"""Each request can have as many rows as the largest batch."""
MAX_US_PER_S = 10 * MAX_WAITING * 1e6
"""Microseconds are summed over requests: a second per second for each that is in flight. A request adds all of its time when
it ends, so many that have waited together add more than that in one look: ten times as much is room for them."""
_OF_PODS = {
    "succeeded": MAX_REQUESTS_PER_S,
    "failed": MAX_REQUESTS_PER_S,
    "rows": MAX_ROWS_PER_S,
    "executions": MAX_REQUESTS_PER_S,
    "queue_us": MAX_US_PER_S,
    "compute_us": MAX_US_PER_S,
}
"""Counters, and how fast each grows at the most; as of balancers:"""
_OF_BALANCERS = dict.fromkeys(("requests", "refused", "errors"), MAX_REQUESTS_PER_S)
POD_COUNTERS, BALANCER_COUNTERS = tuple(_OF_PODS), tuple(_OF_BALANCERS)
POD_MOST_PER_S, BALANCER_MOST_PER_S = tuple(_OF_PODS.values()), tuple(_OF_BALANCERS.values())
MAX_LATE = 200_000.0
"""Requests that came before and can still be refused: as many as the largest queueLimit wait for room in a server, and as many
for the first server."""
CONFIRMS_S = 0.5
"""A record that comes sooner after the agent's last one is no usual look: it confirms what that one had seen,"""
CONFIRMS_INTERVAL_S = 0.7
"""once in so long. An agent that says more than it should is heard no sooner for it."""


class AgentPodState(NamedTuple):
    """What one agent said of one pod last, less its numbers."""

    state: PodState
    at: float
    """When its numbers were read, by the agent's clock."""
    age: float
    """Seconds between the sample and its sending."""
    load_error: str | None
    versions: tuple[str, ...]


@dataclass(slots=True)
class AgentState:
    """What one agent said last."""

    heard: float
    at: float
    """By its own clock."""
    pods: dict[str, AgentPodState] = field(default_factory=dict)
    transit: ClockOffset = field(default_factory=ClockOffset)
    ring: Ring = field(default_factory=lambda: Ring(7, keep_s=BALANCER_KEEP_S))
    counters: Counters = field(
        default_factory=lambda: Counters([math.nan] * len(BALANCER_COUNTERS), BALANCER_MOST_PER_S)
    )
    counted: tuple[float, float] = (0.0, 0.0)
    """Totals of requests and refused ones, as counted."""
    refused: float = 0.0
    """Total of those refused that were requests."""
    refusable: float = 0.0
    """Requests that came, and may be refused yet: some wait for as long as requestTimeout first."""
    last: BalancerSample | None = None
    knocked: float = -math.inf
    """When a request was last seen refused, confirmed or not."""
    confirmed: float = -math.inf
    """When a record of it last came so soon that it confirmed the one before."""

    def may_confirm(self, now: float) -> bool:
        """Whether a record that comes now confirms the one before."""
        return now - self.heard < CONFIRMS_S and now - self.confirmed >= CONFIRMS_INTERVAL_S


@dataclass(slots=True)
class ObservedPod:
    """One pod's numbers, all agents together."""

    ring: Ring = field(default_factory=lambda: Ring(9, keep_s=POD_KEEP_S))
    totals: list[float] = field(default_factory=lambda: [math.nan] * len(POD_COUNTERS))
    counters: dict[str, Counters] = field(default_factory=dict)
    batches_at: float = -math.inf
    """When the batches were read."""
    batches: array[int] | None = None
    """As in a record, in one row; an array, because thousands of pods have dozens of sizes."""
    fallen_at: float | None = None
    """When batches were read that had fallen and are not believed yet."""


class PodSnapshot(NamedTuple):
    """One pod as it is known now: `scaling.observations.PodObservation` without the making of points."""

    name: str
    state: PodState
    ring: Ring | None
    """(time, pending, gpu, and the counters of `PodPoint`) in the order of its fields; None where no number was told."""
    batches: array[int] | None
    """Of one read: another array with the next one."""

    def sizes(self) -> Batches:
        """The batches as they are in an observation; empty where none were read."""
        row = self.batches
        return () if row is None else tuple(zip(row[::3], row[1::3], row[2::3], strict=True))


class ModelSnapshot(NamedTuple):
    """What is known of a model now, for who decides on each record: `observe` without copies. Of this moment only.

    The rings go on with the next record.
    """

    at: float
    pods: Mapping[str, PodSnapshot]
    """By name, ascending."""
    balancers: tuple[tuple[str, Ring], ...]
    """Agents heard within `FRESH_S`, by name, and their rows, of the fields of `BalancerPoint`."""
    silent: tuple[tuple[str, float], ...]
    """Agents that fell silent, with the seconds since they were heard."""


@immutable(frozen=True, slots=True)
class Said:
    """What follows from the records of a model while nobody speaks anew."""

    pods: Mapping[str, PodSnapshot]
    balancers: tuple[tuple[str, Ring], ...]
    silent: tuple[tuple[str, float], ...]
    """Agents, and when they were heard."""
    first: float
    """When the one was heard that falls silent first."""
    last: float
    """When the one was heard that fell silent last."""

    def holds(self, now: float) -> bool:
        """Whether the same agents speak now."""
        return now - self.first <= FRESH_S < now - self.last


@dataclass(slots=True)
class ObservedModel:
    """Everything about one model."""

    agents: dict[str, AgentState] = field(default_factory=dict)
    pods: dict[str, ObservedPod] = field(default_factory=dict)
    news: tuple[object, ...] = ()
    """What the controller was last told."""
    said: Said | None = None
    """What follows from the last records, until the next one or until an agent falls silent."""


def said_now(model: ObservedModel, now: float) -> Said:
    """What follows from the last records at this moment."""
    agents = model.agents
    if len(agents) == 1:  # nearly every model's: nobody contradicts it
        ((agent, seen),) = agents.items()
        if now - seen.heard <= FRESH_S:
            views = seen.pods
            pods = {name: _view_pod(name, model.pods.get(name), views[name].state) for name in sorted(views)}
            return Said(pods, ((agent, seen.ring),), (), seen.heard, -math.inf)
    speaking = [(agent, seen) for agent, seen in sorted(agents.items()) if now - seen.heard <= FRESH_S]
    silent = tuple((agent, seen.heard) for agent, seen in sorted(agents.items()) if now - seen.heard > FRESH_S)
    voices = [seen for _, seen in speaking]
    return Said(
        pods={name: _view_pod(name, model.pods.get(name), state_of(name, voices)) for name in pods_of(voices)},
        balancers=tuple((agent, seen.ring) for agent, seen in speaking),
        silent=silent,
        first=min((seen.heard for seen in voices), default=math.inf),
        last=max((heard for _, heard in silent), default=-math.inf),
    )


def _view_pod(name: str, pod: ObservedPod | None, state: PodState) -> PodSnapshot:
    return PodSnapshot(name, state, None, None) if pod is None else PodSnapshot(name, state, pod.ring, pod.batches)


def pods_of(speaking: Iterable[AgentState]) -> list[str]:
    """Names of the pods in their last records, ascending."""
    return sorted({pod for seen in speaking for pod in seen.pods})


def state_of(pod: str, speaking: Iterable[AgentState]) -> PodState:
    """The first state in the order of precedence that any of them says."""
    said = {seen.pods[pod].state for seen in speaking if pod in seen.pods}
    return next(state for state in _STATE_ORDER if state in said)
