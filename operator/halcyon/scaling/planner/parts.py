"""Parts of the plan: the replicas needed for the rate, trend, seasons, spikes, user targets and backlog.

Each part is computed by a pure function from one `Situation`. Out of scope: how long replicas are kept after they were
last needed, and the limits (`plan`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from typing_extensions import override

from halcyon.scaling.frozen import immutable
from halcyon.scaling.lazy_text import plain
from halcyon.scaling.planner.capacity.backlog import drain
from halcyon.scaling.planner.capacity.queueing import Replica, rate_within, replicas_within
from halcyon.scaling.planner.forecast.recurring_spikes import expected, since_end
from halcyon.scaling.planner.forecast.seasonality import forecast
from halcyon.scaling.planner.headroom import Headroom
from halcyon.scaling.planner.outputs import PlanLimit, PlannerMemory, PlanPart
from halcyon.scaling.planner.reading import Objectives, PodReading, Reading

_OVERDUE = 0.25
"""Share of the usual start time that a pod is expected to need still, if it has already taken longer than that time."""
_FULL = 0.95
"""Minimum GPU utilisation (0 to 1) at which a GPU counts as full."""
_HALF_BUSY = 0.5
"""GPU utilisation (0 to 1), computed for batches of one row, above which a full GPU is to be expected and doesn't
indicate overload."""
_BAND_SIGMAS = 3.0
"""Distance between the load at which replicas are added and the load at which they are removed, in standard errors of a
minute's arrival rate and of its dispersion. With 2 for the rate, scaling changed direction about four times as often
under constant loads (0.3 times an hour, with and without noise), but saved 3 % GPU time for constant loads and 0.2 % in
the table of scenarios."""
_SURE_S = 30.0
"""Seconds after the detection of a limit that pods share, after which surplus replicas are released. Surplus replicas
don't raise the rate of answers."""
_AHEAD_S = 5.0
"""Seconds by which pods for a recurring load are requested earlier than one start time ahead. They allow for the time
that a decision takes and for a slow start."""


@immutable(frozen=True, slots=True)
class Situation:
    """Input from which all parts of a plan are computed."""

    now: float
    objectives: Objectives
    reading: Reading
    memory: PlannerMemory
    """Memory of the planner, already updated with the reading."""
    replica: Replica
    rate: float
    """Present arrival rate in requests per second."""
    rising: float | None
    """Arrival rate expected when a pod created now becomes ready if the load keeps rising, in requests per second; None
    if the load does not rise."""
    headroom: Headroom
    """Learnt share by which a rate is increased, because the load has exceeded forecasts in the past."""
    start_s: float
    max_replicas: int
    """Maximum number of replicas that a part can require."""
    ready: int
    """Number of ready pods."""
    sure: float = 1.0
    """Share of the measured arrival rate for which replicas may be added, above 0 and up to 1. It is below 1 only while
    the rate is uncertain, in the first minute."""

    @property
    def later(self) -> float:
        """Return the arrival rate expected when a pod created now becomes ready, in requests per second."""
        return max(self.rate * self.sure, self.rising or 0.0)

    def size(self, rate: float) -> int:
        """Return the replicas that meet the latency objective or the utilisation target at this arrival rate."""
        return replicas_for_rate(
            rate, self.objectives, self.replica, dispersion=self.memory.arrivals.spread.value, most=self.max_replicas
        )

    def with_headroom(self, rate: float) -> float:
        """Return the arrival rate `rate` increased by the learnt headroom."""
        return rate * (1 + self.headroom.value)


def rate_now(now: float, memory: PlannerMemory) -> float | None:
    """Return the present arrival rate, in requests per second; None if it isn't known yet.

    After a spike, the mean of the last minute stays too high for a minute. So after a recurring spike, the mean since
    its end is used if it is lower.
    """
    rate = memory.arrivals.rate()
    quiet_s = since_end(memory.spikes, now)
    return rate if rate is None or quiet_s is None else min(rate, memory.arrivals.mean(quiet_s))


def replicas_for_rate(rate: float, objectives: Objectives, replica: Replica, *, dispersion: float, most: int) -> int:
    """Return the replicas that serve `rate` requests per second; 0 if the rate is 0, and at most `most`.

    They meet the latency objective or, if there is none, the utilisation target. `dispersion` is the variance of the
    number of arrivals divided by its mean.
    """
    if rate <= 0:
        return 0
    if not _decides(objectives, replica):
        return min(max(math.ceil(rate / (objectives.utilization * replica.peak_rps) - 1e-9), 1), most)
    return replicas_within(rate, replica, objectives.latency_s or 0.0, dispersion=dispersion, most=most)


def _decides(objectives: Objectives, replica: Replica) -> bool:
    """Return whether the latency objective determines the replicas.

    It doesn't if a single request takes longer than the objective, because then no number of replicas meets it.
    """
    latency_s = objectives.latency_s
    return latency_s is not None and (replica.residual > 0 or replica.slack_s(latency_s) > 0)


def sustained_rps(objectives: Objectives, replica: Replica, *, dispersion: float = 1.0, replicas: int = 1) -> float:
    """Return the requests per second that each of `replicas` serves within the latency objective.

    Without an objective, or if it can't be met, return the rate at the utilisation target.
    """
    if objectives.latency_s is not None and replicas and _decides(objectives, replica):
        return rate_within(replicas, replica, objectives.latency_s, dispersion=dispersion) / replicas
    return objectives.utilization * replica.peak_rps


@immutable(frozen=True, slots=True)
class _RateReason:
    """Reason for the replicas that the arrival rate needs, formatted only when it is read."""

    need: int
    rate: float
    headroom: float
    objectives: Objectives
    replica: Replica
    dispersion: float

    @override
    def __str__(self) -> str:
        """Return the reason as a sentence.

        The rate that each replica can serve is computed only here, because decisions don't use it.
        """
        need = self.need
        each = sustained_rps(self.objectives, self.replica, dispersion=self.dispersion, replicas=need)
        return f"{plain(self.rate)} req/s with {100 * self.headroom:.0f} % headroom at {plain(each)} per replica needs {need}"


def load_parts(at: Situation) -> tuple[PlanPart, ...]:
    """Return the parts of the plan for the present load and for its trend.

    The first part is that of the arrival rate.
    """
    objectives, spread = at.objectives, at.memory.arrivals.spread.value
    need = at.size(at.with_headroom(at.rate))
    reason = _RateReason(need, at.rate, at.headroom.value, objectives, at.replica, spread)
    parts = [PlanPart("rate", need, reason)]
    if at.rising is not None and at.rising > at.rate:
        more = at.size(at.with_headroom(at.rising))
        parts.append(PlanPart("trend", more, f"rising to {plain(at.rising)} req/s in {at.start_s:.0f} s needs {more}"))
    gpu, target = at.reading.gpu, objectives.gpu_utilization
    if target and gpu is not None and 0 <= gpu < math.inf:
        more = min(math.ceil(gpu / target - 1e-9), at.max_replicas)
        parts.append(PlanPart("gpuUtilization", more, f"GPU {gpu:.0f} % at {target:g} % per replica needs {more}"))
    elif target and at.ready:
        why = "the GPU utilisation is missing, so the replicas are not lowered"
        parts.append(PlanPart("gpuUtilization", _floor(at), why))
    held = at.reading.inflight if at.reading.concurrency is None else at.reading.concurrency
    most = objectives.concurrency
    if most and held is not None and 0 <= held < math.inf:
        more = min(math.ceil(held / most - 1e-9), at.max_replicas)
        parts.append(PlanPart("concurrency", more, f"{plain(held)} in progress at {most:g} per replica needs {more}"))
    if objectives.metric:
        parts.append(_metric_part(at, objectives.metric))
    if objectives.queue_depth and at.rate > 0:
        more = replicas_for_depth(
            at.rate, objectives.queue_depth, at.replica, dispersion=spread, least=max(need, 1), most=at.max_replicas
        )
        parts.append(PlanPart("queueDepth", more, f"{objectives.queue_depth:g} queued per replica needs {more}"))
    return tuple(parts)


def _floor(at: Situation) -> int:
    """Return the replicas to keep while the value for a target is missing.

    These are the replicas that the last decision kept for the load. The present replicas are used only if that number
    has been forgotten, because they include the replicas for batch inference, which would then be added again with each
    decision.
    """
    hold = at.memory.hold
    return at.reading.replicas if hold.held is None or hold.is_forgotten else hold.held


def _metric_part(at: Situation, target: float) -> PlanPart:
    """Return the part of the plan for the result of the site's query.

    If the query has no result, the part requires the replicas of the last decision.
    """
    result = at.reading.metric
    if result is None or not 0 <= result < math.inf:
        return PlanPart(
            "metric", _floor(at), "the result of the site's query is missing, so the replicas are not lowered"
        )
    need = min(math.ceil(result / target - 1e-9), at.max_replicas)
    return PlanPart(
        "metric", need, f"the site's query is {plain(result)}, and at {plain(target, 15)} per replica needs {need}"
    )


def replicas_for_depth(rate: float, depth: float, replica: Replica, *, dispersion: float, least: int, most: int) -> int:
    """Return the fewest replicas, from `least` to `most`, with at most `depth` queued requests each in steady state.

    The rate must be above 0. Little's law (queued requests = rate x waiting time) converts the depth to a waiting time.
    This time plus the time of two full batches is used as the latency objective.
    """
    batches_s = 2 * replica.batch_s
    count = least
    while count < most:
        allowed_s = batches_s + depth * count / rate
        if rate <= rate_within(count, replica, allowed_s, dispersion=dispersion):
            break
        count += 1
    return count


def recurring_parts(at: Situation) -> tuple[PlanPart, ...]:
    """Return the parts of the plan for recurring load: a spike that is due, or the usual load at this time.

    These parts can raise the number of replicas but never lower it.
    """
    parts = []
    lead_s = at.start_s + _AHEAD_S
    if (spike := expected(at.memory.spikes, at.now, lead_s)) is not None:
        need = at.size(spike.rate)
        parts.append(PlanPart("spike", need, f"{spike.source}, needs {need}"))
    usual = forecast(at.memory.history, at.now, at.now + lead_s)
    if usual is not None and usual.rate * lead_s >= 1:
        need = at.size(usual.rate)
        parts.append(PlanPart("season", need, f"{usual.describe()} needs {need}"))
    return tuple(parts)


def certain_need(at: Situation, parts: Sequence[PlanPart]) -> int:
    """Return the replicas that these parts of the plan need, reduced while the arrival rate is uncertain.

    In the first minute, replicas are added only for the share `Situation.sure` of the arrival rate.
    """
    need, held = max([part.replicas for part in parts]), at.memory.hold.held
    if at.sure >= 1 or held is None or need <= held:
        return need
    surely = max(part.replicas for part in load_parts(replace(at, rate=at.rate * at.sure, sure=1.0)))
    return min(need, max(surely, held))


def need_beyond_noise(at: Situation, need: int) -> int:
    """Return the replicas needed, allowing for chance underestimates of the rate and its dispersion.

    Existing replicas are kept if they would be needed for a rate and a dispersion that are `_BAND_SIGMAS` standard
    errors higher. The result is thus above `need` only up to the present replicas. A scale-down begins only at a load
    at which noise alone would not cause a scale-up. Otherwise a load at the border between two numbers of replicas
    would cause scaling in both directions forever.
    """
    held = at.memory.hold.held
    if held is None or need >= held:
        return need
    arrivals = at.memory.arrivals
    above = at.rate + _BAND_SIGMAS * arrivals.error()
    burstier = arrivals.spread.doubt * (1 + _BAND_SIGMAS * arrivals.spread.error())
    most = replicas_for_rate(
        at.with_headroom(above), at.objectives, at.replica, dispersion=burstier, most=at.max_replicas
    )
    return max(need, min(most, held))


def backlog(at: Situation, held: int) -> PlanPart | None:
    """Return the part of the plan for the backlog; None if no request waits long and the ready pods keep up.

    `held` is the number of replicas kept for the load. Additional replicas serve only the backlog, until the replicas
    kept for the load can clear the rest of it in time.
    """
    objectives, replica, pods = at.objectives, at.replica, at.reading.pods
    staying = min(at.ready, held)
    # Requests that fit into the next batches, or can be served within half the slack of the objective, are not a
    # backlog.
    fits = staying * replica.max_batch * replica.instances if replica.residual else 0
    waiting = max((at.reading.waiting or 0.0) - fits, 0.0)
    slack_s = max(replica.slack_s(objectives.latency_s or 0.0), 0.0) / 2
    serving, rate = staying * replica.peak_rps, at.rate * at.sure
    if waiting <= slack_s * serving and rate <= serving:
        return None
    arriving = sorted(_joins(at.now, pod, at.start_s) for pod in pods if pod.phase == "starting")
    missing = at.reading.replicas - sum(pod.phase not in {"draining", "broken"} for pod in pods)
    arriving += [at.start_s] * max(missing, 0)
    # A backlog of requests that take long can't be cleared within seconds.
    drain_s = objectives.drain_s if replica.residual else max(objectives.drain_s, 2 * replica.batch_s)
    plan = drain(
        backlog=waiting,
        rate=rate,
        later_rate=at.later,
        peak_rps=replica.peak_rps,
        ready=at.ready,
        arriving_s=arriving,
        start_s=at.start_s,
        drain_s=drain_s,
        most=min(
            math.inf if objectives.queue_limit is None else float(objectives.queue_limit),
            at.memory.rejections.max_waiting(),
        ),
    )
    # Unschedulable pods are kept, because a node autoscaler may be adding a node for them, but they don't count as
    # capacity.
    stuck = sum(pod.phase == "unschedulable" for pod in pods) if plan.keep and not plan.new else 0
    total = plan.keep + plan.new + stuck
    subject = f"{waiting:.0f} waiting to drain in {drain_s:.3g} s needs"
    if waiting < 0.5:
        # Nothing waits yet, but the ready pods can't keep up: at zero, any request is too many.
        subject = f"{plain(rate, 3)} req/s for {staying} ready needs"
    elif plan.new < plan.quickest:
        more = plan.quickest - plan.new
        subject = f"{waiting:.0f} waiting requests would drain in {drain_s:.3g} s with {more} more, but starting them costs more than it saves:"
    return PlanPart("backlog", total, f"{subject} {total} ({plan.new} new)")


def _joins(now: float, pod: PodReading, start_s: float) -> float:
    """Return the seconds until a starting pod is expected to be ready."""
    return max(pod.created_at + start_s - now, _OVERDUE * start_s if now - pod.created_at > start_s else 0.0)


def gpu_veto(at: Situation, count: int) -> PlanLimit | None:
    """Return a limit that prevents scaling down to `count` if GPUs are busier than expected; None if they are not.

    If GPUs are full although the batch times predict otherwise, the batch times are wrong or another process uses the
    GPUs. A busy GPU alone proves nothing: with batches of one request, 20 % of the peak rate can keep it busy all the
    time.
    """
    gpu, ready = at.reading.gpu, at.ready
    if gpu is None or not math.isfinite(gpu) or not ready:
        return None
    least = math.ceil(gpu / 100.0 / _FULL - 1e-9)
    usual = at.rate * at.replica.line.seconds(1) / (ready * at.replica.instances)
    if least < ready or usual > _HALF_BUSY or least <= count:
        return None
    why = f"GPUs are {gpu / ready:.0f} % busy, although {100 * usual:.0f} % was expected: at least {least} replicas are kept"
    return PlanLimit("veto", least, why)


def answers_limit(at: Situation, count: int) -> PlanLimit | None:
    """Return a limit that prevents scaling down to `count` if the pods' answers contradict the batch times.

    Return None if they don't. Until a pod has been full, only a lower bound of its capacity is known: the highest rate
    at which it has answered.
    """
    evidence = at.memory.evidence
    if not evidence.is_in_force or evidence.rps is not None or evidence.least_rps <= 0:
        return None
    rate = at.with_headroom(at.rate)
    least = min(math.ceil(rate / (at.objectives.utilization * evidence.least_rps) - 1e-9), at.reading.replicas)
    return PlanLimit("answers", least, evidence.describe()) if least > count else None


def shared_limit(at: Situation, count: int) -> PlanLimit | None:
    """Return a limit below `count` if the pods share a limit, so that more pods don't answer more; None otherwise.

    Once a shared limit is known, no replicas are added. Surplus replicas are released only after `_SURE_S` seconds,
    because new pods may still prove that more pods answer more requests.
    """
    shared = at.memory.evidence.shared
    if shared is None:
        return None
    surplus = at.reading.replicas if at.now - shared.at < _SURE_S else 0
    most = max(shared.replicas, surplus)
    if count <= most:
        return None
    return PlanLimit("shared", most, shared.describe())
