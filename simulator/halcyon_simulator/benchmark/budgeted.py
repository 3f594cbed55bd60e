"""How a policy runs on its cases: one alone, or several models on one budget of GPUs, shared the way that goes with the policy."""

from __future__ import annotations

from collections.abc import Sequence

from halcyon.scaling.gpu_budget import Budget, Demand, allocate
from halcyon_simulator.benchmark import shared_budget
from halcyon_simulator.benchmark.scenarios import budget
from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.run import Trajectory, simulate
from halcyon_simulator.policies.registry import OWN, Named


def runs(cases: Sequence[Case], policy: Named) -> tuple[Trajectory, ...]:
    """One run per case. Several cases are models on one budget: a quota for peers, `by_need` for Halcyon."""
    faced = [policy.facing(case) for case in cases]
    if len(faced) == 1:
        return (simulate(faced[0], policy.build(faced[0])),)
    share = by_need if policy.name in OWN else shared_budget.quota
    return shared_budget.simulate(faced, policy, budget=budget(cases), allocate=share)


def by_need(wanted: Sequence[int], present: Sequence[int], gpus: int, tick: int) -> list[int]:  # noqa: ARG001  # a quota needs the tick
    """What `allocate` gives, where nobody is shrunk for another: a pod that serves is worth more than one that has to start."""
    demands = [
        Demand(str(number), want, current=have, floor=min(want, 1), need=float(want))
        for number, (want, have) in enumerate(zip(wanted, present, strict=True))
    ]
    return [grant.replicas for grant in allocate(demands, Budget(gpus, preempt=False, fill=True)).values()]
