"""Simulation of several models that share a GPU budget. Their runs advance together, tick by tick.

The budget works like a quota that is granted in the order of requests: replicas may always decrease, and they may
increase while GPUs are free. The order of the models changes from tick to tick. Out of scope: how each policy
determines its desired replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from halcyon_simulator.engine import run
from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.policy_view import Policy, PolicyView
from halcyon_simulator.engine.run import Trajectory
from halcyon_simulator.policies.registry import Named

Allocate = Callable[[Sequence[int], Sequence[int], int, int], list[int]]
"""Function that divides a budget. Its arguments are (desired replicas, current replicas, budget, tick number), and its
result is the replicas that may be written."""


def simulate(
    cases: Sequence[Case], policy: Named, *, budget: int, allocate: Allocate | None = None
) -> tuple[Trajectory, ...]:
    """Return one run per case, with at most `budget` replicas in total.

    Each case has its own instance of the policy. All cases must have the same duration. If `allocate` is None, `quota`
    is used.
    """
    members = [policy.build(case) for case in cases]
    table = _Table([case.low for case in cases], [case.high for case in cases], budget, allocate or quota)

    def simulate_member(number: int) -> Trajectory:
        try:
            return run.simulate(cases[number], _Member(members[number], table, number))
        except BaseException:
            table.barrier.abort()  # otherwise the other runs would wait forever for this one's next tick
            raise

    # A run calls its policy itself, so parallel runs need a thread each. Only one of the threads works at a time.
    with ThreadPoolExecutor(len(cases)) as pool:
        return tuple(pool.map(simulate_member, range(len(cases))))


def quota(desired: Sequence[int], present: Sequence[int], budget: int, tick: int) -> list[int]:
    """Return the replicas that a ResourceQuota would allow.

    It always allows decreases, and it allows increases while GPUs are free.
    """
    granted = [min(want, have) for want, have in zip(desired, present, strict=True)]
    free = budget - sum(granted)
    number = len(granted)
    for index in ((tick + offset) % number for offset in range(number)):
        increase = max(0, min(desired[index] - granted[index], free))
        granted[index] += increase
        free -= increase
    return granted


class _Table:
    """Synchronization of all runs at every tick.

    It collects the desired replicas, and grants replicas within the budget.
    """

    def __init__(self, lows: Sequence[int], highs: Sequence[int], budget: int, allocate: Allocate) -> None:
        self._lows, self._highs = lows, highs
        self._budget = budget
        self._allocate = allocate
        self._tick = 0
        self.desired = [0] * len(lows)
        self.present = [0] * len(lows)
        self.granted = [0] * len(lows)
        self.barrier = Barrier(len(lows), action=self._share)

    def _share(self) -> None:
        desired = [
            max(low, min(want, high)) for low, want, high in zip(self._lows, self.desired, self._highs, strict=True)
        ]
        self.granted = self._allocate(desired, self.present, self._budget, self._tick)
        self._tick += 1


class _Member:
    """Policy of one model that waits at every tick until replicas are granted to the model."""

    def __init__(self, policy: Policy, table: _Table, number: int) -> None:
        self.period_s = policy.period_s
        self._policy = policy
        self._table = table
        self._number = number

    def desired(self, view: PolicyView) -> int:
        self._table.desired[self._number] = self._policy.desired(view)
        self._table.present[self._number] = view.replicas
        self._table.barrier.wait()
        return self._table.granted[self._number]
