"""State of a model in the observation store: its agents, its pods, and values derived from the last reports.

Out of scope: storing a report (`observation_store`), and its use for decisions (`planner_reading`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from halcyon.api.documents.observation_report import AgentReport, BalancerSample, Batches, PodState
from halcyon.scaling.frozen import immutable
from halcyon.scaling.observations import MAX_AGE_S
from halcyon.signals.clock_offset import ClockOffset
from halcyon.signals.mean_in_progress import MeanInProgress
from halcyon.signals.time_series import Counters, Ring
from halcyon.signals.validation import MAX_ROWS, MAX_WAITING

MAX_BALANCER_AGE_S = 60.0
MAX_POD_AGE_S = 20.0
"""Seconds for which samples of a pod are stored. It is short because there are many pods. The policy Rules needs the
longest time: 15 s."""
_STATE_ORDER: tuple[PodState, ...] = ("maintenance", "draining", "ready", "starting", "unreachable")

MAX_REQUESTS_PER_S = 1e6
"""Maximum plausible growth per second of a counter of requests or batches in one process. Faster growth indicates a
faulty counter."""
MAX_ROWS_PER_S = MAX_REQUESTS_PER_S * MAX_ROWS
"""Maximum plausible growth per second of a pod's counter of rows. Each request may have as many rows as the largest
batch."""
MAX_US_PER_S = 10 * MAX_WAITING * 1e6
"""Maximum plausible growth per second of a pod's counters of time, in microseconds. These counters add up the times of
all requests, so each request in flight adds one second per second. The factor 10 allows for many requests that end
together, because a request adds its time only when it ends."""
_POD_MAX_RATES = {
    "succeeded": MAX_REQUESTS_PER_S,
    "failed": MAX_REQUESTS_PER_S,
    "rows": MAX_ROWS_PER_S,
    "executions": MAX_REQUESTS_PER_S,
    "queue_us": MAX_US_PER_S,
    "compute_us": MAX_US_PER_S,
}
"""Maximum growth per second of each counter in the samples of a pod. `_BALANCER_MAX_RATES` contains the same limits for
balancers."""
_BALANCER_MAX_RATES = dict.fromkeys(("requests", "rejected", "errors", "unavailable"), MAX_REQUESTS_PER_S)
POD_COUNTERS, BALANCER_COUNTERS = tuple(_POD_MAX_RATES), tuple(_BALANCER_MAX_RATES)
POD_MAX_PER_S, BALANCER_MAX_PER_S = tuple(_POD_MAX_RATES.values()), tuple(_BALANCER_MAX_RATES.values())
MAX_REJECTABLE = 200_000.0
"""Maximum number of received requests that may still be rejected: twice the largest queueLimit. The limit applies
separately to requests that wait for a free server and to those that wait until the first server is ready."""
MAX_CONFIRM_DELAY_S = 0.5
"""Maximum seconds between two reports of an agent at which the second one confirms the first. Periodic reports are
further apart."""
MIN_CONFIRM_INTERVAL_S = 0.7
"""Minimum seconds between two confirming reports of an agent. It keeps an agent that reports too often from causing
more frequent decisions."""
_INFLIGHT = 2
"""Column of `AgentState.ring` with the requests in progress."""


class PodFacts(NamedTuple):
    """State of a pod as reported by an agent, without times and metrics.

    If it changes, the model is reconciled.
    """

    state: PodState
    load_error: str | None = None
    versions: tuple[str, ...] = ()
    backend_failure: str | None = None


@lru_cache(maxsize=4096)
def shared_facts(*values: Any) -> PodFacts:
    """Return an object with these values.

    If an equal object exists, it is reused to save memory, because most pods have equal values.
    """
    return PodFacts(*values)


class AgentPodState(NamedTuple):
    """Last report of one agent about one pod, without the pod's metrics."""

    facts: PodFacts
    at: float
    """Time at which the agent read the pod's metrics, on the agent's clock."""
    age: float
    """Age of the sample when the agent made its report, in seconds."""


@dataclass(slots=True)
class AgentState:
    """State of one agent: its last report, and the samples of its balancer."""

    received_at: float
    at: float
    """Time at which the agent made its last report, on the agent's clock."""
    pods: dict[str, AgentPodState] = field(default_factory=dict)
    transit: ClockOffset = field(default_factory=ClockOffset)
    ring: Ring = field(default_factory=lambda: Ring(8, max_age_s=MAX_BALANCER_AGE_S))
    counters: Counters = field(
        default_factory=lambda: Counters([math.nan] * len(BALANCER_COUNTERS), BALANCER_MAX_PER_S)
    )
    counted: tuple[float, float] = (0.0, 0.0)
    """Last totals of the balancer's counters, as (requests received, requests rejected)."""
    rejected: float = 0.0
    """Total number of rejected requests. Each report adds at most `rejectable`, because no more can have been
    rejected."""
    rejectable: float = 0.0
    """Number of received requests that may still be rejected. A request can wait for up to queueTimeout before it is
    rejected."""
    last_sample: BalancerSample | None = None
    rejected_at: float = -math.inf
    """Time of the last report with newly rejected requests, whether or not their number has been confirmed."""
    confirmed_at: float = -math.inf
    """Time of the last report that came within `MAX_CONFIRM_DELAY_S` seconds of the previous one and thus confirmed
    it."""

    def most_inflight(self, since: float) -> float:
        """Return the maximum number of requests that the balancer has had in progress since a time; 0 if unknown."""
        return max((row[_INFLIGHT] for row in self.ring.rows(since)), default=0.0)

    def may_confirm(self, now: float) -> bool:
        """Return whether a report that arrives at the time `now` confirms the agent's previous report."""
        return now - self.received_at < MAX_CONFIRM_DELAY_S and now - self.confirmed_at >= MIN_CONFIRM_INTERVAL_S


@dataclass(slots=True)
class ObservedPod:
    """Samples and counters of one pod, merged from all agents."""

    ring: Ring = field(default_factory=lambda: Ring(3 + len(POD_COUNTERS), max_age_s=MAX_POD_AGE_S))
    totals: array[float] = field(default_factory=lambda: array("d", [math.nan] * len(POD_COUNTERS)))
    counters: dict[str, Counters] = field(default_factory=dict)
    in_queue: MeanInProgress | None = None
    """Samples of the time that requests waited in Triton's queue; None if Triton has a gauge of waiting requests."""
    engine_used: float | None = None
    """Used share of the engine's capacity for requests in the last sample, 0 to 1; None if no engine reports it."""
    batches_at: float = -math.inf
    """Time at which the batch counters in `batches` were read."""
    batches: array[int] | None = None
    """Batch counters of the last read in one array: rows, executions and microseconds of each batch size in turn. An
    array saves memory, because thousands of pods have dozens of sizes each."""
    spent_us: int | None = None
    """Total time spent in batches of all sizes as of the last read, in microseconds; None if unknown."""
    fallen_at: float | None = None
    """Time of the first read in which the batch counters had fallen; None if they have not fallen, or if a second read
    has confirmed the fall."""


class PodSnapshot(NamedTuple):
    """Present state of one pod, with the same content as `scaling.observations.PodObservation`.

    It refers to the ring buffer of the store instead of a list of samples.
    """

    name: str
    facts: PodFacts
    ring: Ring | None
    """Samples of the pod, as rows with the fields of `PodPoint` in the same order; None if no values were reported."""
    batches: array[int] | None
    """Batch counters of the last read, in the form of `ObservedPod.batches`. Each new read is a new array."""
    engine_used: float | None = None
    """Used share of the engine's capacity for requests in the last sample, 0 to 1; None if no engine reports it."""

    @property
    def state(self) -> PodState:
        """State of the pod."""
        return self.facts.state

    def sizes(self) -> Batches:
        """Return the batch counters as (rows, executions, microseconds) for each batch size.

        The result is empty if no counters were read.
        """
        row = self.batches
        return () if row is None else tuple(zip(row[::3], row[1::3], row[2::3], strict=True))


class ModelSnapshot(NamedTuple):
    """Present state of a model, created for a decision after each report.

    Unlike an `Observation`, it refers to the ring buffers of the store instead of copies. It must be used immediately,
    because these buffers change with the next report.
    """

    at: float
    pods: Mapping[str, PodSnapshot]
    """Pods by name, in ascending order."""
    balancers: tuple[tuple[str, Ring], ...]
    """Balancers whose agents reported within `MAX_AGE_S`, by name, as (agent, samples). The samples are rows with the
    fields of `BalancerPoint`."""
    silent: tuple[tuple[str, float], ...]
    """Agents that have not reported within `MAX_AGE_S`, as (agent, seconds since the last report)."""


@immutable(frozen=True, slots=True)
class DerivedState:
    """State derived from the last reports of a model's agents, cached until the next report."""

    pods: Mapping[str, PodSnapshot]
    balancers: tuple[tuple[str, Ring], ...]
    silent: tuple[tuple[str, float], ...]
    """Agents that are silent, as (agent, time of its last report)."""
    oldest_report_at: float
    """Time of the oldest last report among the agents that are not silent; infinite if all agents are silent."""
    newest_silent_at: float
    """Time of the most recent report of any silent agent; minus infinity if no agent is silent."""

    def holds(self, now: float) -> bool:
        """Return whether this state is still valid at the time `now`.

        It is valid if the same agents are silent as when it was derived.
        """
        return now - self.oldest_report_at <= MAX_AGE_S < now - self.newest_silent_at


@dataclass(slots=True)
class ObservedModel:
    """State of one model in the observation store.

    Only the pods that a report changes are merged again, so a report costs the same for two agents and for thirty.
    """

    agents: dict[str, AgentState] = field(default_factory=dict)
    pods: dict[str, ObservedPod] = field(default_factory=dict)
    merged: dict[str, PodSnapshot] = field(default_factory=dict)
    """State of each pod that an active agent reports, by name of the pod. After `derive`, the names are in ascending
    order."""
    changed: bool = True
    """Whether the facts about pods have changed since the controller was last notified."""
    notified_unserved: bool = False
    """Whether the last notification of the controller reported that requests need a pod while none is ready."""
    _active: dict[str, None] = field(default_factory=dict)
    _is_sorted: bool = True
    _contested: dict[str, None] = field(default_factory=dict)
    """Pods on which the reports of active agents differ. Their state is merged again with each report."""
    _derived: DerivedState | None = None
    """Cache of the state derived from the last reports; None after a report."""

    def active(self) -> list[AgentState]:
        """Return the agents that were not silent when the state was last derived, by name."""
        return [self.agents[name] for name in sorted(self._active)]

    def is_newest(self, agent: AgentState, report: AgentReport) -> bool:
        """Return whether `report` is the last report of the agent. Return False if the agent has been removed."""
        return self.agents.get(report.agent) is agent and agent.at == report.at

    def begin_report(self, name: str) -> set[str]:
        """Record that an agent is sending a report, and return the names of the pods in its previous report.

        If the agent was silent before, its earlier reports about pods are dropped.
        """
        agent, self._derived = self.agents[name], None
        before = set(agent.pods)
        if name not in self._active:
            self._active[name] = None
            agent.pods = {}
        return before

    def set_view(self, name: str, pod: str, view: AgentPodState) -> None:
        """Store the last report of an agent about a pod."""
        views = self.agents[name].pods
        before = views.get(pod)
        views[pod] = view
        if before is None or pod in self._contested or before.facts != view.facts:
            self._merge(pod)

    def refresh(self, pod: str) -> None:
        """Update the snapshot of a pod with its newest samples."""
        new, old = self.pods.get(pod), self.merged[pod]
        if new is not None and (
            old.batches is not new.batches or old.ring is not new.ring or old.engine_used != new.engine_used
        ):
            self.merged[pod] = old._replace(ring=new.ring, batches=new.batches, engine_used=new.engine_used)

    def drop_view(self, name: str, pod: str) -> None:
        """Remove the last report of an agent about a pod. If no other agent reports the pod, remove the pod as well."""
        if self.agents[name].pods.pop(pod, None) is not None and name in self._active:
            self._merge(pod)
        self._drop_unreported(pod)

    def drop_agent(self, name: str) -> None:
        """Remove an agent, and the pods that only this agent reported."""
        self._silence(name)
        for pod in self.agents.pop(name).pods:
            self._drop_unreported(pod)
        self._derived = None

    def derive(self, now: float) -> DerivedState:
        """Return the state at the time `now`, after removing the agents that have become silent."""
        if self._derived is not None and self._derived.holds(now):
            return self._derived
        silent = [(name, agent.received_at) for name, agent in sorted(self.agents.items()) if _is_silent(agent, now)]
        for name, _ in silent:
            self._silence(name)
        for name, agent in self.agents.items():
            if name not in self._active and not _is_silent(agent, now):
                self._active[name] = None
                for pod in agent.pods:
                    self._merge(pod)
        if not self._is_sorted:
            self.merged, self._is_sorted = dict(sorted(self.merged.items())), True
        active = sorted(self._active)
        self._derived = DerivedState(
            pods=self.merged,
            balancers=tuple((name, self.agents[name].ring) for name in active),
            silent=tuple(silent),
            oldest_report_at=min((self.agents[name].received_at for name in active), default=math.inf),
            newest_silent_at=max((received_at for _, received_at in silent), default=-math.inf),
        )
        return self._derived

    def _silence(self, name: str) -> None:
        """Remove a silent agent from the merged state."""
        if name not in self._active:
            return
        del self._active[name]
        for pod in self.agents[name].pods:
            if pod in self._contested or not any(pod in self.agents[other].pods for other in self._active):
                self._merge(pod)
            if (observed := self.pods.get(pod)) is not None:
                observed.counters.pop(name, None)

    def _merge(self, pod: str) -> None:
        views = [agent.pods[pod] for name in self._active if pod in (agent := self.agents[name]).pods]
        self._derived = None
        if not views:
            self.changed = self.merged.pop(pod, None) is not None or self.changed
            self._contested.pop(pod, None)
            return
        facts = views[0].facts
        if all(view.facts == facts for view in views[1:]):
            self._contested.pop(pod, None)
        else:
            self._contested[pod] = None
            facts = _merged_facts(views)
        before = self.merged.get(pod)
        if before is None:
            observed = self.pods.get(pod)
            self.merged[pod] = (
                PodSnapshot(pod, facts, None, None)
                if observed is None
                else PodSnapshot(pod, facts, observed.ring, observed.batches, observed.engine_used)
            )
            self._is_sorted, self.changed = False, True
        elif before.facts != facts:
            self.merged[pod] = before._replace(facts=facts)
            # Whether a pod is starting, ready or draining is known from its Kubernetes object.
            is_expected = before.state != "maintenance" != facts.state and before.facts[1:] == facts[1:]
            self.changed = self.changed or not is_expected

    def _drop_unreported(self, pod: str) -> None:
        if not any(pod in agent.pods for agent in self.agents.values()):
            self.pods.pop(pod, None)


def _is_silent(agent: AgentState, now: float) -> bool:
    return now - agent.received_at > MAX_AGE_S


def _merged_facts(views: Sequence[AgentPodState]) -> PodFacts:
    """Merge the facts that several agents report about one pod.

    The state is the reported state that is first in the order of precedence. The failure of the backend comes from a
    report with this state. The load error and the versions come from the report with the most recent sample.
    """
    states = {view.facts.state for view in views}
    state = next(state for state in _STATE_ORDER if state in states)
    failures = [view.facts.backend_failure for view in views if view.facts.state == state]
    newest = min(views, key=lambda view: (view.facts.state == "unreachable", view.age)).facts
    return shared_facts(state, newest.load_error, newest.versions, min(filter(None, failures), default=None))
