"""The function `plan`, which decides how many replicas one model should have from its limits, a reading and the memory.

It has no side effects and takes tens of microseconds. Its steps:

    1. replicas needed for the load: the highest of the rate, the trend, the seasons, the spikes and the user's targets
    2. hold: unneeded replicas are kept for at least as long as a pod takes to start
    3. replicas needed for the backlog, if that is more
    4. limits on a scale-down if GPUs are unexpectedly full or the pods' answers require it, and the limit that pods
       share
    5. minReplicas, maxReplicas and schedules

The decision contains the result of each step as data. The sentence in the status and the tables of `explain` are
formatted from it. docs/planner.md lists the constants with the reasons for their values.
"""

from __future__ import annotations

import math
from dataclasses import replace

from halcyon.scaling.lazy_text import LazyText, plain
from halcyon.scaling.planner.answer_evidence import AnswerEvidence
from halcyon.scaling.planner.capacity import start_time
from halcyon.scaling.planner.capacity.queueing import Replica, ServiceLine
from halcyon.scaling.planner.capacity.replica_capacity import Capacity
from halcyon.scaling.planner.forecast.arrival_rate import ArrivalRate
from halcyon.scaling.planner.forecast.recurring_spikes import ended, under_way
from halcyon.scaling.planner.forecast.trend_damping import WINDOW_S, TrendDamping
from halcyon.scaling.planner.headroom import Headroom
from halcyon.scaling.planner.outputs import LimitName, Plan, PlanLimit, PlannerMemory, PlanPart
from halcyon.scaling.planner.parts import (
    Situation,
    answers_limit,
    backlog,
    certain_need,
    gpu_veto,
    load_parts,
    need_beyond_noise,
    rate_now,
    recurring_parts,
    shared_limit,
)
from halcyon.scaling.planner.plausibility import implausibility
from halcyon.scaling.planner.reading import Objectives, Reading
from halcyon.scaling.planner.scale_down_hold import ScaleDownHold
from halcyon.scaling.planner.scale_to_zero import extended_idle_reason, idle_reason

_JUDGING_WINDOW_S = 30.0
"""Length of the window, in seconds, whose mean arrival rate is compared with the earlier forecast for this window."""
_BLOCK_LIMITS_S = (1.0, 10.0)
"""Minimum and maximum length, in seconds, of the blocks of time in which the dispersion of arrivals is measured.
Between them, the length is the latency objective."""
_REFUTED = 1.2
"""Maximum ratio of a replica's learnt capacity to the capacity that `halcyon bench` measured. At a higher ratio, the
measurement counts as wrong, and the replicas added because of it are released."""
_BUSY_INTERVAL_S, _CALM_INTERVAL_S = 1.0, 2.0
"""Seconds until the next decision. The first value applies while pods start, requests are queued, or the replicas
change. Otherwise the second value applies."""


def plan(now: float, objectives: Objectives, reading: Reading, memory: PlannerMemory) -> Plan:
    """Decide how many replicas the model should have now, and why.

    `now` and all other times are in seconds since the epoch. The result is within the limits of `objectives`. If the
    reading is implausible, the number of replicas does not change.
    """
    low, high = bounds(objectives)
    current = reading.replicas
    bounded = _within(current, low, high)
    capacity = _learn_capacity(objectives, reading, memory.capacity)
    line = capacity.line
    replica = None if line is None else replica_of(objectives, line, reading.rows_per_request)
    reason = implausibility(
        now,
        reading,
        memory.still,
        rate=memory.arrivals.rate(),
        dispersion=memory.arrivals.spread.value,
        most_rps=math.inf if replica is None else high * replica.peak_rps,
    )
    if reason is not None:
        arrivals = _postpone_idleness(now, reading, memory.arrivals)
        memory = memory.with_changes(capacity=capacity, hold=memory.hold.blind(now), arrivals=arrivals)
        return _keep(
            now, bounded, current, memory, why=f"{reason}; the last valid number of replicas is kept", limit="unknown"
        )
    start_s = start_time.start_s(capacity, start_time.PLANNED_SHARE, objectives.start_s)
    evidence = memory.evidence.with_measured(objectives.measured_answers).with_reading(
        reading.at or now,
        reading,
        replica,
        is_measured=capacity.measured_weight > 0,
        max_batch=objectives.max_batch,
    )
    if _is_refuted(objectives, memory, capacity, evidence):
        memory = memory.with_changes(hold=memory.hold.forgotten(), drain=memory.drain.forgotten())
    if evidence.is_in_force and evidence.rps is not None and memory.evidence.rps is None:
        # The answers show the capacity for the first time. Batch times that they contradict may have released replicas.
        memory = memory.with_changes(hold=memory.hold.excused())
    memory = _update_memory(now, objectives, reading, memory.with_changes(evidence=evidence), capacity, start_s)
    replica = evidence.replica() or replica or evidence.provisional()
    if replica is None:
        why = "too few batches have run, so the capacity is unknown"
        return _plan_unlearnt(now, objectives, reading, memory, why=why)
    rate = rate_now(now, memory)
    if rate is None:
        why = "the arrival rate is unknown until the second reading"
        return _plan_unlearnt(now, objectives, reading, memory, why=why)
    sure = memory.arrivals.sure()
    if is_taught(capacity, evidence) and (opening := memory.arrivals.opening()) is not None:
        rate, sure = max(rate, opening), 1.0
    rising, headroom, damping = _forecast_rise(now, memory, rate, start_s)
    ready = [pod.phase for pod in reading.pods].count("ready")
    at = Situation(
        now,
        objectives,
        reading,
        memory,
        replica,
        rate,
        rising,
        headroom,
        start_s,
        max(high, 1),
        ready,
        sure,
    )
    return _decide(at, damping, low, high)


def _forecast_rise(
    now: float, memory: PlannerMemory, rate: float, start_s: float
) -> tuple[float | None, Headroom, TrendDamping]:
    """Return the rate expected one start time from now, the updated headroom and the updated trend damping.

    The start time is that of a pod. The rate is None unless the load rises. The headroom and the damping are updated by
    comparing earlier forecasts for the present time with the actual rate.
    """
    arrivals, lead_s = memory.arrivals, start_s + _CALM_INTERVAL_S
    rising = None if under_way(memory.spikes) else arrivals.rising(lead_s)
    damping = memory.damping.with_forecast(now, arrivals.mean(WINDOW_S), rate, rising, lead_s)
    rising = damping.of(rate, rising)
    headroom = memory.headroom
    if headroom.is_due(now, start_s):
        headroom = headroom.with_forecast(now, arrivals.proven(_JUDGING_WINDOW_S), max(rate, rising or 0.0), start_s)
    return rising, headroom, damping


def _plan_unlearnt(now: float, objectives: Objectives, reading: Reading, memory: PlannerMemory, *, why: str) -> Plan:
    """Return the plan for a model whose capacity or arrival rate is unknown.

    The number of replicas does not change, with two exceptions. An idle model is scaled to zero, and a model at zero is
    scaled to one if requests have arrived.
    """
    low, high = bounds(objectives)
    current = reading.replicas
    if (idle := idle_reason(now, objectives, reading, memory.arrivals, memory.zero)) is not None:
        return _keep(now, _within(0, low, high), current, memory, why=idle, limit="idle")
    has_work = bool(reading.inflight) or memory.arrivals.last_at is not None or bool(reading.metric)
    has_requests = current == 0 and has_work
    if has_requests:
        why = f"requests have arrived, and no replica runs; {why}"
    return _keep(now, _within(1 if has_requests else current, low, high), current, memory, why=why, limit="learning")


def _decide(at: Situation, damping: TrendDamping, low: int, high: int) -> Plan:
    current, before = at.reading.replicas, at.memory
    parts, recurring = load_parts(at), recurring_parts(at)
    held, winner, hold, limits = _hold_for_load(at, parts, recurring, low)
    parts += recurring
    count = held
    waiting = backlog(at, held)
    draining, drain = _hold_for_backlog(at, waiting)
    idle = "idle" in [limit.name for limit in limits]
    if waiting is not None:
        parts += (waiting,)
        winner = waiting if waiting.replicas > count else winner
    if draining > count and not idle:
        count = draining
        if draining > winner.replicas:
            why = f"{draining} were needed for the backlog within the last {at.objectives.drain_s:g} s"
            limits = (PlanLimit("hold", draining, why),)
    if count < current and not idle and (veto := gpu_veto(at, count)) is not None:
        count = min(veto.replicas, current)
        limits += (veto,)
    if count < current and not idle and (least := answers_limit(at, count)) is not None:
        count = least.replicas
        limits += (least,)
    if (shared := shared_limit(at, count)) is not None:
        count = shared.replicas
        limits += (shared,)
    if count > high:
        limits += (PlanLimit("max", high, f"maxReplicas is {high}"),)
    elif count < low:
        limits += (PlanLimit("min", low, f"minReplicas is {low}"),)
    count = _within(count, low, high)
    zero = before.zero
    if (idle_after_s := at.objectives.idle_after_s) is not None and low == 0:
        zero = zero.with_count(at.now, current, count, idle_after_s=idle_after_s, start_s=at.start_s)
    memory = before.with_changes(hold=hold, drain=drain, margin=at.headroom, damping=damping, zero=zero)
    busy = waiting is not None or count != current or "starting" in [pod.phase for pod in at.reading.pods]
    return Plan(
        count, current, parts, winner.name, limits, at.now + (_BUSY_INTERVAL_S if busy else _CALM_INTERVAL_S), memory
    )


def _hold_for_load(
    at: Situation, parts: tuple[PlanPart, ...], recurring: tuple[PlanPart, ...], low: int
) -> tuple[int, PlanPart, ScaleDownHold, tuple[PlanLimit, ...]]:
    """Return the number of replicas to keep for the load, and the data that explains it.

    The result is (number of replicas, part of the plan that decided, updated hold, applied limits).
    """
    winner = parts[0]
    for part in (*parts[1:], *recurring):
        if part.replicas > winner.replicas:
            winner = part
    memory = at.memory
    if (idle := idle_reason(at.now, at.objectives, at.reading, memory.arrivals, memory.zero)) is not None:
        held = max((part.replicas for part in recurring), default=0)
        return held, winner, memory.hold.at_least(at.now, held), (PlanLimit("idle", held, idle),)
    foreseen = memory.spikes.bet is not None
    needed, spread = max([certain_need(at, parts), 1, *[part.replicas for part in recurring]]), memory.arrivals.spread
    need = need_beyond_noise(at, needed)
    bare = need if spread.is_learnt else needed
    held, hold = memory.hold.with_need(at.now, need, at.start_s, bare=bare, foreseen=foreseen, dispersion=spread.value)
    if (reason := extended_idle_reason(at.now, at.objectives, at.reading, memory.arrivals, memory.zero)) is not None:
        return held, winner, hold, (PlanLimit("hold", held, reason),)
    if low < held < winner.replicas:
        seen = (
            f"{plain(at.rate * at.sure)} of {plain(at.rate)} req/s are certain after {memory.arrivals.seen_s():.0f} s"
        )
        return held, winner, hold, (PlanLimit("learning", held, f"{held} for now, since {seen}"),)
    if held <= max(winner.replicas, low):
        return held, winner, hold, ()
    if held == need:
        why = LazyText("{} are kept, since {} req/s may be underestimated by chance", (held, plain(at.rate)))
    else:
        span = hold.seconds(at.start_s, foreseen=foreseen, dispersion=spread.value)
        why = LazyText("{} were needed within the last {:.0f} s", (held, span))
    return held, winner, hold, (PlanLimit("hold", held, why),)


def _hold_for_backlog(at: Situation, part: PlanPart | None) -> tuple[int, ScaleDownHold]:
    """Return the replicas to keep for the backlog, and the updated record of recent needs.

    Once the backlog is gone and no pod is starting, these replicas are released at once. Until then, they are kept for
    `drain_s` after they were last needed, because forecasts of the backlog are noisy. Pods that are still starting are
    kept as well, because the backlog may return before they are ready.
    """
    drain = at.memory.drain
    if part is None and at.reading.replicas <= at.ready:
        return 0, drain if not drain.needs else replace(drain, needs=(), held=0)
    need = 0 if part is None else part.replicas
    return drain.with_need(at.now, need, at.objectives.drain_s, foreseen=True)


def _keep(now: float, count: int, current: int, memory: PlannerMemory, *, why: str, limit: LimitName) -> Plan:
    """Return a plan that sets `count` replicas for the reason `why`, without computing the replicas for the load."""
    return Plan(count, current, (), None, (PlanLimit(limit, count, why),), now + _BUSY_INTERVAL_S, memory)


def bounds(objectives: Objectives) -> tuple[int, int]:
    """Return the minimum and maximum replicas that apply now, from the spec and the active schedules.

    If the highest minimum is above the lowest maximum, the maximum wins.
    """
    low, high = objectives.low, objectives.high
    if objectives.windows:
        low = max([low, *(w.low for w in objectives.windows if w.low is not None)])
        high = min([high, *(w.high for w in objectives.windows if w.high is not None)])
    return (min(high, low)), high


def _within(count: int, low: int, high: int) -> int:
    """Return `count` limited to the range from `low` to `high`. `low` must not exceed `high`."""
    return low if count < low else min(count, high)


def replica_of(objectives: Objectives, line: ServiceLine, rows: float) -> Replica:
    """Return the capacity of one replica if a request has `rows` rows on average.

    Batch times and the largest batch, which are measured in rows, are converted to requests.
    """
    if rows == 1.0 or not 0 < rows < math.inf:
        return Replica(line, objectives.max_batch, objectives.instances)
    batch = max(int(objectives.max_batch / rows), 1)
    return Replica(ServiceLine(line.t0_s, line.row_s * rows), batch, objectives.instances)


def _learn_capacity(objectives: Objectives, reading: Reading, capacity: Capacity) -> Capacity:
    """Return the learnt capacity updated with the batch times and pod start times in the reading."""
    capacity = capacity.of_revision(reading.revision).with_measured(objectives.measured_batches)
    if objectives.batch_prior:
        capacity = capacity.with_prior(objectives.batch_prior)
    if reading.batches:
        capacity = capacity.with_batches(reading.batches)
    return start_time.with_starts(
        capacity, {pod.name: pod.ready_at - pod.created_at for pod in reading.pods if pod.ready_at is not None}
    )


def _is_refuted(objectives: Objectives, before: PlannerMemory, capacity: Capacity, evidence: AnswerEvidence) -> bool:
    """Return whether this reading shows that a replica's capacity is far above the result of `halcyon bench`."""
    line = None if before.capacity is capacity else capacity.line
    if line is not None and before.capacity.measured_weight > 0 >= capacity.measured_weight:
        largest, seconds = max(before.capacity.measured)
        return seconds > _REFUTED * line.seconds(largest)
    if before.evidence.is_unseen and not evidence.is_unseen and objectives.measured_answers is not None:
        at_once, seconds = objectives.measured_answers
        return (evidence.rps or 0.0) > _REFUTED * at_once / seconds
    return False


def is_taught(capacity: Capacity, evidence: AnswerEvidence) -> bool:
    """Return whether `halcyon bench` has measured the capacity, and traffic hasn't outweighed it."""
    return capacity.measured_weight > 0 or evidence.is_unseen


def _update_memory(  # noqa: PLR0917  # one call, and each by its type
    now: float, objectives: Objectives, reading: Reading, memory: PlannerMemory, capacity: Capacity, start_s: float
) -> PlannerMemory:
    """Return the planner's memory updated with the learnt capacity and a plausible reading.

    New arrivals are also added to the history for the seasons and to the state of the spike detection.
    """
    low, high = _BLOCK_LIMITS_S
    block_s = min(max(objectives.latency_s or low, low), high)
    before = memory.arrivals
    arrivals = before.with_sample(reading.at or now, reading.arrived or 0.0, block_s=block_s)
    arrivals = _postpone_idleness(now, reading, arrivals)
    history, spikes, hold = memory.history, memory.spikes, memory.hold
    if (since := _since(before, arrivals)) is not None:
        at, seconds, requests = since
        history = history.with_sample(at, requests=requests, seconds=seconds)
        spikes = spikes.observed(at, requests / seconds)
        if ended(memory.spikes, spikes):
            hold = hold.released()
    if hold.held is None:
        # First reading: keep the running replicas until there is a reason to change them.
        hold = hold.at_least(now, reading.replicas)
    return memory.with_changes(
        arrivals=arrivals,
        capacity=capacity,
        history=history,
        spikes=spikes,
        hold=hold,
        still=memory.still.with_reading(reading),
        refusals=memory.rejections.with_reading(
            reading.at or now, reading.rejected, reading.waiting or 0.0, lasting_s=start_s
        ),
    )


def _postpone_idleness(now: float, reading: Reading, arrivals: ArrivalRate) -> ArrivalRate:
    """Return the arrivals with the last request set to the reading's time if any are in progress or queued.

    A model with such requests is not idle. The function is called even if the reading is implausible, because no signal
    changes during one long request.
    """
    at = min(reading.at or now, now)
    is_busy = (reading.inflight or 0.0) > 0 and at > (arrivals.last_at or -math.inf)
    return arrivals.with_last(at) if is_busy else arrivals


def _since(before: ArrivalRate, after: ArrivalRate) -> tuple[float, float, float] | None:
    """Return the requests that the newest sample adds, as (its time, seconds since the previous sample, requests).

    Return None if `after` has no newer sample than `before`.
    """
    if not before.times or not after.times or after.times[-1] <= before.times[-1]:
        return None
    seconds = after.times[-1] - before.times[-1]
    return after.times[-1], seconds, max(after.counts[-1] - before.counts[-1], 0.0)
