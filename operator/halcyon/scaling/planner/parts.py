"""What each part of the plan asks for: the rate, its trend, seasons and spikes, the user's targets, the backlog, the GPUs.

Each is a pure function of one `Situation`. Not here: for how long a need is kept, and the limits (`planner`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from typing_extensions import override

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.capacity.backlog import drain
from halcyon.scaling.planner.capacity.queueing import Replica, rate_within, replicas_within
from halcyon.scaling.planner.forecast.recurring_spikes import expected, since_end
from halcyon.scaling.planner.forecast.seasonality import forecast
from halcyon.scaling.planner.headroom import Headroom
from halcyon.scaling.planner.outputs import PlanLimit, PlannerMemory, PlanPart
from halcyon.scaling.planner.reading import Objectives, PodReading, Reading

_OVERDUE = 0.25
"""A pod later than its start time is expected in this share of it, from now on."""
_FULL = 0.95
"""A GPU as busy as this has nothing to give."""
_HALF_BUSY = 0.5
"""Where batches of one would keep the GPUs busier than this, a full GPU is no surprise."""
_BAND_SIGMAS = 3.0
"""Standard errors of a minute's rate, and of its dispersion, between the way up and the way down. With 2 of the rate, constant loads turned
the count around four times as often (0.3 times an hour, with noise and without), for 3 % less GPU time there and 0.2 % in the table of scenarios."""
_AHEAD_S = 5.0
"""How much sooner than a start takes pods are asked for, where the time is known: what a decision and a slow start cost."""


@immutable(frozen=True, slots=True)
class Situation:
    """What the terms are functions of."""

    now: float
    objectives: Objectives
    reading: Reading
    memory: PlannerMemory
    """With this reading in it."""
    replica: Replica
    rate: float
    """Requests per second now."""
    rising: float | None
    """Requests per second one start time from now, where a rise goes on."""
    margin: Headroom
    """By what the load has been seen to outrun what is known of it."""
    start_s: float
    most: int
    """No term asks for more."""
    ready: int
    """Pods that serve."""
    sure: float = 1.0
    """The share of the rate that is a reason for more."""

    @property
    def later(self) -> float:
        """The rate to be expected one start time from now."""
        return max(self.rate * self.sure, self.rising or 0.0)

    def size(self, rate: float) -> int:
        """Replicas for an arrival rate, at the latency objective or at the utilisation target."""
        return sized(rate, self.objectives, self.replica, dispersion=self.memory.arrivals.spread.value, most=self.most)

    def with_margin(self, rate: float) -> float:
        """A rate with what the load has been seen to outrun it by."""
        return rate * (1 + self.margin.value)


def rate_now(now: float, memory: PlannerMemory) -> float | None:
    """The arrival rate now, requests per second; None where it isn't known yet.

    The mean of a minute forgets a spike a minute late. Where the spike was one of a row that is known, what came since its
    end counts at once.
    """
    rate = memory.arrivals.rate()
    quiet_s = since_end(memory.spikes, now)
    return rate if rate is None or quiet_s is None else min(rate, memory.arrivals.mean(quiet_s))


def sized(rate: float, objectives: Objectives, replica: Replica, *, dispersion: float, most: int) -> int:
    """Replicas for an arrival rate, at the latency objective or at the utilisation target; 0 for none, at most `most`."""
    if rate <= 0:
        return 0
    if objectives.latency_s is None:
        return min(max(math.ceil(rate / (objectives.utilization * replica.peak_rps) - 1e-9), 1), most)
    return replicas_within(rate, replica, objectives.latency_s, dispersion=dispersion, most=most)


@immutable(frozen=True, slots=True)
class _RateNeeds:
    """What the rate needs, in words."""

    need: int
    rate: float
    margin: float
    objectives: Objectives
    replica: Replica
    dispersion: float

    @override
    def __str__(self) -> str:
        """What one replica is to serve is worked out for the reader only."""
        aims, need = self.objectives, self.need
        if aims.latency_s is not None and need:
            each = rate_within(need, self.replica, aims.latency_s, dispersion=self.dispersion) / need
        else:
            each = aims.utilization * self.replica.peak_rps
        return f"{self.rate:.4g} req/s and {100 * self.margin:.0f} % on top at {each:.4g} per replica needs {need}"


def needs(at: Situation) -> tuple[PlanPart, ...]:
    """What the load of now and soon asks for; the rate's own term is the first."""
    objectives, spread = at.objectives, at.memory.arrivals.spread.value
    need = at.size(at.with_margin(at.rate))
    said = _RateNeeds(need, at.rate, at.margin.value, objectives, at.replica, spread)
    terms = [PlanPart("rate", need, said)]
    if at.rising is not None and at.rising > at.rate:
        more = at.size(at.with_margin(at.rising))
        terms.append(PlanPart("trend", more, f"rising to {at.rising:.4g} req/s in {at.start_s:.0f} s needs {more}"))
    gpu, target = at.reading.gpu, objectives.gpu_utilization
    if target and gpu is not None and 0 <= gpu < math.inf:
        more = min(math.ceil(gpu / target - 1e-9), at.most)
        terms.append(PlanPart("gpuUtilization", more, f"GPU {gpu:.0f} % at {target:g} % per replica needs {more}"))
    if objectives.queue_depth and at.rate > 0:
        more = for_depth(
            at.rate, objectives.queue_depth, at.replica, dispersion=spread, least=max(need, 1), most=at.most
        )
        terms.append(PlanPart("queueDepth", more, f"{objectives.queue_depth:g} waiting per replica needs {more}"))
    return tuple(terms)


def for_depth(rate: float, depth: float, replica: Replica, *, dispersion: float, least: int, most: int) -> int:
    """Replicas, from `least` to `most`, at which no more than `depth` requests wait for each, in steady state; the rate is above 0.

    Little's law makes a wait of a depth (waiting = rate x wait), and the wait is an objective like any other.
    """
    batches_s = 2 * replica.batch_s
    count = least
    while count < most:
        allowed_s = batches_s + depth * count / rate
        if rate <= rate_within(count, replica, allowed_s, dispersion=dispersion):
            break
        count += 1
    return count


def foreseen(at: Situation) -> tuple[PlanPart, ...]:
    """What comes back: a spike that is due, the usual load of this time of day or week. These only ever raise the count."""
    terms = []
    lead_s = at.start_s + _AHEAD_S
    if (spike := expected(at.memory.spikes, at.now, lead_s)) is not None:
        need = at.size(spike.rate)
        terms.append(PlanPart("spike", need, f"{spike.source}, needs {need}"))
    usual = forecast(at.memory.history, at.now, at.now + lead_s)
    if usual is not None and usual.rate * lead_s >= 1:
        need = at.size(usual.rate)
        terms.append(PlanPart("season", need, f"{usual.say()} needs {need}"))
    return tuple(terms)


def if_sure(at: Situation, terms: Sequence[PlanPart]) -> int:
    """What these terms need, `needs`; where requests were seen for seconds only, no more than held but for what is sure."""
    need, held = max([term.replicas for term in terms]), at.memory.hold.held
    if at.sure >= 1 or held is None or need <= held:
        return need
    surely = max(term.replicas for term in needs(replace(at, rate=at.rate * at.sure, sure=1.0)))
    return min(need, max(surely, held))


def unless_noise(at: Situation, need: int) -> int:
    """The need, but no lower than what the rate would need if it and its bursts were underrated by chance.

    The way down begins where the way up would not begin again by noise alone: without this band a load between two counts
    would turn the count around for ever.
    """
    held = at.memory.hold.held
    if held is None or need >= held:
        return need
    arrivals = at.memory.arrivals
    above = at.rate + _BAND_SIGMAS * arrivals.error()
    burstier = arrivals.spread.doubt * (1 + _BAND_SIGMAS * arrivals.spread.error())
    most = sized(at.with_margin(above), at.objectives, at.replica, dispersion=burstier, most=at.most)
    return max(need, min(most, held))


def backlog(at: Situation, held: int) -> PlanPart | None:
    """What the backlog asks for; None where nothing waits for long and the pods that serve keep up.

    `held`: replicas that stay for the load. Those beyond them are there for the backlog: it is worked off when the others can do
    what is left of it in time.
    """
    objectives, replica, pods = at.objectives, at.replica, at.reading.pods
    staying = min(at.ready, held)
    # What fits in the batches at hand, and what still meets the objective, is no backlog.
    waiting = max((at.reading.waiting or 0.0) - staying * replica.max_batch * replica.instances, 0.0)
    slack_s = max(replica.slack_s(objectives.latency_s or 0.0), 0.0) / 2
    serving, rate = staying * replica.peak_rps, at.rate * at.sure
    if waiting <= slack_s * serving and rate <= serving:
        return None
    arriving = sorted(_joins(at.now, pod, at.start_s) for pod in pods if pod.phase == "starting")
    missing = at.reading.replicas - sum(pod.phase not in {"draining", "broken"} for pod in pods)
    arriving += [at.start_s] * max(missing, 0)
    asked = drain(
        backlog=waiting,
        rate=rate,
        later_rate=at.later,
        peak_rps=replica.peak_rps,
        ready=at.ready,
        arriving_s=arriving,
        start_s=at.start_s,
        drain_s=objectives.drain_s,
        most=min(
            math.inf if objectives.queue_limit is None else float(objectives.queue_limit), at.memory.refusals.most()
        ),
    )
    # Pods without a node are kept (a node autoscaler may be at work for them) and nothing is expected of them.
    stuck = sum(pod.phase == "unschedulable" for pod in pods) if asked.keep and not asked.new else 0
    total = asked.keep + asked.new + stuck
    wish = f"to drain in {objectives.drain_s:g} s needs"
    if asked.new < asked.quickest:
        wish = f"would drain in {objectives.drain_s:g} s with {asked.quickest - asked.new} more, whose start costs more than it saves:"
    return PlanPart("backlog", total, f"{waiting:.0f} waiting {wish} {total} ({asked.new} new)")


def _joins(now: float, pod: PodReading, start_s: float) -> float:
    """Seconds until a pod under way is expected to be ready."""
    return max(pod.created_at + start_s - now, _OVERDUE * start_s if now - pod.created_at > start_s else 0.0)


def gpu_veto(at: Situation, count: int) -> PlanLimit | None:
    """A limit on going down to `count` where GPUs are full although the service line says that they should not be.

    Then the line is wrong, or something else computes on them. A busy GPU alone says nothing: with batches of one, a
    fifth of the peak rate can keep it busy all the time.
    """
    gpu, ready = at.reading.gpu, at.ready
    if gpu is None or not math.isfinite(gpu) or not ready:
        return None
    least = math.ceil(gpu / 100.0 / _FULL - 1e-9)
    usual = at.rate * at.replica.line.seconds(1) / (ready * at.replica.instances)
    if least < ready or usual > _HALF_BUSY or least <= count:
        return None
    why = f"GPUs are busy to {gpu / ready:.0f} %, where {100 * usual:.0f} % was to be expected: not below {least}"
    return PlanLimit("veto", least, why)
