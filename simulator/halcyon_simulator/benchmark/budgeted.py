"""Runs of a policy on its simulation cases: one model alone, or several models that share a GPU budget."""

from __future__ import annotations

from collections.abc import Sequence

from halcyon.scaling.gpu_budget import Budget, Demand, allocate
from halcyon_simulator.benchmark import shared_budget
from halcyon_simulator.benchmark.scenarios import budget
from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.run import Trajectory, simulate
from halcyon_simulator.policies.registry import OWN, Named


def runs(cases: Sequence[Case], policy: Named) -> tuple[Trajectory, ...]:
    """Return one run per case.

    If there are several cases, they are models that share a GPU budget. The budget is divided by `quota` for peers, and
    by `by_need` for Halcyon.
    """
    own_cases = [policy.facing(case) for case in cases]
    if len(own_cases) == 1:
        return (simulate(own_cases[0], policy.build(own_cases[0])),)
    share = by_need if policy.name in OWN else shared_budget.quota
    return shared_budget.simulate(own_cases, policy, budget=budget(cases), allocate=share)


def by_need(desired: Sequence[int], present: Sequence[int], gpus: int, tick: int) -> list[int]:  # noqa: ARG001  # a quota needs the tick
    """Return the division of a GPU budget by the planner's `allocate`, without preemption.

    A model never loses a replica to another model, because a serving pod is worth more than a starting pod.
    """
    demands = [
        Demand(str(number), want, current=have, floor=min(want, 1), need=float(want))
        for number, (want, have) in enumerate(zip(desired, present, strict=True))
    ]
    return [grant.replicas for grant in allocate(demands, Budget(gpus, preempt=False, fill=True)).values()]
