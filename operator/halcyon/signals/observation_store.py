"""Store that merges the reports of many agents into one observation per model.

An agent that has not reported for `MAX_AGE_S` is called silent and is left out. If its balancer pod no longer exists,
there is no queue to count. If only the agent has stopped, its balancer's queue is unknown, and the sum of the queues is
too low until the kubelet has restarted the agent, within seconds. The model's values are missing only if all agents are
silent.

Clocks: all times in the store are on the receiver's clock. The age of a report or a sample is the difference between
two times on the same agent's clock, so that clock need not be correct (`clock_offset`). Times from different agents are
never compared. An agent's silence is measured from the receipt of its last report.

Out of scope: connections (`collector`), plausibility of values (`validation`), decisions (`halcyon.scaling`). The module reads
no clock: `now` is the caller's monotonic time in seconds.
"""

# | value                 | how the reports of several agents are merged                                                      |
# | --------------------- | ------------------------------------------------------------------------------------------------- |
# | balancer samples      | one series per agent; readers add them up                                                         |
# | a pod's values        | the newest sample; counter growth is computed per agent, so a late report doesn't look like a reset |
# | a pod's batches       | the last read; if a counter fell, only after a second read confirms it                            |
# | a pod's state         | the first in the order maintenance, draining, ready, starting, unreachable that any agent reports |
# | existing pods         | all in the last report of any agent                                                               |

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from math import isnan

from halcyon.api.documents.observation_report import (
    AgentReport,
    BalancerSample,
    Batches,
    BatchStats,
    PodSample,
    PodState,
    ReportedHistogram,
)
from halcyon.scaling.observations import (
    MAX_AGE_S,
    BalancerObservation,
    BalancerPoint,
    Observation,
    PodObservation,
    PodPoint,
)
from halcyon.signals.clock_offset import ClockOffset
from halcyon.signals.mean_in_progress import MIN_WINDOW_S, MeanInProgress
from halcyon.signals.store_state import (
    BALANCER_COUNTERS,
    MAX_BALANCER_AGE_S,
    MAX_POD_AGE_S,
    MAX_REJECTABLE,
    POD_COUNTERS,
    POD_MAX_PER_S,
    AgentPodState,
    AgentState,
    ModelSnapshot,
    ObservedModel,
    ObservedPod,
    shared_facts,
)
from halcyon.signals.time_series import Counters

EXPIRE_TIMEOUT_S = 300.0
"""Seconds without any report after which a model is removed from the store."""
SWEEP_INTERVAL_S = 30.0
MIN_FALLEN_S = 1.0
"""Minimum seconds between the first read in which batch counters had fallen and the read that confirms the reset. It is
longer than the transit time of a report."""
MAX_AGENTS = 32
"""Maximum number of agents stored per model: three times the maximum number of balancers in a spec, so that there is
room during a rollout of the balancers."""

STEP_PODS = 16
"""Number of pods in a report that are processed before a pause for other tasks."""

_ROWS, _EXECUTIONS = (3 + POD_COUNTERS.index(name) for name in ("rows", "executions"))
"""Indices of the columns `rows` and `executions` in a pod's ring buffer of samples."""
_SUCCEEDED, _QUEUE_US = (POD_COUNTERS.index(name) for name in ("succeeded", "queue_us"))

OnChange = Callable[[str, str], None]
"""Function that is called with the namespace and name of a model that the controller should reconcile."""
OnReport = Callable[[str, str, bool], None]
"""Function called for each report with the namespace and name of the model, and whether the report confirms the agent's
previous one."""


class ObservationStore:
    """Store of the agents' reports, by model.

    The memory that a model takes is bounded, and models without reports are removed.
    """

    def __init__(self, on_change: OnChange | None = None, on_report: OnReport | None = None) -> None:
        """Create an empty store."""
        self._models: dict[tuple[str, str], ObservedModel] = {}
        self._on_change = on_change
        self._listeners: list[OnReport] = [] if on_report is None else [on_report]
        self._swept_at = -math.inf

    def subscribe(self, listener: OnReport) -> None:
        """Call `listener` for each later report, after the report has been stored."""
        self._listeners.append(listener)

    def receive(self, report: AgentReport, now: float) -> bool:
        """Store an authenticated and validated report.

        Return False if the report was ignored because it is older than the agent's last one. If it is older by more
        than `MAX_AGE_S`, however, the agent's clock must have been set back, and the report is stored.
        """
        steps = self.receive_in_steps(report, now)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)

    def receive_in_steps(self, report: AgentReport, now: float) -> Generator[None, None, bool]:
        """Store a report like `receive`, but in steps of a few pods each, between which other tasks may run."""
        self._sweep(now)
        key = (report.namespace, report.name)
        model = self._models.setdefault(key, ObservedModel())
        agent = _agent(model, report, now)
        if agent is None:
            return False
        confirms = agent.may_confirm(now)
        model.derive(now)
        agent.received_at, agent.at = max(now, agent.received_at), report.at
        created_at = agent.transit.created_at(report.at, now, sent=report.sent)
        if confirms:
            agent.confirmed_at = now
        removed = model.begin_report(report.agent) - {pod.name for pod in report.pods}
        if report.balancer is not None:
            _add_balancer(agent, report.balancer, created_at, now)
        items: tuple[PodSample | str, ...] = (*report.pods, *removed)
        for number, item in enumerate(items, 1):
            if isinstance(item, str):
                model.drop_view(report.agent, item)
            else:
                _add_sample(model, agent, item, report, created_at)
            if number % STEP_PODS == 0:
                yield
                if self._models.get(key) is not model or not model.is_newest(agent, report):
                    return False  # the model was deleted, or a newer report of the agent arrived on another stream
        self._notify(key, model, now)
        for listener in self._listeners:
            listener(*key, confirms)
        return True

    def observe(
        self, namespace: str, name: str, now: float, *, window_s: float = MAX_BALANCER_AGE_S
    ) -> Observation | None:
        """Return a model's observation with the samples of the last `window_s`; None if no agent has reported on it."""
        model = self._models.get((namespace, name))
        if model is None:
            return None
        since, derived = now - window_s, model.derive(now)
        return Observation(
            at=now,
            pods=tuple(_observe_pod(pod, model, since) for pod in derived.pods),
            balancers=tuple(
                BalancerObservation(
                    agent,
                    tuple(BalancerPoint(*row) for row in ring.rows(since)),
                    () if (last := model.agents[agent].last_sample) is None else last.latency,
                )
                for agent, ring in derived.balancers
            ),
            silent=tuple((agent, now - received_at) for agent, received_at in derived.silent),
        )

    def snapshot(self, namespace: str, name: str, now: float) -> ModelSnapshot | None:
        """Return a model's present state without the copies that `observe` makes; None if no agent has reported on it."""
        model = self._models.get((namespace, name))
        if model is None:
            return None
        derived = model.derive(now)
        silent = tuple((agent, now - received_at) for agent, received_at in derived.silent) if derived.silent else ()
        return ModelSnapshot(now, derived.pods, derived.balancers, silent)

    def mean_batch(self, namespace: str, name: str, now: float, window_s: float) -> float | None:
        """Return the mean rows per batch of all pods over the last `window_s` (`observations.mean_batch`); None if unknown."""
        if (snapshot := self.snapshot(namespace, name, now)) is None:
            return None
        rings = [pod.ring for pod in snapshot.pods.values() if pod.ring is not None]
        rows = [rate for ring in rings if (rate := ring.rate(_ROWS, now, window_s)) is not None]
        executions = [rate for ring in rings if (rate := ring.rate(_EXECUTIONS, now, window_s)) is not None]
        return sum(rows) / total if rows and (total := sum(executions)) else None

    def client_latencies(self, namespace: str, name: str, now: float) -> dict[str, ReportedHistogram]:
        """Return the histogram of client latencies of each balancer whose agent reports one, by name of the agent."""
        model = self._models.get((namespace, name))
        return {
            agent: histogram
            for agent, state in (model.agents if model else {}).items()
            if now - state.received_at <= MAX_AGE_S
            and state.last_sample is not None
            and (histogram := state.last_sample.clients) is not None
        }

    def models(self) -> Iterator[tuple[str, str]]:
        """Return the (namespace, name) of every model in the store."""
        return iter(tuple(self._models))

    def forget(self, namespace: str, name: str) -> None:
        """Remove a model from the store, for example because the model was deleted."""
        self._models.pop((namespace, name), None)

    def _sweep(self, now: float) -> None:
        if now - self._swept_at < SWEEP_INTERVAL_S:
            return
        self._swept_at = now
        for key, model in list(self._models.items()):
            for agent in [a for a, state in model.agents.items() if now - state.received_at > EXPIRE_TIMEOUT_S]:
                model.drop_agent(agent)
            if not model.agents:
                del self._models[key]

    def _notify(self, key: tuple[str, str], model: ObservedModel, now: float) -> None:
        if self._on_change is None:
            return
        model.derive(now)
        unserved = _has_unserved_requests(model)
        if model.changed or unserved != model.notified_unserved:
            model.changed, model.notified_unserved = False, unserved
            self._on_change(*key)


def _age(sample: PodSample, report: AgentReport) -> float:
    """Return the age of a sample at the time of its report, in seconds.

    Both times are on the agent's clock. The result is limited to the range from 0 to `MAX_POD_AGE_S`.
    """
    return min(max(report.at - sample.at, 0.0), MAX_POD_AGE_S)


def _pod_state(sample: PodSample, report: AgentReport) -> AgentPodState:
    # Interned to save memory: every report repeats the same few strings.
    versions = tuple(sys.intern(version) for version in sample.versions)
    state: PodState = sys.intern(sample.state)  # type: ignore[assignment]  # intern returns str, not the Literal
    facts = shared_facts(state, sample.load_error, versions, sample.backend_failure)
    return AgentPodState(facts, sample.at, _age(sample, report))


def _agent(model: ObservedModel, report: AgentReport, now: float) -> AgentState | None:
    """Return the stored state of the agent that sent a report, or None if the report is older than its last one."""
    agent = model.agents.get(report.agent)
    if agent is None:
        _make_room(model, now)
        # An agent's first report confirms no previous one.
        agent = model.agents[report.agent] = AgentState(received_at=-math.inf, at=-math.inf)
    elif agent.at - MAX_AGE_S < report.at <= agent.at:
        return None
    elif report.at <= agent.at:
        agent.transit = ClockOffset()  # the agent's clock was set back
    return agent


def _make_room(model: ObservedModel, now: float) -> None:
    """Remove the agent with the oldest report if `MAX_AGENTS` agents are stored for the model."""
    if len(model.agents) >= MAX_AGENTS:
        oldest = min(model.agents, key=lambda agent: (model.agents[agent].received_at - now, agent))
        model.drop_agent(oldest)


def _add_sample(
    model: ObservedModel, agent: AgentState, sample: PodSample, report: AgentReport, created_at: float
) -> None:
    """Store the part of a report that describes one pod."""
    name = sys.intern(sample.name)
    # A sample sent twice must not confirm its own growth.
    previous = agent.pods.get(name)
    if sample.state != "unreachable" and (previous is None or sample.at != previous.at):
        _add_pod(model, report.agent, sample, created_at - _age(sample, report))
    if sample.batches is not None:
        _add_batches(model.pods.setdefault(name, ObservedPod()), sample.batches, report, created_at)
    model.set_view(report.agent, name, _pod_state(sample, report))
    model.refresh(name)


def _add_balancer(agent: AgentState, sample: BalancerSample, created_at: float, now: float) -> None:
    before = agent.ring.newest
    at = max(created_at, math.nextafter(before, math.inf))
    requests, rejected, errors, unavailable = agent.counters.read(
        at, [getattr(sample, name) for name in BALANCER_COUNTERS]
    )
    if agent.last_sample is None:
        agent.rejectable = min(sample.queued, MAX_REJECTABLE)  # these arrived before the first sample
    agent.rejectable += requests - agent.counted[0]
    # A rejected request must have arrived before. More rejections than requests are a bad sample and would look like load.
    more = min(rejected - agent.counted[1], agent.rejectable)
    agent.rejected += more
    agent.rejectable = min(agent.rejectable - more, MAX_REJECTABLE)
    agent.counted = requests, rejected
    if agent.last_sample is not None and sample.rejected > agent.last_sample.rejected:
        agent.rejected_at = now
    agent.last_sample = sample
    # The ring may drop the previous row, so each row has the time to which its counters refer.
    counted_at = at if before == -math.inf else before
    agent.ring.add((at, sample.queued, sample.inflight, requests, agent.rejected, errors, counted_at, unavailable))


def _add_pod(model: ObservedModel, agent: str, sample: PodSample, at: float) -> None:
    raw = [getattr(sample, name) for name in POD_COUNTERS]
    if sample.pending is None and sample.gpu is None and all(value is None for value in raw):
        return  # A sample without values must not hide the values that another agent reported.
    pod = model.pods.setdefault(sample.name, ObservedPod())
    counters = pod.counters.get(agent)
    if counters is None:
        counters = pod.counters[agent] = Counters(pod.totals, POD_MAX_PER_S)
    # Growth counts once the next sample confirms it, so the totals are those of the previous sample.
    late_s = min(max(at - counters.read_at, 0.0), MAX_POD_AGE_S)
    totals = counters.read(at, raw)
    # Each agent's total grows with the pod's counter. The highest is correct, because an agent may miss growth at a restart.
    merged = [t if math.isnan(m) or t > m else m for t, m in zip(totals, pod.totals, strict=True)]
    pod.totals = array("d", merged)
    values = [math.nan if math.isnan(t) else m for t, m in zip(totals, merged, strict=True)]
    pending = sample.pending if sample.pending is not None else _estimated_queue(model, pod, at, values, late_s)
    gpu = math.nan if sample.gpu is None else min(100.0 * sample.gpu, 100.0)
    pod.ring.add((at, pending, gpu, *values))
    pod.engine_used = sample.engine_used


def _estimated_queue(model: ObservedModel, pod: ObservedPod, at: float, row: Sequence[float], late_s: float) -> float:
    """Estimate the number of requests in a pod's queue from the time that requests waited; NaN if it is unknown.

    The estimate is needed for releases of Triton without a gauge of waiting requests. It is a mean over some seconds,
    limited to the maximum number of requests that the balancers had in progress during this time.
    """
    ended, waited_us = row[_SUCCEEDED], row[_QUEUE_US]
    if isnan(ended) or isnan(waited_us):
        return math.nan
    pod.in_queue = pod.in_queue or MeanInProgress()
    waiting = pod.in_queue.update(at, ended, waited_us, late_s=late_s)
    most = [agent.most_inflight(at - MIN_WINDOW_S) for agent in model.agents.values() if agent.last_sample is not None]
    return math.nan if waiting is None else min(waiting, sum(most)) if most else waiting


def _add_batches(pod: ObservedPod, batches: BatchStats, report: AgentReport, created_at: float) -> None:
    # The age is computed from the agent's clock alone. Agents repeat the last read in every report until the next one.
    at = created_at - max(report.at - batches.at, 0.0)
    row = array("q", (value for size in batches.sizes for value in size))
    if at <= pod.batches_at or (row == pod.batches and batches.spent_us == pod.spent_us):
        return
    fallen = pod.batches is not None and sum(row[1::3]) < sum(pod.batches[1::3])
    if fallen and (pod.fallen_at is None or at - pod.fallen_at < MIN_FALLEN_S):
        # An older read of another agent can arrive later. Counters that fell by a restart are still lower in the next read.
        pod.fallen_at = at if pod.fallen_at is None else pod.fallen_at
        return
    pod.batches_at, pod.batches, pod.spent_us, pod.fallen_at = at, row, batches.spent_us, None


def _observe_pod(name: str, model: ObservedModel, since: float) -> PodObservation:
    pod, facts = model.pods.get(name), model.merged[name].facts
    points = () if pod is None else tuple(_pod_point(row) for row in pod.ring.rows(since))
    sizes, spent_us = (None, None) if pod is None else (_sizes(pod), pod.spent_us)
    return PodObservation(
        name, facts.state, points, facts.load_error, facts.versions, sizes, spent_us, facts.backend_failure
    )


def _sizes(pod: ObservedPod) -> Batches | None:
    row = pod.batches
    return None if row is None else tuple(zip(row[::3], row[1::3], row[2::3], strict=True))


def _pod_point(row: Sequence[float]) -> PodPoint:
    at, *values = row
    return PodPoint(at, *[None if isnan(value) else value for value in values])


def _has_unserved_requests(model: ObservedModel) -> bool:
    """Return whether requests need a pod while none is ready.

    They do if any are queued, or were rejected within `MAX_AGE_S`.
    """
    if any(pod.state == "ready" for pod in model.merged.values()):
        return False
    return any(
        agent.last_sample is not None
        and (agent.last_sample.queued > 0 or agent.received_at - agent.rejected_at < MAX_AGE_S)
        for agent in model.active()
    )
