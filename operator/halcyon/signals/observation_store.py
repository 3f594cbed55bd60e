"""Many agents' records become one picture per model.

| what                | how several agents become one                                                                     |
| ------------------- | ------------------------------------------------------------------------------------------------- |
| balancers           | one series per agent; readers add them up                                                         |
| a pod's numbers     | the newest sample wins; counters are differenced per agent, so a late record never reads as a reset |
| a pod's batches     | the last read wins; counters that fell are believed when a second read says so                    |
| a pod's state       | maintenance, then draining, ready, starting, unreachable: the first that any agent that speaks says |
| which pods exist    | those in the last record of any agent that speaks                                                 |

An agent that is silent for `FRESH_S` leaves the picture. If its pod is gone, so are its queue and its right to a say; if
only the agent is gone, its queue is unknown and the others' stands alone: too low, until the agent is back (the kubelet
restarts it in seconds). It makes the model's values missing only when no other agent speaks.

Clocks: times are the receiver's. When a record was made, and how old its samples were then, are differences of times of one
agent's clock, so it doesn't matter what that clock says (`transit`); no two agents' clocks are ever compared. An agent is silent
since its last record was heard.

Not here: connections (`collector`), what a value may be (`vetting`), what follows (`halcyon.scaling`). No clock: `now` is
the caller's monotonic one, in seconds.
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
"""A model that nobody speaks for is forgotten after this long."""
SWEEP_S = 30.0
FALLEN_S = 1.0
"""How far two reads of a pod's batches that have fallen must lie apart: further than the transit times of records."""
MAX_AGENTS = 32
"""Agents kept per model: three times the most balancers of a spec, so that their rollout fits."""

_ROWS, _EXECUTIONS = (3 + POD_COUNTERS.index(name) for name in ("rows", "executions"))
"""Their columns in a pod's ring."""

OnChange = Callable[[str, str], None]
"""Called with namespace and name when the controller should look at a model."""
OnRecord = Callable[[str, str, bool], None]
"""Called with namespace and name of a model for every record of it, and whether it confirms the one before."""


class ObservationStore:
    """Keeps what the agents say. Memory is bounded per model; a model that is not spoken for is forgotten."""

    def __init__(self, on_change: OnChange | None = None, on_record: OnRecord | None = None) -> None:
        """Nobody has spoken yet."""
        self._models: dict[tuple[str, str], ObservedModel] = {}
        self._on_change = on_change
        self._on_record = on_record
        self._swept = -math.inf

    def receive(self, record: Record, now: float) -> bool:
        """Takes in a record that has been authenticated and vetted; False where it is late and was left out.

        A record of an agent that is older than its last one is late, unless it is older by more than `FRESH_S`: then the
        agent's clock was set back.
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
            # One that is told twice must not confirm itself.
            told = before.get(sample.name)
            if sample.state != "unreachable" and (told is None or sample.at != told.at):
                _add_pod(model, record.agent, sample, made - _age(sample, record))
            if sample.batches is not None:
                _add_batches(model.pods.setdefault(sample.name, ObservedPod()), sample.batches, record, made)
        _drop_gone(model, now)
        model.said = None
        self._tell(key, model, now)
        if self._on_record is not None:
            self._on_record(*key, confirms)
        return True

    def observe(
        self, namespace: str, name: str, now: float, *, window_s: float = BALANCER_KEEP_S
    ) -> Observation | None:
        """What is known of a model, with points of the last `window_s`; None where nobody has spoken for it."""
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
        """What is known of a model, as `observe` tells it, at a fraction of the cost; None where nobody has spoken for it."""
        model = self._models.get((namespace, name))
        if model is None:
            return None
        said = model.said
        if said is None or not said.holds(now):
            said = model.said = said_now(model, now)
        silent = tuple((agent, now - heard) for agent, heard in said.silent) if said.silent else ()
        return ModelSnapshot(now, said.pods, said.balancers, silent)

    def mean_batch(self, namespace: str, name: str, now: float, window_s: float) -> float | None:
        """Rows per batch over the window, all pods together (`observations.mean_batch`); None where that is not known."""
        if (picture := self.look(namespace, name, now)) is None:
            return None
        rings = [pod.ring for pod in picture.pods.values() if pod.ring is not None]
        rows = [rate for ring in rings if (rate := ring.rate(_ROWS, now, window_s)) is not None]
        executions = [rate for ring in rings if (rate := ring.rate(_EXECUTIONS, now, window_s)) is not None]
        return sum(rows) / total if rows and (total := sum(executions)) else None

    def answers(self, namespace: str, name: str, now: float) -> dict[str, ReportedHistogram]:
        """What each balancer that speaks has counted of its clients' answers, by agent; without those that don't tell."""
        model = self._models.get((namespace, name))
        return {
            agent: told
            for agent, seen in (model.agents if model else {}).items()
            if now - seen.heard <= FRESH_S and seen.last is not None and (told := seen.last.clients) is not None
        }

    def knows(self, namespace: str, name: str) -> bool:
        """Whether anybody has spoken for a model."""
        return (namespace, name) in self._models

    def models(self) -> Iterator[tuple[str, str]]:
        """Namespace and name of every model that is remembered."""
        return iter(tuple(self._models))

    def forget(self, namespace: str, name: str) -> None:
        """Drops a model, for example one that was deleted."""
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
    """Seconds from the sample to its sending: a difference within one clock, not below 0, and no more than is kept."""
    return min(max(record.at - sample.at, 0.0), POD_KEEP_S)


def _view(sample: PodSample, record: Record) -> AgentPodState:
    # Interned, since every record brings the same few texts again.
    versions = tuple(sys.intern(version) for version in sample.versions)
    return AgentPodState(sys.intern(sample.state), sample.at, _age(sample, record), sample.load_error, versions)  # type: ignore[arg-type]  # intern forgets the Literal


def _make_room(model: ObservedModel, now: float) -> None:
    """Keeps the number of agents bounded: the one that has been silent for longest makes room."""
    if len(model.agents) >= MAX_AGENTS:
        oldest = min(model.agents, key=lambda agent: (model.agents[agent].heard - now, agent))
        del model.agents[oldest]


def _add_balancer(agent: AgentState, sample: BalancerSample, made: float, now: float) -> None:
    before = agent.ring.newest
    at = max(made, math.nextafter(before, math.inf))
    requests, refused, errors = agent.counters.read(at, [getattr(sample, name) for name in BALANCER_COUNTERS])
    if agent.last is None:
        agent.refusable = min(sample.queued, MAX_LATE)  # they came before anybody counted them
    agent.refusable += requests - agent.counted[0]
    # Who is refused has asked: more refusals than requests are a bad sample, and would read as demand.
    more = min(refused - agent.counted[1], agent.refusable)
    agent.refused += more
    agent.refusable = min(agent.refusable - more, MAX_LATE)
    agent.counted = requests, refused
    if agent.last is not None and sample.refused > agent.last.refused:
        agent.knocked = now
    agent.last = sample
    # The ring may drop the row before, so each row says of when its counts are.
    counted_at = at if before == -math.inf else before
    agent.ring.add((at, sample.queued, sample.inflight, requests, agent.refused, errors, counted_at))


def _add_pod(model: ObservedModel, agent: str, sample: PodSample, at: float) -> None:
    raw = [getattr(sample, name) for name in POD_COUNTERS]
    if sample.pending is None and sample.gpu is None and all(value is None for value in raw):
        return  # An agent that knows nothing of the pod yet must not cover what another knows.
    pod = model.pods.setdefault(sample.name, ObservedPod())
    counters = pod.counters.get(agent)
    if counters is None:
        counters = pod.counters[agent] = Counters(pod.totals, POD_MOST_PER_S)
    totals = counters.read(at, raw)
    # Every agent's total grows with the pod; the one that is ahead is right, the others may have missed a restart.
    merged = [t if math.isnan(m) or t > m else m for t, m in zip(totals, pod.totals, strict=True)]
    pod.totals = merged
    known = [math.nan if math.isnan(t) else m for t, m in zip(totals, merged, strict=True)]
    pending = math.nan if sample.pending is None else sample.pending
    gpu = math.nan if sample.gpu is None else min(100.0 * sample.gpu, 100.0)
    pod.ring.add((at, pending, gpu, *known))


def _add_batches(pod: ObservedPod, batches: BatchStats, record: Record, made: float) -> None:
    # Their age is a difference within one clock too. Agents repeat what they read until they read it anew.
    at = made - max(record.at - batches.at, 0.0)
    row = array("q", (value for size in batches.sizes for value in size))
    if at <= pod.batches_at or row == pod.batches:
        return
    fallen = pod.batches is not None and sum(row[1::3]) < sum(pod.batches[1::3])
    if fallen and (pod.fallen_at is None or at - pod.fallen_at < FALLEN_S):
        # Transit times differ, so an older read of another agent can look like the newer one. A restart stays.
        pod.fallen_at = at if pod.fallen_at is None else pod.fallen_at
        return
    pod.batches_at, pod.batches, pod.fallen_at = at, row, None


def _drop_gone(model: ObservedModel, now: float) -> None:
    """Forgets pods that no agent names any more, and counters of agents that fell silent: they start anew if it returns."""
    named = {pod for seen in model.agents.values() for pod in seen.pods}
    for name in [name for name in model.pods if name not in named]:
        del model.pods[name]
    speaking = {agent for agent, seen in model.agents.items() if now - seen.heard <= FRESH_S}
    for pod in model.pods.values():
        if not pod.counters.keys() <= speaking:
            pod.counters = {agent: counters for agent, counters in pod.counters.items() if agent in speaking}


def _loading(pod: str, speaking: Iterable[AgentState]) -> tuple[str | None, tuple[str, ...]]:
    """Load error and versions, of the agent whose sample was the youngest when it came."""
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
    """Whether requests wait, or were just refused, while no pod is ready."""
    if any(state == "ready" for state in states.values()):
        return False
    return any(
        seen.last is not None and (seen.last.queued > 0 or seen.heard - seen.knocked < FRESH_S) for seen in speaking
    )
