"""Models whose batch times say little about what a replica can do, under the planner in the simulator's closed loop.

Five kinds of models with early-returning statistics, each under a rising, a falling and a steady load; and models whose pods
share a lock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from typing_extensions import override

from halcyon.scaling.planner.capacity_source import CapacitySource, source
from halcyon.scaling.planner.plan import replica_of
from halcyon.triton.pod_sampler import BATCHES_INTERVAL_S
from halcyon_simulator.engine.case import Case, Drift, ServiceLaw
from halcyon_simulator.engine.forwarded_view import ForwardedView
from halcyon_simulator.engine.load import Profile, arrivals
from halcyon_simulator.engine.policy_view import PolicyView
from halcyon_simulator.engine.run import Trajectory, simulate
from halcyon_simulator.policies.halcyon import HalcyonPolicy

START_S = 10.0
UTILIZATION = 0.8
KINDS: Mapping[str, ServiceLaw] = {
    "decoupled, 32 at once, 16 s": ServiceLaw(16.0, 0.0, 1, instances=32, reported_s=0.0003),
    "asynchronous, 8 at once, 2 s": ServiceLaw(2.0, 0.0, 1, instances=8, reported_s=0.001),
    "BLS, 4 share a replica, 0.1 + 0.1 k s": ServiceLaw(0.1, 0.1, 1, instances=4, shared=True, reported_s=0.02),
    "sleeps outside of batches, 1 s": ServiceLaw(1.0, 0.0, 1, reported_s=0.01),
    "statistics all zero, 4 at once, 0.5 s": ServiceLaw(0.5, 0.0, 1, instances=4, reported_s=0.0),
}
"""Laws by kind. `reported_s` is what Triton's statistics have."""
LOADS: Mapping[str, Sequence[tuple[float, float]]] = {
    "rising": ((120.0, 0.5), (300.0, 2.0), (300.0, 5.0)),
    "falling": ((300.0, 5.0), (400.0, 2.0), (400.0, 0.8)),
    "steady": ((600.0, 3.0),),
}
"""Steps as (seconds, requests per second as a multiple of what a replica answers)."""
LOCKED: Mapping[str, ServiceLaw] = {
    "80 + 6 b ms, batch 8": ServiceLaw(0.08, 0.006, 8, lock=2),
    "20 + 2 b ms, batch 32": ServiceLaw(0.02, 0.002, 32, lock=2),
    "unbatched 5 s": ServiceLaw(5.0, 0.0, 1, lock=2),
}
"""Laws of models whose replicas together answer as much as two."""


class _RarelyRead(ForwardedView):
    """View of a run whose batch statistics are those of the last read, as in an agent's reports."""

    def __init__(self) -> None:
        super().__init__()
        self._read_at = -1.0
        self._batches: Mapping[int, tuple[int, float]] = {}

    @override
    def update(self, view: PolicyView) -> PolicyView:
        if view.now - self._read_at >= BATCHES_INTERVAL_S:
            self._read_at, self._batches = view.now, view.batches()
        return super().update(view)

    @override
    def batches(self) -> Mapping[int, tuple[int, float]]:
        return self._batches


@dataclass
class Loop:
    """One run of the planner, with the source of capacity at each decision."""

    case: Case
    latency: bool = True
    """Whether the case's latency objective is the planner's, too; if not, it plans with `UTILIZATION`."""
    cold: bool = False
    """Whether pods run no warm-up, and agents read batch statistics every `BATCHES_INTERVAL_S`, as late as possible."""
    trajectory: Trajectory = field(init=False)
    sources: list[tuple[float, CapacitySource]] = field(default_factory=list)

    def __post_init__(self) -> None:
        loop, rarely_read = self, _RarelyRead()

        class Policy(HalcyonPolicy):
            @override
            def desired(self, view: PolicyView) -> int:
                count = super().desired(rarely_read.update(view) if loop.cold else view)
                line = self.memory.capacity.line
                replica = None if line is None else replica_of(self.objectives, line, 1.0)
                loop.sources.append((view.now, source(self.memory.evidence, replica)))
                return count

        policy = Policy(self.case)
        if not self.latency:
            policy.objectives = replace(policy.objectives, latency_s=None)
        if self.cold:
            policy.objectives = replace(policy.objectives, batch_prior=None)
        self.trajectory = simulate(self.case, policy)

    def counts(self, begin: float, end: float) -> list[int]:
        """Return the replicas of each second from `begin` to `end`."""
        return list(map(int, self.trajectory.written[int(begin) : int(end) + 1]))


def loop(
    service: ServiceLaw,
    *pieces: tuple[float, float],
    seed: int = 1,
    first: int = 1,
    slots: int | None = None,
    queue_limit: int | None = None,
    drift: Drift | None = None,
    latency: bool = True,
    cold: bool = False,
) -> Loop:
    """Run the planner on Poisson arrivals; pieces are (seconds, requests per second)."""
    profile = Profile.steps(*pieces)
    times = arrivals(profile, rng=np.random.Generator(np.random.PCG64(seed)))
    case = Case(
        name="capacity",
        arrivals=times,
        duration_s=profile.duration_s,
        service=service,
        slo_s=60.0,
        start_s=START_S,
        high=10,
        first=first,
        slots=slots,
        queue_limit=queue_limit,
        drift=drift,
        seed=seed,
    )
    return Loop(case, latency, cold)


@dataclass(frozen=True)
class Result:
    """One kind under one load."""

    right: tuple[int, ...]
    """Right number of replicas of each step."""
    counts_30_s: tuple[int, ...]
    """Replicas 30 s after each rise or fall began, or at the end of a fall."""
    fallen_s: tuple[float, ...]
    """Seconds after each fall until the replicas are at most one above the right number."""

    @property
    def is_right(self) -> bool:
        """Return whether all counts are right within one."""
        return all(abs(count - right) <= 1 for count, right in zip(self.counts_30_s, self.right, strict=True))


def result(law: ServiceLaw, load: str, *, seed: int = 1) -> Result:
    """Run one kind under one load."""
    steps, replica_rps = LOADS[load], law.peak_rps
    first = math.ceil(steps[0][1] / UTILIZATION) if load == "falling" else 1
    run = loop(
        law,
        *((seconds, share * replica_rps) for seconds, share in steps),
        seed=seed,
        first=first,
        slots=max(law.instances * law.max_batch, 2),
        latency=False,
    )
    begin, right, counts, fallen = 0.0, [], [], []
    for number, (seconds, share) in enumerate(steps):
        desired = math.ceil(share / UTILIZATION - 1e-9)
        right.append(desired)
        step_counts = run.counts(begin, begin + seconds - 1)
        is_fall = number > 0 and share < steps[number - 1][1]
        counts.append(step_counts[-1] if is_fall else step_counts[30])
        if is_fall:
            fallen.append(float(next((n for n, count in enumerate(step_counts) if count <= desired + 1), seconds)))
        begin += seconds
    return Result(tuple(right), tuple(counts), tuple(fallen))
