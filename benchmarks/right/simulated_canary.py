"""Simulated canary rollouts: pods with queues of their own, sampled once per second as the agents do. Seeded, no clock.

Each pod executes batches one after the other. A rollout may have bursts of requests, a drift of all execution times, stalls
of single pods, pods that start cold, and an outage of a dependency of both revisions.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from halcyon.balancer.config.latency_buckets import BOUNDS_MS
from halcyon.scaling.canary.data import Sample
from halcyon.scaling.histogram import Histogram

BOUNDS_S = tuple(bound / 1000 for bound in BOUNDS_MS)


@dataclass(frozen=True)
class Law:
    """Execution time of a batch: `base_ms` + `row_ms` per request, with at most `batch` requests; `pods` pods carry the load."""

    name: str
    base_ms: float
    row_ms: float
    batch: int
    pods: int = 5


LAWS = (
    Law("5 + 0.5 b ms, batch 8", 5, 0.5, 8),
    Law("80 + 6 b ms, batch 8", 80, 6, 8),
    Law("20 + 2 b ms, batch 32", 20, 2, 32),
    Law("50 ms, unbatched", 50, 0, 1, pods=10),
)


@dataclass(frozen=True)
class Fault:
    """Fault of the canary's revision."""

    slower: float = 1.0
    failing: float = 0.001


@dataclass(frozen=True)
class Disturbances:
    """Disturbances of both revisions alike; none by default."""

    bursts: bool = False
    drift: float = 0.0
    """Relative change of all execution times: half a sine of this height over 120 s."""
    stalls: bool = False
    cold: str = ""
    """How a new pod starts: `decay`, `step`, `sizes` (the first batch of each size), or empty for warm."""
    outage: bool = False

    @classmethod
    def drawn(cls, draw: random.Random) -> Disturbances:
        """Return a mix of disturbances; each is present in about half of the draws."""
        return cls(
            bursts=draw.random() < 0.5,
            drift=draw.choice((0.0, 0.0, 0.5, -0.4)),
            stalls=draw.random() < 0.5,
            cold=draw.choice(("", "decay", "step", "sizes")),
            outage=draw.random() < 0.35,
        )


@dataclass
class _Pod:
    """A pod that executes batches one after the other."""

    law: Law
    draw: random.Random
    fault: Fault
    disturbances: Disturbances
    cold: bool
    free_at: float = 0.0
    waiting: list[float] = field(default_factory=list)
    first_at: float | None = None
    factor: float = 1.0
    sizes: set[int] = field(default_factory=set)
    cold_s: float = 0.0

    def __post_init__(self) -> None:
        """Draw how cold it starts."""
        self.factor = self.draw.uniform(2, 8)
        self.cold_s = self.draw.uniform(1, 5)

    def executes_s(self, rows: int, at: float) -> float:
        """Return the execution time of a batch that begins at `at`."""
        law = self.law
        slower = self.fault.slower * self.draw.lognormvariate(0, 0.12)
        slower *= 1 + self.disturbances.drift * math.sin(math.pi * at / 120)
        self.first_at = at if self.first_at is None else self.first_at
        age, kind, extra_s = at - self.first_at, self.disturbances.cold if self.cold else "", 0.0
        if kind == "decay":
            slower *= 1 + (self.factor - 1) * math.exp(-age / (self.cold_s / 2))
        elif kind == "step" and age < self.cold_s:
            slower *= self.factor
        elif kind == "sizes" and rows not in self.sizes:
            extra_s = 0.3
        self.sizes.add(rows)
        if self.disturbances.stalls and self.draw.random() < (law.base_ms / 1000) / 20:
            extra_s += self.draw.uniform(0.1, 0.8)  # about once in 20 s of work
        return (law.base_ms + law.row_ms * rows) * slower / 1000 + extra_s

    def answered(self, until: float) -> Iterator[tuple[float, float, float, int]]:
        """Yield (arrival, start, end, requests in the batch) of each request whose batch ends by `until`."""
        while self.waiting:
            begin = max(self.free_at, self.waiting[0])
            if begin >= until:
                return
            rows = 0
            while rows < self.law.batch and rows < len(self.waiting) and self.waiting[rows] <= begin:
                rows += 1
            batch, self.waiting = self.waiting[:rows], self.waiting[rows:]
            end = begin + self.executes_s(rows, begin)
            self.free_at = end
            for arrival in batch:
                yield arrival, begin, end, rows


@dataclass
class _Counts:
    """Counters of a revision in each second."""

    requests: int = 0
    failures: int = 0
    batches: float = 0.0
    queue_us: float = 0.0
    compute_us: float = 0.0
    times: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))

    def sample(self) -> Sample:
        """Return the second as a sample."""
        return Sample(
            requests=self.requests,
            failures=self.failures,
            batches=round(self.batches),
            latency=Histogram(BOUNDS_S, tuple(self.times)),
            queue_us=round(self.queue_us),
            compute_us=round(self.compute_us),
        )


@dataclass
class Rollout:
    """A canary that takes `weight` of the requests from its first second on, beside a warm stable revision."""

    seed: int
    law: Law = LAWS[0]
    rate: float = 150.0
    weight: float = 0.2
    fault: Fault = Fault()
    disturbances: Disturbances = Disturbances()

    def seconds(self) -> Iterator[tuple[Sample, Sample, float]]:
        """Yield (stable's sample, the canary's, age of the canary's newest pod in s) of each second, without an end."""
        draw = random.Random(f"{self.seed} {self.law.name}")
        canaries = max(1, round(self.law.pods * self.weight))
        stable = [_Pod(self.law, draw, Fault(), self.disturbances, cold=False) for _ in range(self.law.pods - canaries)]
        canary = [_Pod(self.law, draw, self.fault, self.disturbances, cold=True) for _ in range(canaries)]
        outage_at = draw.uniform(5, 70)
        outage_s, failing, delay_s = draw.uniform(3, 20), draw.choice((0.3, 0.7, 1.0)), draw.choice((0.0, 0.5))
        waiting: dict[int, tuple[_Counts, _Counts]] = {}
        rate = _rate(draw, self.rate, bursts=self.disturbances.bursts)
        number, arrives = 0, draw.expovariate(rate(0.0))
        for second in range(10**6):
            until = second + 1.0
            while arrives < until:
                place = number % 5 if self.weight == 0.2 else draw.random() * 5
                pods = canary if (place < 5 * self.weight) else stable
                number += 1
                pod = min(pods, key=lambda pod: (len(pod.waiting), draw.random()))
                pod.waiting.append(arrives)
                arrives += draw.expovariate(rate(arrives))
            for revision, pods in enumerate((stable, canary)):
                share = (Fault() if revision == 0 else self.fault).failing
                for pod in pods:
                    for arrival, begin, end, rows in pod.answered(until):
                        out = self.disturbances.outage and outage_at <= begin < outage_at + outage_s
                        late = delay_s if out else 0.0
                        slot = int(end + late)
                        if slot not in waiting:
                            waiting[slot] = (_Counts(), _Counts())
                        counts = waiting[slot][revision]
                        counts.requests += 1
                        counts.batches += 1 / rows
                        if draw.random() < (max(failing, share) if out else share):
                            counts.failures += 1
                        else:
                            counts.queue_us += 1e6 * (begin - arrival)
                            counts.compute_us += 1e6 * (end - begin)
                        counts.times[bisect_right(BOUNDS_MS, int(1000 * (end + late - arrival)))] += 1
            stable_counts, canary_counts = waiting.pop(second, (_Counts(), _Counts()))
            began = [pod.first_at for pod in canary if pod.first_at is not None]
            yield stable_counts.sample(), canary_counts.sample(), until - max(began, default=until)


def _rate(draw: random.Random, mean: float, *, bursts: bool) -> Callable[[float], float]:
    """Return the rate of arrivals at a time: constant, or with bursts of 2.5 times the rate for 1 to 4 s."""
    if not bursts:
        return lambda _: mean
    edges: list[float] = [0.0]
    while edges[-1] < 400:
        edges.append(edges[-1] + draw.uniform(3, 12))
        edges.append(edges[-1] + draw.uniform(1, 4))
    # Alternating quiet and bursty spans, with about the same mean.
    return lambda at: mean * (0.65 if bisect_right(edges, at) % 2 else 2.0)
