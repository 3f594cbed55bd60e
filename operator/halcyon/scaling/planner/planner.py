"""`plan`: one decision for one model, from its limits, a reading and what was remembered. Pure and quick (tens of us).

    need(rate, trend, season, spikes, queue depth, GPU)  ->  held as long as a start takes  ->  plus the backlog  ->  limits

Every part is data in the decision: `say` makes a sentence of it, status and `explain` tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from halcyon.scaling.planner.arrivals import Arrivals
from halcyon.scaling.planner.backlog import drain
from halcyon.scaling.planner.capacity import Capacity
from halcyon.scaling.planner.hold import Hold
from halcyon.scaling.planner.margin import Margin
from halcyon.scaling.planner.queueing import Replica, rate_within, replicas_within
from halcyon.scaling.planner.reading import Objectives, PodReading, Reading
from halcyon.scaling.planner.trust import Still, doubt
from halcyon.scaling.season import History, forecast
from halcyon.scaling.spikes import SpikeMemory, expected

TermName = Literal["rate", "trend", "season", "spike", "queueDepth", "gpuUtilization", "backlog", "schedule", "floor"]
LimitName = Literal["min", "max", "hold", "veto", "unknown", "learning", "idle"]

_START_SHARE = 0.75
"""Quantile of the start times that is planned with: the usual slow one, not the one in twenty that hangs."""
_OVERDUE = 0.25
"""A pod later than its start time is expected in this share of it, from now on."""
_FULL = 0.95
"""A GPU as busy as this has nothing to give."""
_HALF_BUSY = 0.5
_BAND_SIGMAS = 3.0
"""Standard errors of the rate between the way up and the way down."""
_AHEAD_S = 5.0
"""How much sooner than a start takes pods are asked for, where the time is known: what a decision and a slow start cost."""
_JUDGED_S = 30.0
"""Forecasts are judged by what so many seconds prove."""
_QUICK_S, _CALM_S = 1.0, 2.0


@dataclass(frozen=True, slots=True)
class PlanTerm:
    """What one part of the plan asks for."""

    name: TermName
    replicas: int
    why: str
    """With numbers and units, for a reader."""


@dataclass(frozen=True, slots=True)
class PlanLimit:
    """What changed or kept the count after the terms had spoken."""

    name: LimitName
    replicas: int
    why: str


@dataclass(frozen=True, slots=True)
class PlannerMemory:
    """Everything that is remembered from one decision to the next."""

    arrivals: Arrivals = field(default_factory=Arrivals)
    capacity: Capacity = field(default_factory=Capacity)
    hold: Hold = field(default_factory=Hold)
    """Of what the load needs."""
    drain: Hold = field(default_factory=lambda: Hold(patience_s=0.0, shortest_s=0.0))
    """Of what the backlog needs."""
    margin: Margin = field(default_factory=Margin)
    history: History = field(default_factory=History)
    spikes: SpikeMemory = field(default_factory=SpikeMemory)
    still: Still = field(default_factory=Still)


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision."""

    count: int
    current: int
    terms: tuple[PlanTerm, ...]
    winner: TermName | None
    limits: tuple[PlanLimit, ...]
    look_again_at: float
    memory: PlannerMemory

    def say(self) -> str:
        """One sentence with numbers."""
        head = f"{self.count} replica{'' if self.count == 1 else 's'}"
        parts = [term.why for term in self.terms if term.name in {self.winner, "backlog"}]
        parts += [limit.why for limit in self.limits] or ["limited by nothing"]
        return f"{head}: {'; '.join(parts)}"


def plan(now: float, objectives: Objectives, reading: Reading, memory: PlannerMemory) -> Plan:
    """How many replicas the model should have now, and why.

    `now` and all times are seconds of one clock. The count lies within the limits of `objectives`; with signals that can't
    be believed it is the present one.
    """
    low, high = _bounds(objectives)
    current = reading.replicas
    memory = _learnt(objectives, reading, memory)
    line = memory.capacity.line
    if line is None:
        limit = PlanLimit("learning", _within(current, low, high), "no batch was seen yet, so capacity is not known")
        return Plan(limit.replicas, current, (), None, (limit,), now + _QUICK_S, memory)
    rows = max(reading.rows_per_request, 1e-6)
    batch = max(int(objectives.max_batch / rows), 1)
    replica = Replica(line if rows == 1.0 else replace(line, row_s=line.row_s * rows), batch, objectives.instances)

    before = memory.arrivals.rate() if memory.arrivals.raw is not None else None
    reason = doubt(
        now,
        reading,
        memory.still,
        rate=before,
        dispersion=memory.arrivals.dispersion,
        most_rps=high * replica.peak_rps,
    )
    if reason is not None:
        kept = _within(current, low, high)
        limit = PlanLimit("unknown", kept, f"{reason}; the last good count stays")
        memory = replace(memory, hold=memory.hold.blind(now))
        return Plan(kept, current, (), None, (limit,), now + _QUICK_S, memory)
    return _decided(now, objectives, reading, memory, replica=replica, bounds=(low, high))


def _decided(
    now: float,
    objectives: Objectives,
    reading: Reading,
    memory: PlannerMemory,
    *,
    replica: Replica,
    bounds: tuple[int, int],
) -> Plan:
    low, high = bounds
    current = reading.replicas
    at, arrived = reading.at or now, reading.arrived or 0.0
    block_s = min(max(objectives.latency_s or 1.0, 1.0), 10.0)
    arrivals = memory.arrivals.with_sample(at, arrived, block_s=block_s)
    start_s = memory.capacity.start_s(_START_SHARE, objectives.start_s)
    memory = _watched(memory, arrivals)
    memory = replace(memory, arrivals=arrivals, still=memory.still.with_reading(reading))
    if memory.hold.held is None:
        # The first look: what runs is what somebody found right, until there is a reason.
        memory = replace(memory, hold=replace(memory.hold, needs=((now, current),), held=current))
    rate = arrivals.rate()
    if rate is None:
        kept = _within(current, low, high)
        limit = PlanLimit("learning", kept, "the arrival rate is known from the second reading on")
        return Plan(kept, current, (), None, (limit,), now + _QUICK_S, memory)

    rising = arrivals.rising(start_s + _CALM_S)
    later = max(rate, rising or 0.0)
    margin = memory.margin.with_forecast(at, arrivals.proven(_JUDGED_S), later, start_s)
    memory = replace(memory, margin=margin)
    terms = _needs(
        objectives, reading, memory, replica=replica, rates=(rate, rising), start_s=start_s, most=max(high, 1)
    )
    foreseen = _foreseen(now, objectives, memory, replica=replica, start_s=start_s, most=max(high, 1))
    terms += foreseen
    winner = max(terms, key=lambda term: term.replicas)
    idle = _idle(now, objectives, reading, arrivals)
    limits: list[PlanLimit] = []
    if idle is not None:
        held = max((term.replicas for term in foreseen), default=0)
        hold = replace(memory.hold, needs=((now, held),), held=held)
        limits.append(PlanLimit("idle", held, idle))
    else:
        known = memory.spikes.bet is not None
        need = _unless_noise(winner.replicas, memory, objectives, replica, rates=(rate, rising), most=max(high, 1))
        held, hold = memory.hold.with_need(now, max(need, 1), start_s, foreseen=known)
        if held > max(winner.replicas, low):
            span = hold.seconds(start_s, foreseen=known)
            limits.append(PlanLimit("hold", held, f"{held} were needed within the last {span:.0f} s"))
    memory = replace(memory, hold=hold)

    count = held
    backlog, term = _backlog(now, objectives, reading, replica=replica, rates=(rate, later), start_s=start_s)
    draining, memory = _drained(now, memory, term, objectives.drain_s)
    if term is not None:
        terms = (*terms, term)
        winner = term if term.replicas > count else winner
    if draining > count and idle is None:
        count = draining
    if count < current and idle is None and (veto := _gpu_veto(reading, replica, rate, count)) is not None:
        count = min(veto.replicas, current)
        limits.append(veto)
    if count > high:
        limits.append(PlanLimit("max", high, f"maxReplicas is {high}"))
    elif count < low:
        limits.append(PlanLimit("min", low, f"minReplicas is {low}"))
    count = _within(count, low, high)
    busy = backlog > 0 or count != current or any(pod.phase == "starting" for pod in reading.pods)
    return Plan(count, current, terms, winner.name, tuple(limits), now + (_QUICK_S if busy else _CALM_S), memory)


def _bounds(objectives: Objectives) -> tuple[int, int]:
    low = max([objectives.low, *(w.low for w in objectives.windows if w.low is not None)])
    high = min([objectives.high, *(w.high for w in objectives.windows if w.high is not None)])
    return min(low, high), high


def _within(count: int, low: int, high: int) -> int:
    return min(max(count, low), high)


def _learnt(objectives: Objectives, reading: Reading, memory: PlannerMemory) -> PlannerMemory:
    capacity = memory.capacity
    if objectives.batch_prior:
        capacity = capacity.with_prior(objectives.batch_prior)
    if reading.batches:
        capacity = capacity.with_batches(reading.batches)
    capacity = capacity.with_starts(
        {pod.name: pod.ready_at - pod.created_at for pod in reading.pods if pod.ready_at is not None}
    )
    return memory if capacity is memory.capacity else replace(memory, capacity=capacity)


def _size(objectives: Objectives, replica: Replica, rate: float, dispersion: float, most: int) -> int:
    """Replicas for an arrival rate, at the latency objective or at the utilisation target."""
    if rate <= 0:
        return 0
    if objectives.latency_s is None:
        return min(max(math.ceil(rate / (objectives.utilization * replica.peak_rps) - 1e-9), 1), most)
    return replicas_within(rate, replica, objectives.latency_s, dispersion=dispersion, most=most)


def _needs(
    objectives: Objectives,
    reading: Reading,
    memory: PlannerMemory,
    *,
    replica: Replica,
    rates: tuple[float, float | None],
    start_s: float,
    most: int,
) -> tuple[PlanTerm, ...]:
    spread = memory.arrivals.dispersion
    rate, rising = rates
    ahead = 1 + memory.margin.value
    need = _size(objectives, replica, rate * ahead, spread, most)
    if objectives.latency_s is not None and need:
        each = rate_within(need, replica, objectives.latency_s, dispersion=spread) / need
    else:
        each = objectives.utilization * replica.peak_rps
    why = f"{rate:.4g} req/s and {100 * memory.margin.value:.0f} % on top at {each:.4g} per replica needs {need}"
    terms = [PlanTerm("rate", need, why)]
    if rising is not None and rising > rate:
        more = _size(objectives, replica, rising * ahead, spread, most)
        terms.append(PlanTerm("trend", more, f"rising to {rising:.4g} req/s in {start_s:.0f} s needs {more}"))
    if objectives.gpu_utilization and reading.gpu is not None and math.isfinite(reading.gpu) and reading.gpu >= 0:
        more = min(math.ceil(reading.gpu / objectives.gpu_utilization - 1e-9), most)
        terms.append(
            PlanTerm(
                "gpuUtilization", more, f"GPU {reading.gpu:.0f} % at {objectives.gpu_utilization:g} % needs {more}"
            )
        )
    if objectives.queue_depth and rate > 0:
        # Little's law makes a wait of a depth: waiting = rate x wait.
        target = objectives.queue_depth
        more = need
        line_s = replica.line.seconds(replica.max_batch)
        while more < most and rate > rate_within(more, replica, 2 * line_s + target * more / rate, dispersion=spread):
            more += 1
        terms.append(PlanTerm("queueDepth", more, f"{target:g} waiting per replica needs {more}"))
    return tuple(terms)


def _unless_noise(
    need: int,
    memory: PlannerMemory,
    objectives: Objectives,
    replica: Replica,
    *,
    rates: tuple[float, float | None],
    most: int,
) -> int:
    """The need, but no lower than what the rate would need if it were underrated by chance.

    The way down begins where the way up would not begin again by noise alone: without this band a load between two counts
    would turn the count around for ever.
    """
    held = memory.hold.held
    if held is None or need >= held:
        return need
    above = memory.arrivals.error() * _BAND_SIGMAS
    cautious = _size(
        objectives, replica, (rates[0] + above) * (1 + memory.margin.value), memory.arrivals.dispersion, most
    )
    return max(need, min(cautious, held))


def _watched(memory: PlannerMemory, arrivals: Arrivals) -> PlannerMemory:
    """With what arrived since the last sample told to those who look for seasons and spikes."""
    before = memory.arrivals
    if not before.times or not arrivals.times or arrivals.times[-1] <= before.times[-1]:
        return memory
    at, seconds = arrivals.times[-1], arrivals.times[-1] - before.times[-1]
    requests = max(arrivals.counts[-1] - before.counts[-1], 0.0)
    return replace(
        memory,
        history=memory.history.with_sample(at, requests=requests, seconds=seconds),
        spikes=memory.spikes.observed(at, requests / seconds),
    )


def _foreseen(
    now: float, objectives: Objectives, memory: PlannerMemory, *, replica: Replica, start_s: float, most: int
) -> tuple[PlanTerm, ...]:
    """What comes back: a spike that is due, the usual load of this time of day or week. These only ever raise the count."""
    terms = []
    spread, lead_s = memory.arrivals.dispersion, start_s + _AHEAD_S
    if (spike := expected(memory.spikes, now, lead_s)) is not None:
        need = _size(objectives, replica, spike.rate, spread, most)
        terms.append(PlanTerm("spike", need, f"{spike.source}, needs {need}"))
    if (usual := forecast(memory.history, now, now + lead_s)) is not None and usual.rate * lead_s >= 1:
        need = _size(objectives, replica, usual.rate, spread, most)
        terms.append(PlanTerm("season", need, f"{usual.say()} needs {need}"))
    return tuple(terms)


def _idle(now: float, objectives: Objectives, reading: Reading, arrivals: Arrivals) -> str | None:
    """Why there is to be no replica; None where there is to be one."""
    after = objectives.idle_after_s
    if objectives.low > 0 or after is None or reading.inflight:
        return None
    last = arrivals.last_at if arrivals.last_at is not None else arrivals.times[0]
    quiet = now - last
    if arrivals.last_at is None and reading.replicas == 0:
        return "no request has come"
    return f"no request for {quiet:.0f} s; idleAfter is {after:.0f} s" if quiet >= after else None


def _backlog(
    now: float,
    objectives: Objectives,
    reading: Reading,
    *,
    replica: Replica,
    rates: tuple[float, float],
    start_s: float,
) -> tuple[float, PlanTerm | None]:
    """(requests beyond what is under way in batches, the term)."""
    ready = sum(pod.phase == "ready" for pod in reading.pods)
    batch = replica.max_batch * replica.instances
    # What fits in the batches at hand, and what still meets the objective, is no backlog.
    slack_s = max((objectives.latency_s or 0.0) - 1.5 * replica.line.seconds(replica.max_batch), 0.0) / 2
    backlog = max((reading.waiting or 0.0) - ready * batch, 0.0)
    rate, later = rates
    if backlog <= slack_s * ready * replica.peak_rps and rate <= ready * replica.peak_rps:
        return 0.0, None
    arriving = sorted(_joins(now, pod, start_s) for pod in reading.pods if pod.phase == "starting")
    missing = reading.replicas - sum(pod.phase not in {"draining", "broken"} for pod in reading.pods)
    arriving += [start_s] * max(missing, 0)
    stuck = sum(pod.phase == "unschedulable" for pod in reading.pods)
    asked = drain(
        backlog=backlog,
        rate=rate,
        later_rate=later,
        peak_rps=replica.peak_rps,
        ready=ready,
        arriving_s=arriving,
        start_s=start_s,
        drain_s=objectives.drain_s,
        most=float(objectives.queue_limit) if objectives.queue_limit is not None else math.inf,
    )
    # Pods without a node are kept (a node autoscaler may be at work for them) and nothing is expected of them.
    total = asked.keep + asked.new + (stuck if asked.new == 0 and asked.keep else 0)
    why = f"{backlog:.0f} waiting to drain in {objectives.drain_s:.0f} s needs {total} ({asked.new} new)"
    return backlog, PlanTerm("backlog", total, why)


def _joins(now: float, pod: PodReading, start_s: float) -> float:
    """Seconds until a pod under way is expected to be ready."""
    return max(pod.created_at + start_s - now, _OVERDUE * start_s if now - pod.created_at > start_s else 0.0)


def _drained(now: float, memory: PlannerMemory, term: PlanTerm | None, drain_s: float) -> tuple[int, PlannerMemory]:
    """The count to hold for the backlog. What is done is released at once; forecasts of it are noisy and are held a while."""
    if term is None:
        return 0, memory if not memory.drain.needs else replace(memory, drain=replace(memory.drain, needs=(), held=0))
    held, hold = memory.drain.with_need(now, term.replicas, drain_s, foreseen=True)
    return held, replace(memory, drain=hold)


def _gpu_veto(reading: Reading, replica: Replica, rate: float, count: int) -> PlanLimit | None:
    """A limit on going down where GPUs are full although the service line says that they should not be.

    Then the line is wrong, or something else computes on them. A busy GPU alone says nothing: with batches of one, a
    fifth of the peak rate can keep it busy all the time.
    """
    ready = sum(pod.phase == "ready" for pod in reading.pods)
    if reading.gpu is None or not math.isfinite(reading.gpu) or not ready:
        return None
    least = math.ceil(reading.gpu / 100.0 / _FULL - 1e-9)
    expected = rate * replica.line.seconds(1) / (ready * replica.instances)
    if least < ready or expected > _HALF_BUSY or least <= count:
        return None
    why = f"GPUs are busy to {reading.gpu / ready:.0f} %, where {100 * expected:.0f} % was to be expected: not below {least}"
    return PlanLimit("veto", least, why)
