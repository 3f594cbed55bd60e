"""Bounds of a plan: adds the bounds in force to its limits, with who sets them. Pure; the replicas don't change.

The planner computes nothing beyond its bounds. At the upper bound it doesn't know whether more replicas would be
needed, and at the lower bound it reports no limit if nothing asks for fewer. Readers want to know both, and whether
the spec or a schedule sets the bound.

replicas     needed                      before      reported limit
at maximum   more                        -           max, and how many are needed
at minimum   fewer, and nothing holds    -           min
at minimum   not known yet               fewer       min, beside the reason
else         -                           -           as in the plan
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from halcyon.scaling.planner.outputs import LimitName, Plan, PlanLimit
from halcyon.scaling.planner.plan import bounds
from halcyon.scaling.planner.reading import Objectives

_MAX_REPLICAS = 1000
"""Maximum replicas that a spec may set."""


def bounded(made: Plan, aims: Objectives, planned: Callable[[Objectives], Plan]) -> Plan:
    """Return the plan with its bounds among its limits if they apply, and its parts as they are without an upper bound.

    `planned` makes the same plan for other objectives. It is called only if the plan is at the upper bound; its memory and
    replicas are discarded.
    """
    low, high = bounds(aims)
    asked = _max_needed(made)
    limits = [limit for limit in made.limits if limit.name not in {"min", "max"}]
    if made.count == high and asked is not None and asked >= high:
        beyond = planned(replace(aims, high=_MAX_REPLICAS, windows=tuple(replace(w, high=None) for w in aims.windows)))
        needed = _max_needed(beyond)
        if needed is not None and needed > high:
            limits.append(PlanLimit("max", high, f"{_bound_reason(aims, 'max', high)}, and {needed} are needed"))
            return _with_limits(made, beyond, limits)
    raised = made.current < low and asked is None
    if made.count == low and (raised or (not limits and asked is not None and asked < low)):
        limits.append(PlanLimit("min", low, _bound_reason(aims, "min", low)))
    elif len(limits) < len(made.limits):
        limits += [
            replace(one, text=_bound_reason(aims, one.name, one.replicas)) for one in made.limits if one not in limits
        ]
    else:
        return made
    return _with_limits(made, made, limits)


def _with_limits(made: Plan, asked: Plan, limits: list[PlanLimit]) -> Plan:
    """Return the plan with the parts of `asked` and with these limits."""
    return Plan(made.count, made.current, asked.parts, asked.winner, tuple(limits), made.next_decision_at, made.memory)


def _max_needed(made: Plan) -> int | None:
    """Return the most replicas that any part asks for; None if there are no parts."""
    return max([term.replicas for term in made.parts]) if made.parts else None


def _bound_reason(aims: Objectives, name: LimitName, count: int) -> str:
    """Return who sets this bound: an open schedule, or the spec."""
    side = "low" if name == "min" else "high"
    for window in aims.windows:
        if getattr(window, side) == count != getattr(aims, side):
            return f"the schedule {window.name} says {'at least' if name == 'min' else 'at most'} {count}"
    return f"{name}Replicas is {count}"
