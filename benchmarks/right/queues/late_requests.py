"""Simulation of late requests, for the choice of the rule (docs/decisions/0123 and 0127). Two balancers, pods that compute batches.

    python -m benchmarks.right.queues.late_requests

The limits are those of the agents' own code, which reads loads four times a second. The rules of HAProxy and of
`late.lua` are repeated here. A pod's queue is in the order of arrival. A batch takes 4 ms more than its law, as on real
Triton.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Final, Literal

from halcyon.api.documents.balancer_plan import BalancerPlan, Slot
from halcyon.balancer.config import overload_rules
from halcyon.balancer.config.model import ServerKey
from halcyon.balancer.runtime.concurrency import Concurrency
from halcyon.balancer.runtime.haproxy_stats import BackendLoads, HaproxyStats
from halcyon.balancer.runtime.overload_limits import (
    LATE_SPREAD,
    BatchTime,
    OverloadLimits,
    PodStatistics,
    pod_capacity,
)
from halcyon.balancer.runtime.server_assignment import AssignedServer
from halcyon.balancer.runtime.shares import PodLoad

BALANCERS: Final = 2
_MORE_S: Final = 0.004
_TICK_S: Final = 0.25
_AFTER_S: Final = 20.0
"""Time after the load in which the agents go on, in seconds."""


@dataclass(frozen=True)
class Law:
    """An execution time of `fixed_s` + `row_s` x rows, and the latency objective."""

    fixed_s: float = 0.080
    row_s: float = 0.006
    batch: int = 8
    objective_s: float = 0.5

    @property
    def peak_rps(self) -> float:
        """Requests per second of one pod with full batches."""
        return self.batch / (self.fixed_s + self.row_s * self.batch)


LAWS: Final = (Law(), Law(0.020, 0.002, 32, 0.3), Law(0.050, 0.0, 1, 0.5))


@dataclass(frozen=True)
class Rule:
    """Treatment of a request that would miss the objective."""

    name: str
    mode: Literal["wait", "reject", "late"] = "late"
    """`wait`: it waits. `reject`: the rule of decision 0049. `late`: it waits behind all others."""
    spread: float = LATE_SPREAD
    idle: float = 2.0
    min_idle_s: float = 1.0
    """The same as the constants `LATE_SPREAD`, and `IDLE_OBJECTIVES` and `MIN_IDLE_MS` of `late.lua`."""
    counts: Literal["late", "waiting"] = "waiting"
    """Requests whose moments are counted: late ones only (0123), or all that wait."""


RULES: Final = (
    Rule("mode Wait", "wait"),
    Rule("0049", "reject"),
    Rule("0123", spread=1 / 8, idle=math.inf, counts="late"),
    *(Rule(f"all that wait, {spread:g}", spread=spread, idle=math.inf) for spread in (1 / 8, LATE_SPREAD, 3 / 16)),
    *(Rule(f"in vain after {idle:g} objectives", idle=idle, min_idle_s=0) for idle in (0, 1, 2)),
    Rule("0127"),
)


def arrivals(rate_rps: float, for_s: float, variation: float, seed: int) -> Iterator[float]:
    """Yield the times of arrivals whose distances are gamma distributed, with this coefficient of variation."""
    draw, at_s, shape = random.Random(seed), 0.0, variation**-2
    while True:
        at_s += draw.gammavariate(shape, 1 / (shape * rate_rps))
        if at_s > for_s:
            return
        yield at_s


@dataclass
class Outcome:
    """Outcome of the requests."""

    latency_s: list[float] = field(default_factory=list)
    """Latency of each answer."""
    answered_at_s: list[float] = field(default_factory=list)
    """Time of each answer, in the order of `latency_s`."""
    rejected_after_s: list[float] = field(default_factory=list)

    def late(self, law: Law) -> int:
        """Return the number of answers after the objective."""
        return sum(latency > law.objective_s for latency in self.latency_s)

    def lost(self, law: Law) -> float:
        """Return the share of requests that were late or rejected, in percent."""
        return 100 * (self.late(law) + len(self.rejected_after_s)) / self.offered

    @property
    def offered(self) -> int:
        """Number of requests."""
        return len(self.latency_s) + len(self.rejected_after_s)

    @property
    def rejected(self) -> float:
        """Share of requests that were rejected, in percent."""
        return 100 * len(self.rejected_after_s) / self.offered

    @property
    def rejected_slowly(self) -> float:
        """Share of rejections that took longer than 20 ms, in percent."""
        return 100 * sum(after > 0.02 for after in self.rejected_after_s) / max(len(self.rejected_after_s), 1)

    def goodput(self, law: Law, for_s: float) -> float:
        """Return the answers within the objective and the time of the load, as a share of a pod's peak rate."""
        pairs = zip(self.latency_s, self.answered_at_s, strict=True)
        return sum(latency <= law.objective_s and at <= for_s for latency, at in pairs) / for_s / law.peak_rps


@dataclass
class Balancer:
    """A HAProxy with its agent."""

    agent: Concurrency
    inside: list[int]
    """Requests in each pod."""
    most: list[int]
    """Limit on the requests in each pod."""
    limits: OverloadLimits = field(default_factory=OverloadLimits)
    values: dict[str, int] = field(default_factory=dict)
    queue: deque[float] = field(default_factory=deque)
    late: deque[float] = field(default_factory=deque)
    requests: int = 0
    rejected: int = 0
    over_since: float = -1e9
    over_at: float = -1e9
    refused_at: float = -1e9
    late_sent_at: float = -1e9
    moments: float = 0.0
    moment_at: float = -1e9

    def loads(self) -> BackendLoads:
        """Return the loads that the agent reads."""
        pairs = zip(self.inside, self.most, strict=True)
        servers = {_key(number): PodLoad((0, inside), (most, most)) for number, (inside, most) in enumerate(pairs)}
        return BackendLoads({"a": (0, len(self.queue))}, {}, servers, late=len(self.late))

    def free_pod(self) -> int | None:
        """Return the pod with the fewest requests that may have one more."""
        free = [number for number, inside in enumerate(self.inside) if inside < self.most[number]]
        return min(free, key=self.inside.__getitem__, default=None)


def _key(number: int) -> ServerKey:
    return ServerKey("a", number + 1)


class Simulation:
    """Balancers, their agents, and pods."""

    def __init__(self, rule: Rule, law: Law, pods: int) -> None:
        """Create the simulation of idle balancers with this number of pods."""
        self.rule, self.law, self.out = rule, law, Outcome()
        most = max(2 * law.batch, -(-3 * law.batch // BALANCERS))
        self.plan = BalancerPlan(
            namespace="n",
            name="m",
            model="m",
            slots=(Slot("a", "m-server-a", 100, 8),),
            max_connections=most,
            queue_limit=100_000,
            queue_timeout_ms=60_000,
            response_timeout_ms=60_000,
            drain_ms=30_000,
            objective_ms=round(1000 * law.objective_s),
            max_batch=law.batch,
            balancers=BALANCERS,
        )
        fixed_s = law.fixed_s + _MORE_S
        time = BatchTime(law.batch, fixed_s, law.row_s)
        self.capacity = pod_capacity(law.objective_s, law.batch, law.batch / time.largest_s, time)
        self.balancers = [
            Balancer(Concurrency(f"m-{number}"), [0] * pods, [most] * pods) for number in range(BALANCERS)
        ]
        self.waiting: list[deque[tuple[Balancer, float]]] = [deque() for _ in range(pods)]
        self.running: list[list[tuple[Balancer, float]]] = [[] for _ in range(pods)]
        self._events: list[tuple[float, int, str, int]] = []
        self._order = itertools.count()

    def run(self, streams: Sequence[Iterator[float]], for_s: float) -> Outcome:
        """Send the arrivals to the balancers, and return what became of them."""
        for number in range(BALANCERS):
            self._add(0.11 * number, "tick", number)
            self._add(0.2 + 0.37 * number, "sample", number)
            self._tick(self.balancers[number], -10.0)
            if (first := next(streams[number], None)) is not None:
                self._add(first, "arrival", number)
        while self._events:
            now, _, kind, number = heapq.heappop(self._events)
            for balancer in self.balancers:
                self._end_late(balancer, now)
            if kind == "arrival":
                self._arrive(self.balancers[number], now)
                if (following := next(streams[number], None)) is not None:
                    self._add(following, "arrival", number)
            elif kind == "answer":
                self._answer(number, now)
            elif kind == "tick":
                self._tick(self.balancers[number], now)
            else:
                self._sample(self.balancers[number], now)
            if kind in {"tick", "sample"} and now < for_s + _AFTER_S:
                self._add(now + (_TICK_S if kind == "tick" else 1.0), kind, number)
            self._send(now)
        return self.out

    def _add(self, at_s: float, kind: str, number: int) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), kind, number))

    def _tick(self, balancer: Balancer, now: float) -> None:
        agent, limits, servers = balancer.agent, balancer.limits, len(self.running)
        agent.others = tuple(other.agent.own for other in self.balancers if other is not balancer)
        places = tuple(AssignedServer(_key(number), "ready", f"10.0.0.{number}") for number in range(servers))
        server_limits = agent.limits(self.plan, places, balancer.loads(), now)
        balancer.most = [server_limits[_key(number)][1] for number in range(servers)]
        limits.capacity = self.capacity
        share = agent.share(BALANCERS)
        share = (agent.served_share(BALANCERS) or share) if limits.lasts else share
        elsewhere = None if limits.lasts else agent.elsewhere(BALANCERS)
        bounded = limits.lasts or agent.has_late
        agent.objective_bound = self.capacity.bound(servers, BALANCERS) if bounded else 0
        balancer.values = limits.values(servers, share, 1 / BALANCERS, sent=agent.sent, elsewhere=elsewhere)

    def _sample(self, balancer: Balancer, now: float) -> None:
        reading = HaproxyStats(now, 1, "x", requests=balancer.requests, rejected=balancer.rejected)
        servers = len(self.running)
        balancer.limits.update(
            self.plan, reading, {"p": PodStatistics()}, None, servers=servers, now=now, share=1 / BALANCERS
        )
        balancer.agent.rejected_load = balancer.limits.rejected_load

    def _arrive(self, balancer: Balancer, now: float) -> None:
        balancer.requests += 1
        if self.rule.mode == "wait" or not balancer.queue:
            balancer.queue.append(now)
            return
        limits, objective_s = balancer.values, self.law.objective_s
        if self.rule.counts == "waiting":
            self._count_moment(balancer, now)
        sent = balancer.agent.sent if self.rule.mode == "reject" else 0
        present = len(balancer.queue) + (0 if sent else sum(balancer.inside))
        over_s = now - balancer.over_since if now - balancer.over_at < objective_s else None
        lasts = over_s is not None and over_s >= objective_s
        in_time = max(limits[overload_rules.IN_TIME] - sent, 1)
        late = max(limits[overload_rules.LATE] - sent, in_time)
        is_over = present >= (in_time if lasts else late)
        if is_over:
            balancer.over_since = now if over_s is None else balancer.over_since
            balancer.over_at = now
        if self.rule.mode == "reject":
            if (is_over and lasts) or present >= max(limits[overload_rules.HOPELESS] - sent, late + 1):
                self._reject(balancer, now, 0.0)
            else:
                balancer.queue.append(now)
        elif not is_over:
            balancer.queue.append(now)
        elif now - balancer.refused_at < objective_s or self._is_overload(balancer, now):
            self._reject(balancer, now, 0.0)
        else:
            balancer.late.append(now)

    def _count_moment(self, balancer: Balancer, now: float) -> None:
        rate_rps, passed_s = balancer.values[overload_rules.LATE_PACE] / 1000, now - balancer.moment_at
        if passed_s >= 0.5 / rate_rps:
            counted = max(0.0, balancer.moments - passed_s * rate_rps / 2) + 1
            balancer.moments, balancer.moment_at = min(counted, 2 * self._spread(balancer)), now

    def _spread(self, balancer: Balancer) -> float:
        return max(balancer.values[overload_rules.LATE_SPREAD] / 100 * self.rule.spread / LATE_SPREAD, 1)

    def _is_overload(self, balancer: Balancer, now: float) -> bool:
        if self.rule.counts == "late":
            self._count_moment(balancer, now)
        is_full = len(balancer.late) >= balancer.values[overload_rules.LATE_MOST]
        return is_full or balancer.moments > self._spread(balancer)

    def _reject(self, balancer: Balancer, now: float, after_s: float) -> None:
        balancer.rejected += 1
        balancer.refused_at = now
        self.out.rejected_after_s.append(after_s)

    def _end_late(self, balancer: Balancer, now: float) -> None:
        objective_s = self.law.objective_s
        idle_s = max(self.rule.idle * objective_s, self.rule.min_idle_s)
        most_s = overload_rules.LATE_OBJECTIVES * objective_s
        while balancer.late:
            waited_s = now - balancer.late[0]
            longest_s = idle_s if now - balancer.refused_at < objective_s else math.inf
            if waited_s < most_s and min(waited_s, now - balancer.late_sent_at) < longest_s:
                break
            balancer.late.popleft()
            self._reject(balancer, now, waited_s)

    def _answer(self, number: int, now: float) -> None:
        for balancer, arrived_s in self.running[number]:
            balancer.inside[number] -= 1
            self.out.latency_s.append(now - arrived_s)
            self.out.answered_at_s.append(now)
        self.running[number] = []

    def _send(self, now: float) -> None:
        for balancer in self.balancers:
            room = balancer.values[overload_rules.LATE_ROOM]
            while balancer.queue or (balancer.late and sum(balancer.inside) < room):
                number = balancer.free_pod()
                if number is None:
                    break
                balancer.inside[number] += 1
                if not balancer.queue:
                    balancer.late_sent_at = now
                queue = balancer.queue or balancer.late
                self.waiting[number].append((balancer, queue.popleft()))
        for number, waiting in enumerate(self.waiting):
            if waiting and not self.running[number]:
                rows = min(self.law.batch, len(waiting))
                self.running[number] = [waiting.popleft() for _ in range(rows)]
                self._add(now + self.law.fixed_s + self.law.row_s * rows + _MORE_S, "answer", number)


def outcomes(
    rule: Rule,
    law: Law,
    load: float,
    for_s: float,
    variation: float,
    *,
    pods: int = 1,
    parts: Sequence[float],
    seeds: int,
) -> list[Outcome]:
    """Return the outcome for each seed.

    Args:
        rule: what happens to a request that would miss the objective.
        law: the execution time.
        load: load as a multiple of the pods' capacity.
        for_s: duration, in seconds.
        variation: coefficient of variation of the times between arrivals at a balancer.
        pods: number of pods.
        parts: each balancer's part of the load.
        seeds: number of seeds.
    """
    by_seed = []
    for seed in range(1, seeds + 1):
        streams = [
            arrivals(load * pods * law.peak_rps * part, for_s, variation, seed + 100 * number) if part else iter(())
            for number, part in enumerate(parts)
        ]
        by_seed.append(Simulation(rule, law, pods).run(streams, for_s))
    return by_seed


def row(rule: Rule, law: Law, *, burst_s: float = 300.0, seeds: int = 3) -> list[str]:
    """Return the cells of a rule's row."""
    bursts = [
        outcomes(rule, law, 0.7, burst_s / pods, 3.0, pods=pods, parts=parts, seeds=seeds)
        for pods, parts in ((1, (0.5, 0.5)), (1, (1.0, 0.0)), (4, (0.5, 0.5)))
    ]
    threefold = [outcomes(rule, law, 3.0, 30.0, 1.0, parts=parts, seeds=seeds) for parts in ((0.5, 0.5), (1.0, 0.0))]
    slight = [outcomes(rule, law, load, 60.0, 1.0, parts=(0.5, 0.5), seeds=seeds) for load in (1.3, 1.05)]
    return [
        *(f"{mean(run.rejected for run in group):.2f}, {mean(run.lost(law) for run in group):.1f}" for group in bursts),
        *(
            f"{mean(run.goodput(law, 30.0) for run in group):.3f}, {mean(run.rejected_slowly for run in group):.2f}, "
            f"{max((after_s for run in group for after_s in run.rejected_after_s), default=0.0):.1f}"
            for group in threefold
        ),
        *(
            f"{mean(run.lost(law) for run in group):.1f}, {mean(run.rejected_slowly for run in group):.1f}"
            for group in slight
        ),
    ]


def main() -> int:
    """Print the table for each law."""
    for law in LAWS:
        print(f"{law}")
        print("| rule | 1 pod, CV 3 | the same, one balancer | 4 pods | 3 x | 3 x, one balancer | 1.3 x | 1.05 x |")
        for rule in RULES:
            seconds = 300.0 * min(LAWS[0].peak_rps / law.peak_rps, 1.0)
            print("| " + " | ".join((rule.name, *row(rule, law, burst_s=seconds))) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
