"""A model controlled by the planner, second by second, with given arrivals, starting pods, and modifiable readings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from halcyon.scaling.planner.outputs import Plan, PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import Objectives, PodReading, Reading

OBJECTIVES = Objectives(low=1, high=100, max_batch=4, latency_s=2.4, start_s=60.0, batch_prior={1: 0.4, 4: 0.4})
"""Objectives with at most ten requests per second per replica."""
BATCH_S = 0.4
EPOCH = 1.7e9
Distortion = Callable[[Reading], Reading]


@dataclass
class Driven:
    """The arrival counter, the queue as a fluid, and the pods.

    `distort` may modify the reading before the planner receives it.
    """

    objectives: Objectives = OBJECTIVES
    replicas: int = 3
    memory: PlannerMemory = field(default_factory=PlannerMemory)
    now: float = EPOCH
    arrived: float = 0.0
    waiting: float = 0.0
    peak_rps: float = 10.0
    served_rps: float = 0.0
    pods: list[PodReading] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    created: int = 0

    def __post_init__(self) -> None:
        while len(self.pods) < self.replicas:
            self._create(ready=True)

    def run(self, rates: Iterable[float], distort: Distortion = lambda reading: reading) -> list[int]:
        """Make one decision per second, and return the replicas."""
        counts = []
        for rate in rates:
            self.now += 1.0
            self.arrived += rate
            ready = sum(pod.phase == "ready" for pod in self.pods)
            self.served_rps = min(self.waiting + rate, ready * self.peak_rps)
            self.waiting = max(self.waiting + rate - ready * self.peak_rps, 0.0)
            self.pods = [self._grown(pod) for pod in self.pods]
            planned = plan(self.now, self.objectives, distort(self.reading()), self.memory)
            self.memory = planned.memory
            self.plans.append(planned)
            self._scale(planned.count)
            counts.append(planned.count)
        return counts

    def reading(self) -> Reading:
        """Return the correct reading at this time."""
        return Reading(
            at=self.now,
            replicas=self.replicas,
            arrived=self.arrived,
            waiting=self.waiting,
            # Four requests at once take 0.4 s, whatever their number is.
            inflight=self.waiting + BATCH_S * self.served_rps,
            pods=tuple(self.pods),
        )

    def _scale(self, count: int) -> None:
        self.replicas = count
        while len(self.pods) < count:
            self._create(ready=False)
        order = sorted(self.pods, key=lambda pod: pod.phase != "ready")
        self.pods = order[:count]

    def _create(self, *, ready: bool) -> None:
        self.created += 1
        self.pods.append(PodReading(self.created, "ready" if ready else "starting", self.now))

    def _grown(self, pod: PodReading) -> PodReading:
        if pod.phase == "starting" and self.now - pod.created_at >= self.objectives.start_s:
            return replace(pod, phase="ready", ready_at=self.now)
        return pod


def turns(counts: list[int]) -> int:
    """Return the number of changes of direction."""
    moves = [after - before for before, after in pairwise(counts) if before != after]
    return sum(move * following < 0 for move, following in pairwise(moves))
