"""Simulation of pods that compute batches for users and for the lower class, with the balancers' own rule for its room.

It has no network, no agents and no HAProxy: a request takes `HOP_S` to a pod, and a free row is found after up to `POLL_S`, as in
`lower.lua`. The bound of *gentle* is a queue with priority inside the pod, which an execution is not interrupted for.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from halcyon.balancer.runtime.lower_room import LONG_S, NextBatch, PodWork, fleet_room, next_batch, own_room
from halcyon.balancer.runtime.overload_limits import BatchTime
from halcyon.balancer.runtime.shares import GOLDEN, BalancerLoad, PodLoad

HOP_S = 0.001
_ANSWERS_S = 0.003
"""Time within which the answers of a batch arrive, in seconds."""
POLL_S = 0.004
EXCHANGE_S = 0.25
"""Time between two readings of the loads of all balancers, as in the agents."""


@dataclass(frozen=True)
class Law:
    """Execution time: `fixed_s` + `row_s` x rows, for up to `rows` rows; or `rows` single requests at once (`overlaps`)."""

    fixed_s: float
    row_s: float
    rows: int
    overlaps: bool = False

    @property
    def full_s(self) -> float:
        """Time of a full execution, in seconds."""
        return self.fixed_s + self.row_s * (1 if self.overlaps else self.rows)

    @property
    def peak_rps(self) -> float:
        """Rows per second of one pod."""
        return self.rows / self.full_s

    @property
    def work(self) -> PodWork:
        """The law in the form that balancers use."""
        rows = 1 if self.overlaps else self.rows
        return PodWork(self.rows, rows > 1, BatchTime(rows, self.fixed_s, self.row_s))


@dataclass(frozen=True)
class Served:
    """Service of the users and of the lower class."""

    latency_s: tuple[float, ...]
    """Latency of each request of the users, ascending, in seconds."""
    lower_rps: float

    def p(self, share: float) -> float:
        """Return this quantile of the users' latency, in seconds."""
        return self.latency_s[min(int(len(self.latency_s) * share), len(self.latency_s) - 1)]


@dataclass
class _Pod:
    queue: list[tuple[int, float | None]] = field(default_factory=list)
    """Balancer of each waiting request, and the time at which a user's request arrived; None for the lower class."""
    running: int = 0


@dataclass
class _Ahead:
    """State of `lower.lua` in one balancer while rows are sent just before a batch begins."""

    began_s: float = -1.0
    """Time of the first answer of the batch before."""
    executing: int = 0
    users: int = 0
    """Users' rows sent since then."""
    sent: int = 0
    """Rows of the lower class sent since then."""
    phase: float = 0.0

    def begin(self, now: float) -> None:
        self.began_s, self.users, self.sent, self.phase = now, 0, 0, (self.phase + GOLDEN) % 1


class Simulation:
    """Users with Poisson arrivals, and a job that always has a request waiting in each balancer."""

    def __init__(
        self, law: Law, *, load: float, pods: int = 1, balancers: int = 2, job: str = "", seed: int = 1
    ) -> None:
        """Create the simulation.

        Args:
            law: execution time of the pods.
            load: users' rate, as a share of the pods' capacity.
            pods: number of pods.
            balancers: number of balancers; users arrive at each with the same probability.
            job: `Fill` or `Gentle`; empty for users alone.
            seed: seed of the arrivals.
        """
        self._law, self._job = law, job
        self._random = random.Random(seed)
        self._rate = load * pods * law.peak_rps
        self._pods = [_Pod() for _ in range(pods)]
        self._users = [[0] * pods for _ in range(balancers)]
        self._lower = [[0] * pods for _ in range(balancers)]
        self._sends = [_Ahead() for _ in range(balancers)]
        """Each balancer's state of the batch that the pod computes, if it sends rows just before the next one."""
        self._next: NextBatch | None = None
        self._rooms = [(0, 0)] * balancers
        """Limits of all rows and of the lower class's rows that each balancer has in pods."""
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._numbers = itertools.count()
        self._latency: list[float] = []
        self._computed = 0
        self._now = 0.0

    def run(self, for_s: float) -> Served:
        """Run it for this time, in seconds; the first 5 % are not counted."""
        self._warm_s = 0.05 * for_s
        self._at(0.0, self._arrive)
        self._at(0.0, self._exchange)
        while self._events and self._events[0][0] <= for_s:
            self._now, _, action, arguments = heapq.heappop(self._events)
            action(*arguments)
        return Served(tuple(sorted(self._latency)), self._computed / (for_s - self._warm_s))

    def _at(self, at_s: float, action: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), action, arguments))

    def _arrive(self) -> None:
        self._send(self._random.randrange(len(self._users)), self._now)
        self._at(self._now + self._random.expovariate(self._rate), self._arrive)

    def _send(self, balancer: int, arrived_s: float | None) -> None:
        counts = self._users if arrived_s is not None else self._lower
        if arrived_s is not None:
            self._sends[balancer].users += 1
        loads = [a + b for a, b in zip(self._users[balancer], self._lower[balancer], strict=True)]
        pod = min(range(len(loads)), key=lambda index: (loads[index], self._random.random()))
        counts[balancer][pod] += 1
        self._at(self._now + HOP_S, self._enter, pod, balancer, arrived_s)

    def _enter(self, pod: int, balancer: int, arrived_s: float | None) -> None:
        self._pods[pod].queue.append((balancer, arrived_s))
        self._start(pod)

    def _start(self, number: int) -> None:
        pod, law = self._pods[number], self._law
        while pod.queue and pod.running < (law.rows if law.overlaps else 1):
            count = 1 if law.overlaps else min(len(pod.queue), law.rows)
            batch, pod.queue = pod.queue[:count], pod.queue[count:]
            pod.running += 1
            self._at(self._now + law.fixed_s + law.row_s * count, self._end, number, batch)

    def _end(self, number: int, batch: list[tuple[int, float | None]]) -> None:
        self._pods[number].running -= 1
        self._start(number)
        for balancer, arrived_s in batch:
            self._at(self._now + HOP_S, self._answer, number, balancer, arrived_s)

    def _answer(self, pod: int, balancer: int, arrived_s: float | None) -> None:
        if arrived_s is None:
            self._lower[balancer][pod] -= 1
            self._computed += self._now > self._warm_s
        else:
            self._users[balancer][pod] -= 1
            if arrived_s > self._warm_s:
                self._latency.append(self._now - arrived_s)
        ahead = self._sends[balancer]
        if self._now - ahead.began_s > _ANSWERS_S:
            ahead.begin(self._now)
        ahead.executing = sum(self._users[balancer]) + sum(self._lower[balancer])
        if self._job:
            self._at(self._now + self._random.random() * POLL_S, self._poll, balancer)

    def _poll(self, balancer: int) -> None:
        room, max_lower = self._rooms[balancer]
        if self._next is not None:
            self._poll_at_end(balancer, self._next)
            return
        while True:
            lower = sum(self._lower[balancer])
            inside = sum(self._users[balancer]) + lower
            if (inside + 1 > room or lower + 1 > max_lower) and (inside or not room or not max_lower):
                return
            self._send(balancer, None)

    def _poll_at_end(self, balancer: int, timed: NextBatch) -> None:
        ahead = self._sends[balancer]
        while True:
            due_s = ahead.began_s + timed.due_s(ahead.executing)
            is_idle = not sum(self._users[balancer]) + sum(self._lower[balancer])
            if is_idle:
                ahead.begin(self._now)
            elif self._now < due_s:
                self._at(due_s + self._random.random() * POLL_S, self._poll_due, balancer, ahead.began_s)
                return
            elif ahead.sent + 1 > timed.rows - timed.less * ahead.users + ahead.phase:
                return
            ahead.sent += 1
            self._send(balancer, None)

    def _poll_due(self, balancer: int, began_s: float) -> None:
        if self._next is not None and self._sends[balancer].began_s == began_s:
            self._poll_at_end(balancer, self._next)

    def _exchange(self) -> None:
        if self._job:
            rate, pods = self._rate, len(self._pods)
            loads = [
                BalancerLoad(
                    str(number),
                    pods={str(pod): PodLoad((users[pod] + lower[pod], 0), (99, 99)) for pod in range(pods)},
                    users_rps=rate / len(self._users),
                    lower=sum(lower) + 8,
                    lower_sent=sum(lower),
                )
                for number, (users, lower) in enumerate(zip(self._users, self._lower, strict=True))
            ]
            work = self._law.work
            room = fleet_room(work, pods, rate, gentle=self._job == "Gentle", balancers=len(loads))
            if self._job == "Gentle":
                share = 1 / len(loads)
                self._next = next_batch(work, pods, rate, part=share, unseen=1 - share, balancers=len(loads))
            inside = 1.5 * pods * work.users_rows(rate / pods)
            for number, own in enumerate(loads):
                others = [load for load in loads if load is not own]
                self._rooms[number] = own_room(
                    room,
                    own,
                    others,
                    users_rows=inside,
                    turn=int(self._now),
                    is_long=self._law.full_s >= LONG_S,
                    counts_others=work.batches,
                )
                self._poll(number)
        self._at(self._now + EXCHANGE_S, self._exchange)


def priority_bound(
    law: Law, *, load: float, max_ratio: float, for_s: float, fills: bool = False, seed: int = 1
) -> float:
    """Return the largest rate of the lower class with which the users' P99 is at most `max_ratio` times that of the users alone.

    At the begin of an execution, a pod takes its users first, and then a fixed number of rows of the lower class, or more of them without
    users. With `fills`, the rows fill the batch up to a size instead. All numbers and sizes are tried.
    """
    alone_s, _ = _with_priority(law, load, 0, 0, for_s=for_s, fills=fills, seed=seed)
    tried = [
        _with_priority(law, load, beside, without, for_s=for_s, fills=fills, seed=seed)
        for beside in range(0, law.rows + 1, max(law.rows // 8, 1))
        for without in {0, beside, law.rows // 2, law.rows}
    ]
    return max(rate for p99_s, rate in tried if p99_s <= max_ratio * alone_s)


def _with_priority(
    law: Law, load: float, beside: int, without: int, *, for_s: float, fills: bool, seed: int
) -> tuple[float, float]:
    arrivals = random.Random(seed)
    rate = load * law.peak_rps
    now, following, computed = 0.0, arrivals.expovariate(rate), 0
    waiting: list[float] = []
    latency: list[float] = []
    while now < for_s:
        while following <= now:
            waiting.append(following)
            following += arrivals.expovariate(rate)
        users, waiting = waiting[: law.rows], waiting[law.rows :]
        added = max(beside - len(users), 0) if fills else beside
        lower_rows = min(law.rows - len(users), added if users else without)
        if not users and not lower_rows:
            now = following
            continue
        now += law.fixed_s + law.row_s * (len(users) + lower_rows)
        computed += lower_rows
        latency += [now - at for at in users]
    latency.sort()
    return latency[int(len(latency) * 0.99)], computed / for_s
