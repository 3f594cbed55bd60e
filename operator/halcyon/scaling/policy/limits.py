"""A plan with its bounds said: who keeps the count from being what is needed. Pure; no count is changed.

The planner looks no further than its bounds, so at the most it can't tell whether more would be needed, and at the least it has
nothing to add where nobody wants less. A reader asks just that, and whether it is the spec or a schedule that says so.

count       what is needed              before      the limit that is said
the most    more                        -           max, and how many are needed
the least   fewer, and nothing holds    -           min
the least   not known yet               fewer       min, beside why
else        -                           -           as the planner says
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from halcyon.scaling.planner.outputs import LimitName, Plan, PlanLimit
from halcyon.scaling.planner.plan import bounds
from halcyon.scaling.planner.reading import Objectives

_BEYOND = 1000
"""The most that a spec may ask for."""


def bounded(made: Plan, aims: Objectives, planned: Callable[[Objectives], Plan]) -> Plan:
    """The plan, its terms as they are without an upper bound, and its bounds among its limits where they count.

    `planned` makes the same plan for other objectives. It is asked only where the count is at the most, and its memory and
    count are left.
    """
    low, high = bounds(aims)
    asked = _most(made)
    limits = [limit for limit in made.limits if limit.name not in {"min", "max"}]
    if made.count == high and asked is not None and asked >= high:
        beyond = planned(replace(aims, high=_BEYOND, windows=tuple(replace(w, high=None) for w in aims.windows)))
        needed = _most(beyond)
        if needed is not None and needed > high:
            limits.append(PlanLimit("max", high, f"{_who(aims, 'max', high)}, and {needed} are needed"))
            return _limited(made, beyond, limits)
    raised = made.current < low and asked is None
    if made.count == low and (raised or (not limits and asked is not None and asked < low)):
        limits.append(PlanLimit("min", low, _who(aims, "min", low)))
    elif len(limits) < len(made.limits):
        limits += [replace(one, said=_who(aims, one.name, one.replicas)) for one in made.limits if one not in limits]
    else:
        return made
    return _limited(made, made, limits)


def _limited(made: Plan, asked: Plan, limits: list[PlanLimit]) -> Plan:
    """The plan with what another asks for, and with these limits."""
    return Plan(made.count, made.current, asked.terms, asked.winner, tuple(limits), made.look_again_at, made.memory)


def _most(made: Plan) -> int | None:
    """What the terms ask for; None where there are none."""
    return max([term.replicas for term in made.terms]) if made.terms else None


def _who(aims: Objectives, name: LimitName, count: int) -> str:
    """Who sets this bound: a schedule that is open, or the spec."""
    side = "low" if name == "min" else "high"
    for window in aims.windows:
        if getattr(window, side) == count != getattr(aims, side):
            return f"the schedule {window.name} says {'at least' if name == 'min' else 'at most'} {count}"
    return f"{name}Replicas is {count}"
