"""Store that merges the reports of many agents into one observation per model.

| value               | how several agents are merged                                                                     |
| ------------------- | ------------------------------------------------------------------------------------------------- |
| balancers           | one series per agent; readers add them up                                                         |
| a pod's numbers     | the newest sample wins; counters are differenced per agent, so a late report never looks like a reset |
| a pod's batches     | the last read wins; counters that fell are accepted once a second read confirms them              |
| a pod's state       | maintenance, draining, ready, starting, unreachable: the first that any reporting agent has        |
| existing pods       | those in the last report of any reporting agent                                                   |

An agent that is silent for `FRESH_S` is dropped. If its pod is gone, so are its queue and its reports. If only the agent is
gone, its queue is unknown and only those of the others count. The sum is then too low until the agent is back (the kubelet
restarts it in seconds). Its absence makes the model's values missing only if no other agent reports.

Clocks: times are the receiver's. The time of a report, and the age of its samples, are differences of times of one agent's
clock, so that clock needn't be right (`clock_offset`). The clocks of two agents are never compared. An agent is silent from the
receipt of its last report.

Out of scope: connections (`collector`), plausible values (`validation`), decisions (`halcyon.scaling`). No clock: `now` is the
caller's monotonic one, in seconds.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isnan

from halcyon.api.documents.observation_report import (
    BalancerSample,
    Batches,
    BatchStats,
    PodSample,
    PodState,
    Record,
    ReportedHistogram,
)
from halcyon.scaling.observations import (
    FRESH_S,
    BalancerObservation,
    BalancerPoint,
    Observation,
    PodObservation,
    PodPoint,
)
from halcyon.signals.clock_offset import ClockOffset
from halcyon.signals.store_state import (
    BALANCER_COUNTERS,
    BALANCER_KEEP_S,
    MAX_LATE,
    POD_COUNTERS,
    POD_KEEP_S,
    POD_MOST_PER_S,
    AgentPodState,
    AgentState,
    ModelSnapshot,
    ObservedModel,
    ObservedPod,
    pods_of,
    said_now,
    state_of,
)
from halcyon.signals.time_series import Counters

EXPIRE_S = 300.0
"""Time without any report after which a model is forgotten."""
SWEEP_S = 30.0
FALLEN_S = 1.0
"""Minimum time between two reads that confirm fallen batch counters: longer than the transit times of reports."""
MAX_AGENTS = 32
"""Agents kept per model: three times the maximum balancers of a spec, so that their rollout fits."""

_ROWS, _EXECUTIONS = (3 + POD_COUNTERS.index(name) for name in ("rows", "executions"))
"""Columns of `rows` and `executions` in a pod's ring."""

OnChange = Callable[[str, str], None]
"""Called with namespace and name when the controller should reconcile a model."""
OnRecord = Callable[[str, str, bool], None]
"""Called with a model's namespace and name for every report, and whether the report confirms the one before."""


class ObservationStore:
    """Store of the agents' reports. Memory is bounded per model; a model without reports is forgotten."""

    def __init__(self, on_change: OnChange | None = None, on_record: OnRecord | None = None) -> None:
        """Start without any report."""
        self._models: dict[tuple[str, str], ObservedModel] = {}
        self._on_change = on_change
        self._listeners: list[OnRecord] = [] if on_record is None else [on_record]
        self._swept = -math.inf

    def subscribe(self, listener: OnRecord) -> None:
        """Call this for every report from now on, once it is stored."""
        self._listeners.append(listener)

    def receive(self, record: Record, now: float) -> bool:
        """Store an authenticated and validated report; return False if it is late and was ignored.

        A report that is older than the agent's last one is late, unless it is older by more than `FRESH_S`: then the agent's
        clock was set back.
        """
        self._sweep(now)
        key = (record.namespace, record.name)
        model = self._models.setdefault(key, ObservedModel())
        agent = model.agents.get(record.agent)
        confirms = agent is not None and agent.may_confirm(now)
        if agent is None:
            _make_room(model, now)
            agent = model.agents[record.agent] = AgentState(heard=now, at=-math.inf)
        elif agent.at - FRESH_S < record.at <= agent.at:
            return False
        elif record.at <= agent.at:
            agent.transit = ClockOffset()  # its clock was set back
        agent.heard, agent.at = max(now, agent.heard), record.at
        made = agent.transit.made_at(record.at, now, sent=record.sent)
        if confirms:
            agent.confirmed = now
        before, agent.pods = agent.pods, {sys.intern(pod.name): _view(pod, record) for pod in record.pods}
        if record.balancer is not None:
            _add_balancer(agent, record.balancer, made, now)
        for sample in record.pods:
            # A repeated sample must not confirm itself.
            told = before.get(sample.name)
            if sample.state != "unreachable" and (told is None or sample.at != told.at):
                _add_pod(model, record.agent, sample, made - _age(sample, record))
            if sample.batches is not None:
                _add_batches(model.pods.setdefault(sample.name, ObservedPod()), sample.batches, record, made)
        _drop_gone(model, now)
        model.said = None
        self._tell(key, model, now)
        for listener in self._listeners:
            listener(*key, confirms)
        return True

    def observe(
        self, namespace: str, name: str, now: float, *, window_s: float = BALANCER_KEEP_S
    ) -> Observation | None:
        """Return the observation of a model, with points of the last `window_s`; None if no agent has reported it."""
        model = self._models.get((namespace, name))
        if model is None:
            return None
        since = now - window_s
        speaking = {agent: seen for agent, seen in sorted(model.agents.items()) if now - seen.heard <= FRESH_S}
        return Observation(
            at=now,
            pods=tuple(_observe_pod(pod, model, speaking.values(), since) for pod in pods_of(speaking.values())),
            balancers=tuple(
                BalancerObservation(
                    agent,
                    tuple(BalancerPoint(*row) for row in seen.ring.rows(since)),
                    () if seen.last is None else seen.last.latency,
                )
                for agent, seen in speaking.items()
            ),
            silent=tuple(
                (agent, now - seen.heard) for agent, seen in sorted(model.agents.items()) if agent not in speaking
            ),
        )

    def look(self, namespace: str, name: str, now: float) -> ModelSnapshot | None:
        """Return the content of `observe` at a fraction of the cost; None if no agent has reported the model."""
        model = self._models.get((namespace, name))
        if model is None:
            return None
        said = model.said
        if said is None or not said.holds(now):
            said = model.said = said_now(model, now)
        silent = tuple((agent, now - heard) for agent, heard in said.silent) if said.silent else ()
        return ModelSnapshot(now, said.pods, said.balancers, silent)

    def mean_batch(self, namespace: str, name: str, now: float, window_s: float) -> float | None:
        """Return the rows per batch over the window, for all pods (`observations.mean_batch`); None if unknown."""
        if (picture := self.look(namespace, name, now)) is None:
            return None
        rings = [pod.ring for pod in picture.pods.values() if pod.ring is not None]
        rows = [rate for ring in rings if (rate := ring.rate(_ROWS, now, window_s)) is not None]
        executions = [rate for ring in rings if (rate := ring.rate(_EXECUTIONS, now, window_s)) is not None]
        return sum(rows) / total if rows and (total := sum(executions)) else None

    def answers(self, namespace: str, name: str, now: float) -> dict[str, ReportedHistogram]:
        """Return the latencies of client responses by agent, for each reporting balancer that has them."""
        model = self._models.get((namespace, name))
        return {
            agent: told
            for agent, seen in (model.agents if model else {}).items()
            if now - seen.heard <= FRESH_S and seen.last is not None and (told := seen.last.clients) is not None
        }

    def knows(self, namespace: str, name: str) -> bool:
        """Return whether any agent has reported a model."""
        return (namespace, name) in self._models

    def models(self) -> Iterator[tuple[str, str]]:
        """Return namespace and name of every model in the store."""
        return iter(tuple(self._models))

    def forget(self, namespace: str, name: str) -> None:
        """Drop a model, for example one that was deleted."""
        self._models.pop((namespace, name), None)

    def _sweep(self, now: float) -> None:
        if now - self._swept < SWEEP_S:
            return
        self._swept = now
        for key, model in list(self._models.items()):
            for agent in [a for a, seen in model.agents.items() if now - seen.heard > EXPIRE_S]:
                del model.agents[agent]
            if not model.agents:
                del self._models[key]
            else:
                _drop_gone(model, now)
                model.said = None

    def _tell(self, key: tuple[str, str], model: ObservedModel, now: float) -> None:
        if self._on_change is None:
            return
        said = model.said = said_now(model, now)
        speaking = [seen for seen in model.agents.values() if now - seen.heard <= FRESH_S]
        states = {name: pod.state for name, pod in said.pods.items()}
        news = (
            _waits_in_vain(speaking, states),
            tuple((p, s == "maintenance", *_loading(p, speaking)) for p, s in states.items()),
        )
        if news != model.news:
            model.news = news
            self._on_change(*key)


def _age(sample: PodSample, record: Record) -> float:
    """Return the seconds from a sample to its sending: a difference within one clock, between 0 and `POD_KEEP_S`."""
    return min(max(record.at - sample.at, 0.0), POD_KEEP_S)


def _view(sample: PodSample, record: Record) -> AgentPodState:
    # Interned, because every report repeats the same few texts.
    versions = tuple(sys.intern(version) for version in sample.versions)
    return AgentPodState(sys.intern(sample.state), sample.at, _age(sample, record), sample.load_error, versions)  # type: ignore[arg-type]  # intern forgets the Literal


def _make_room(model: ObservedModel, now: float) -> None:
    """Keep the number of agents bounded: drop the one that has been silent longest."""
    if len(model.agents) >= MAX_AGENTS:
        oldest = min(model.agents, key=lambda agent: (model.agents[agent].heard - now, agent))
        del model.agents[oldest]


def _add_balancer(agent: AgentState, sample: BalancerSample, made: float, now: float) -> None:
    before = agent.ring.newest
    at = max(made, math.nextafter(before, math.inf))
    requests, refused, errors = agent.counters.read(at, [getattr(sample, name) for name in BALANCER_COUNTERS])
    if agent.last is None:
        agent.refusable = min(sample.queued, MAX_LATE)  # they came before they could be counted
    agent.refusable += requests - agent.counted[0]
    # A rejected request has arrived before: more rejections than requests are a bad sample, and would look like demand.
    more = min(refused - agent.counted[1], agent.refusable)
    agent.refused += more
    agent.refusable = min(agent.refusable - more, MAX_LATE)
    agent.counted = requests, refused
    if agent.last is not None and sample.refused > agent.last.refused:
        agent.knocked = now
    agent.last = sample
    # The ring may drop the row before, so each row has the time of its counts.
    counted_at = at if before == -math.inf else before
    agent.ring.add((at, sample.queued, sample.inflight, requests, agent.refused, errors, counted_at))


def _add_pod(model: ObservedModel, agent: str, sample: PodSample, at: float) -> None:
    raw = [getattr(sample, name) for name in POD_COUNTERS]
    if sample.pending is None and sample.gpu is None and all(value is None for value in raw):
        return  # An agent that knows nothing of the pod yet must not hide another agent's values.
    pod = model.pods.setdefault(sample.name, ObservedPod())
    counters = pod.counters.get(agent)
    if counters is None:
        counters = pod.counters[agent] = Counters(pod.totals, POD_MOST_PER_S)
    totals = counters.read(at, raw)
    # Every agent's total grows with the pod; the highest is right, the others may have missed a restart.
    merged = [t if math.isnan(m) or t > m else m for t, m in zip(totals, pod.totals, strict=True)]
    pod.totals = merged
    known = [math.nan if math.isnan(t) else m for t, m in zip(totals, merged, strict=True)]
    pending = math.nan if sample.pending is None else sample.pending
    gpu = math.nan if sample.gpu is None else min(100.0 * sample.gpu, 100.0)
    pod.ring.add((at, pending, gpu, *known))


def _add_batches(pod: ObservedPod, batches: BatchStats, record: Record, made: float) -> None:
    # Their age is a difference within one clock too. Agents repeat the last read until the next one.
    at = made - max(record.at - batches.at, 0.0)
    row = array("q", (value for size in batches.sizes for value in size))
    if at <= pod.batches_at or row == pod.batches:
        return
    fallen = pod.batches is not None and sum(row[1::3]) < sum(pod.batches[1::3])
    if fallen and (pod.fallen_at is None or at - pod.fallen_at < FALLEN_S):
        # Transit times differ, so an older read of another agent can look like the newer one. A restart persists.
        pod.fallen_at = at if pod.fallen_at is None else pod.fallen_at
        return
    pod.batches_at, pod.batches, pod.fallen_at = at, row, None


def _drop_gone(model: ObservedModel, now: float) -> None:
    """Forget pods that no agent reports any more, and counters of silent agents, which start from scratch on return."""
    named = {pod for seen in model.agents.values() for pod in seen.pods}
    for name in [name for name in model.pods if name not in named]:
        del model.pods[name]
    speaking = {agent for agent, seen in model.agents.items() if now - seen.heard <= FRESH_S}
    for pod in model.pods.values():
        if not pod.counters.keys() <= speaking:
            pod.counters = {agent: counters for agent, counters in pod.counters.items() if agent in speaking}


def _loading(pod: str, speaking: Iterable[AgentState]) -> tuple[str | None, tuple[str, ...]]:
    """Return load error and versions, from the agent whose sample was youngest on arrival."""
    views = [seen.pods[pod] for seen in speaking if pod in seen.pods]
    best = min(views, key=lambda view: (view.state == "unreachable", view.age))
    return best.load_error, best.versions


def _observe_pod(name: str, model: ObservedModel, speaking: Iterable[AgentState], since: float) -> PodObservation:
    pod = model.pods.get(name)
    error, versions = _loading(name, speaking)
    points = () if pod is None else tuple(_pod_point(row) for row in pod.ring.rows(since))
    return PodObservation(name, state_of(name, speaking), points, error, versions, None if pod is None else _sizes(pod))


def _sizes(pod: ObservedPod) -> Batches | None:
    row = pod.batches
    return None if row is None else tuple(zip(row[::3], row[1::3], row[2::3], strict=True))


def _pod_point(row: Sequence[float]) -> PodPoint:
    at, *values = row
    return PodPoint(at, *[None if isnan(value) else value for value in values])


def _waits_in_vain(speaking: Iterable[AgentState], states: dict[str, PodState]) -> bool:
    """Return whether requests wait, or were just rejected, while no pod is ready."""
    if any(state == "ready" for state in states.values()):
        return False
    return any(
        seen.last is not None and (seen.last.queued > 0 or seen.heard - seen.knocked < FRESH_S) for seen in speaking
    )
